"""The environment variables of a guest: exactly those that the engine names."""

import os
import sys

_environ = os.environ  # the interpreter's own, whatever the guest puts in its place


def variables():
    """All that there are, as bytes."""
    return _environ._data


def variable(name):
    # Not `environ.get`, which raises and catches an exception for each that is missing: a fork pays for all it touches.
    value = os.environ._data.get(name.encode())
    return None if value is None else os.fsdecode(value)


def replace(variables):
    """Put these in the place of all that there are. A zygote has most of them already."""
    import time

    environ = os.environ
    had_zone = environ.get("TZ")
    for name in [name for name in environ if name not in variables]:
        del environ[name]
    for name, value in variables.items():
        if environ.get(name) != value:
            environ[name] = value
    if environ.get("TZ") != had_zone:
        time.tzset()


def import_path(first):
    """Where a guest's imports look first: this directory, then PYTHONPATH as its own start would have read it."""
    further = [part for part in (variable("PYTHONPATH") or "").split(":") if part]
    sys.path[:0] = [first] + [part for part in further if part not in sys.path]
    # What the zygote found, or did not find, in these places says nothing about this sandbox.
    for part in [first] + further:
        sys.path_importer_cache.pop(part, None)
    if first == "":
        import posix

        sys.path_importer_cache.pop(posix.getcwd(), None)
