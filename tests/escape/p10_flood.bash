# P10: prints for ever on both streams. The output must be cut and the engine's own memory stay flat.
yes out &
yes err >&2
