# Runs inside of a sandbox: makes the virtual environment and installs the wheels that were fetched.
# Nothing of a package is executed here.
import json, os, subprocess, sys, venv

with open("job.json") as file:
    job = json.load(file)
tree, wheels = job["tree"], job["wheels"]
python = os.path.join(tree, "bin", "python")
# The directory itself stays: it is the mount.
venv.EnvBuilder(with_pip=False, symlinks=True).create(tree)
if wheels:
    with open("install.txt", "w") as file:
        file.writelines("%s==%s\n" % (wheel["name"], wheel["version"]) for wheel in wheels)
    common = ["install", "--no-index", "--find-links", "/wheels", "--no-deps", "-r", "install.txt"]
    if job["uv"]:
        command = [job["uv"], "pip"] + common + ["--python", python, "--link-mode", "copy", "--no-cache"]
    else:
        command = [python, job["pip"], "--isolated", "--disable-pip-version-check", "--no-input"] + common
        command += ["--ignore-installed", "--no-compile", "--no-cache-dir", "--no-warn-script-location"]
    code = subprocess.call(command)
    if code:
        sys.exit(code if code > 0 else 1)

from importlib import metadata

library = os.path.join(tree, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
found = {(d.metadata["Name"], d.version) for d in metadata.distributions(path=[library])}
with open("result.json", "w") as file:
    json.dump([{"name": name, "version": version} for name, version in sorted(found, key=str)], file)
if any(name.lower() == "matplotlib" for name, _ in found):
    with open(os.path.join(library, "_belljar_startup.py"), "w") as file:
        file.write(job["startup"])
    with open(os.path.join(library, "_belljar_startup.pth"), "w") as file:
        file.write("import _belljar_startup\n")
