# Gives matplotlib the list of fonts that was made with the environment. It wants a directory that it
# can write to, and would else look at every font again in each run.
import os

try:
    _there = os.environ.get("MPLCONFIGDIR")
    if _there and not os.path.isdir(_there):
        import sys
        os.mkdir(_there)
        _made = os.path.join(sys.prefix, "share", "belljar", "matplotlib")
        for _name in os.listdir(_made):
            os.symlink(os.path.join(_made, _name), os.path.join(_there, _name))
except OSError:
    pass
