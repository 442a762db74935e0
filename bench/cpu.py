"""A counter of the CPU time of everything that is measured.

As root with version 1 of control groups the driver runs in a group of its own, and the count is exact. With version 2 the
group that this process is in is counted, else the whole machine: then whatever else is at work is in the figures as well.
"""

import contextlib
import os
import pathlib

MACHINE = pathlib.Path("/proc/stat")


@contextlib.contextmanager
def counter():
    """The counter's file, and what the driver has to do before it starts, if anything."""
    group = own_group("cpuacct")
    if group and os.access(group, os.W_OK):
        group = group / f"belljar-bench.{os.getpid()}"
        group.mkdir()
        try:
            yield group / "cpuacct.usage", lambda: (group / "cgroup.procs").write_text("0")
        finally:
            remove(group)
        return
    group = own_group("")
    if group and (group / "cpu.stat").exists() and "usage_usec" in (group / "cpu.stat").read_text():
        yield group / "cpu.stat", None
    else:
        yield MACHINE, None


def own_group(controller):
    """The directory of the group that this process is in; version 2 is the one without a controller's name."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            for mount in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
                before, _, after = mount.partition(" - ")
                kind, _, options = after.split(" ", 2)
                if (kind, controller) == ("cgroup2", "") or (kind == "cgroup" and controller in options.split(",")):
                    directory = pathlib.Path(before.split()[4]) / path.lstrip("/")
                    # The group at the top of version 2 is the whole machine.
                    counts = directory.is_dir() and (controller or path != "/")
                    return directory if counts else None
    return None


def remove(group):
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
