"""What the figures were measured on."""

import os
import pathlib
import platform
import re
import subprocess


def describe(venv):
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        # What a distributor adds says nothing about speed.
        "kernel": re.match(r"[\d.]+", platform.release())[0].rstrip("."),
        "python": version([venv / "bin/python3", "--version"]),
        "node": version(["node", "--version"]),
        "load_before": round(os.getloadavg()[0], 2),
        "root": os.geteuid() == 0,
    }


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def version(command):
    try:
        return subprocess.check_output(command, text=True).strip().removeprefix("Python ")
    except OSError:
        return None
