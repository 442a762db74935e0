# Runs inside of a sandbox that shows the new tree read-only, as every later run will see it.
import importlib, sys, traceback

for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        traceback.print_exc()
        print("%s: %s: %s" % (name, type(error).__name__, error), file=sys.stderr)
        sys.exit(1)
