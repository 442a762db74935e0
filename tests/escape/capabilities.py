# What a guest may still do that ordinary users may not. Every set must be empty, the one that bounds the others too.
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name.startswith("Cap"):
        print(f"{name}: {value.strip()}")
