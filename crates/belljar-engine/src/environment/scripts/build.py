# Runs inside of a sandbox: builds wheels of source archives. Their own code runs here; it can write to
# the directory of finished wheels and to nothing else of the host.
import json, os, subprocess, sys

with open("job.json") as file:
    job = json.load(file)
command = [sys.executable, job["pip"], "--isolated", "--disable-pip-version-check", "--no-input", "wheel"]
command += ["--no-deps", "--no-index", "--no-cache-dir", "--wheel-dir", "/local", "--find-links", "/tools"]
if job["index"]:
    command += ["--find-links", "/index"]
code = subprocess.call(command + [os.path.join("/sources", name) for name in job["sources"]])
sys.exit(code if code >= 0 else 1)
