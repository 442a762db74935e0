"""The environment variables of a guest: exactly those that the engine names."""

import sys


def variable(name):
    import os

    return os.environ.get(name)


def replace(variables):
    """Put these in the place of all that there are. A zygote has most of them already."""
    import os
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
    added = [first] + [part for part in (variable("PYTHONPATH") or "").split(":") if part]
    known = set(sys.path)
    sys.path[:0] = [added[0]] + [part for part in added[1:] if part not in known]
    # What the zygote found, or did not find, in these places says nothing about this sandbox.
    for part in added:
        sys.path_importer_cache.pop(part, None)
    if first == "":
        import posix

        sys.path_importer_cache.pop(posix.getcwd(), None)
