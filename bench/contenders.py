"""Who is measured: what is there, what can be installed, and why something is missing.

Everyone runs the same interpreter, that of an environment of the bench's own: in /var/lib/belljar-bench for root, else
below target/bench, or where BELLJAR_BENCH_VENV says.
"""

import os
import pathlib
import shutil
import subprocess
import sys

SUM = "print(1+1)"
IMAGE = "python:3-slim"


def find(belljar, bench, venv):
    """Contenders in the order of the tables, and why others are not among them."""
    found, missing = [], []
    python = str(venv / "bin/python3")
    real = os.path.realpath(python)
    belljar = str(belljar)

    def add(id, name, wish, load=False):
        wish = {"id": id, "prints": "2\n", "pause_ms": 5, **wish}
        why = refusal(wish, venv)
        if why:
            missing.append({"name": name, "why": why})
        else:
            found.append({"name": name, "wish": wish, "load": load, "origin": wish.pop("origin", None)})

    add("bare", "python3 -I -S -c pass", {**command(python, "-I", "-S", "-c", "pass"), "prints": ""}, load=True)
    add("bare-site", "python3 -c pass", {**command(python, "-c", "pass"), "prints": ""})
    add("bubblewrap", "bubblewrap, python3 -I -S", bubblewrap(real), load=True)
    add("sandlock", "sandlock, python3 -I -S", sandlock(venv, bench, real), load=True)
    docker = command("docker", "run", "--rm", "--network", "none", IMAGE, "python3", "-I", "-S", "-c", SUM)
    add("docker", f"docker run {IMAGE}", docker, load=True)
    inside = ("--mount", f"{prefix(real)}:{prefix(real)}:ro") if private(real) else ()
    add("exec", "belljar exec, python3 -I -S", command(belljar, "exec", *inside, "--", real, "-I", "-S", "-c", SUM))
    add("cold", "belljar run", command(belljar, "run", "-c", SUM), load=True)
    add("empty", "belljar, pool empty", engine("python", SUM, "forked on demand from a warm interpreter", "empty"),
        load=True)
    add("warm", "belljar, warm", engine("python", SUM, "forked ahead from a warm interpreter"), load=True)

    numpy = "import numpy; print(numpy.arange(3)[2])"
    add("bare-numpy", "python3, numpy", command(python, "-c", numpy))
    add("cold-numpy", "belljar run, numpy", command(belljar, "run", "-c", numpy))
    add("numpy", "belljar, warm, numpy",
        engine("python", numpy, "forked ahead from a warm interpreter", preload=["numpy"]), load=True)

    node = "console.log(1+1)"
    add("bare-node", "node", command("node", "-e", node))
    add("cold-node", "belljar run, node", command(belljar, "run", "--lang", "javascript", "-c", node))
    # The next one is started when this one is taken, and node takes its time.
    add("node", "belljar, warm, node", {**engine("javascript", node, "interpreter started ahead"), "pause_ms": 80},
        load=True)

    add("bare-bash", "bash", command("bash", "-c", "echo $((1+1))"))
    add("cold-bash", "belljar run, bash", command(belljar, "run", "--lang", "bash", "-c", "echo $((1+1))"))
    add("bash", "belljar, shell ahead, bash", engine("bash", "echo $((1+1))", "shell made ahead"), load=True)
    return found, missing


def command(*argv):
    return {"kind": "command", "argv": list(argv)}


def engine(language, code, origin, pool="stocked", preload=()):
    return {"kind": "engine", "language": language, "code": code, "origin": origin, "pool": pool,
            "preload": list(preload)}


def bubblewrap(real):
    """The namespaces that belljar has as well; bubblewrap brings no filter, no limits and no groups."""
    if not shutil.which("bwrap") and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "-q", "install", "-y", "--no-install-recommends", "bubblewrap"]
        subprocess.run(install, stdout=sys.stderr, check=False)
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
    for link in ("lib", "lib64", "bin"):
        argv += ["--symlink", f"usr/{link}", f"/{link}"]
    if private(real):
        argv += ["--ro-bind", prefix(real), prefix(real)]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    return command(*argv, real, "-I", "-S", "-c", SUM)


def sandlock(venv, bench, real):
    pip = [venv / "bin/pip", "--quiet", "--disable-pip-version-check", "install", "sandlock"]
    subprocess.run(pip, stdout=sys.stderr, check=False)
    argv = [str(venv / "bin/python3"), str(bench / "sandlock_server.py"), real, "-I", "-S", "-c", SUM]
    return {"kind": "server", "argv": argv}


def environment(target):
    """A Python with numpy, of the system's interpreter where there is one."""
    # Not below /tmp: what a guest has of its own hides that, and so nothing can be made ahead.
    place = pathlib.Path("/var/lib/belljar-bench") if os.geteuid() == 0 else target / "bench"
    venv = pathlib.Path(os.environ.get("BELLJAR_BENCH_VENV", place / "venv"))
    if not list(venv.glob("lib/python3*/site-packages/numpy/__init__.py")):
        base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        subprocess.run([base, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin/pip", "--quiet", "--disable-pip-version-check", "install", "numpy"]
        subprocess.run(pip, stdout=sys.stderr, check=False)
    return venv


def prefix(real):
    return str(pathlib.Path(real).parent.parent)


def private(real):
    return not prefix(real).startswith("/usr")


def refusal(wish, venv):
    """Why this one cannot run here, from trying it; None if it can."""
    if wish["id"] == "docker":
        up = trial(["docker", "info"])
        if up:
            return f"no engine is up: {up}"
        if trial(["docker", "image", "inspect", IMAGE]):
            subprocess.run(["docker", "pull", "--quiet", IMAGE], stdout=sys.stderr, check=False)
    if wish["kind"] == "engine":
        program = {"javascript": "node"}.get(wish["language"], "python3")
        if not shutil.which(program):
            return f"there is no {program}"
        if wish["preload"] and (why := trial([venv / "bin/python3", "-c", "import " + ", ".join(wish["preload"])])):
            return why
        return None
    if wish["kind"] == "server":
        return trial(wish["argv"], given="1 0\n")
    return trial(wish["argv"], prints=wish["prints"], path=venv / "bin")


def trial(argv, prints=None, given="", path=None):
    """What went wrong with a command, in one line."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"} if path else None
    try:
        done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=60, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode or (prints is not None and done.stdout != prints):
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return f"exit code {done.returncode}" + (f", {said[-1]}" if said else "")
    return None
