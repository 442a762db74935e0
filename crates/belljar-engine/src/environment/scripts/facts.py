# Asked of the host's own interpreter, before anything foreign is there: what and where it is.
import glob, json, os, sys, sysconfig

base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
pip = None
try:
    import pip as found
    pip = os.path.dirname(os.path.abspath(found.__file__))
except ImportError:
    # Where pip is not installed, the wheel that venv would install it from can be run as it is.
    places = []
    try:
        import ensurepip
        places.append(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
    except ImportError:
        pass
    places += [sysconfig.get_config_var("WHEEL_PKG_DIR") or "", "/usr/share/python-wheels"]
    wheels = [w for place in places if place for w in glob.glob(os.path.join(place, "pip-*.whl"))]
    if wheels:
        pip = os.path.join(wheels[0], "pip")
json.dump({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "implementation": sys.implementation.name,
    "program": base,
    "prefixes": sorted({os.path.realpath(p) for p in (sys.base_prefix, sys.base_exec_prefix)}),
    "library": os.path.realpath(sysconfig.get_path("stdlib")),
    "pip": pip,
}, sys.stdout)
