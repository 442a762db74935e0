"""Watches what the host has of memory, descriptors and processes while something runs in a sandbox beside it.

Used by tests/stress/run, tests/fuzz-boundary/run and tests/neighbours/run. As root it also sees the memory of BPF programs and the
kernel's log; as another user these are said to be missing, once.
"""

import os
import re
import statistics
import subprocess
import sys
import threading
import time

# Lines of the kernel's log that no guest may cause.
ALARMS = re.compile(r"WARNING:|BUG:|Oops|general protection fault[:,]|hung task|blocked for more than|soft lockup|rcu.*stall|"
                    r"refcount_t|KASAN|UBSAN|list_(add|del) corruption|Bad page|page allocation failure", re.I)
# Every measure, and what it may grow by beyond the memory limit before it is a finding. The margins are for a machine
# that does other things meanwhile.
MARGINS = {"unaccounted": 256 << 20, "slab": 48 << 20, "jit": 4 << 20, "files": 8000, "processes": 600, "engine": 48 << 20}


def read(path):
    with open(path) as file:
        return file.read()


def meminfo():
    rows = (line.split() for line in read("/proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows if len(row) == 3}


def unaccounted(memory):
    """Memory that belongs to no process, file, slab or table: the kernel's own pages."""
    named = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "Slab", "KernelStack", "PageTables", "Percpu")
    return memory["MemTotal"] - sum(memory.get(name, 0) for name in named)


def bpf_memory():
    """Bytes of BPF programs and their translations; None where that cannot be read."""
    try:
        lines = read("/proc/vmallocinfo").splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines if "bpf" in line)


def processes():
    return sum(name.isdigit() for name in os.listdir("/proc"))


def peak_resident(pid):
    """The largest size that a process had, in bytes; 0 when it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", read(f"/proc/{pid}/status"))
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def sample():
    memory = meminfo()
    return {
        "unaccounted": unaccounted(memory),
        "slab": memory["SUnreclaim"],
        "jit": bpf_memory() or 0,
        "files": int(read("/proc/sys/fs/file-nr").split()[0]),
        "processes": processes(),
    }


class KernelLog:
    """New lines of the kernel's log."""

    def __init__(self):
        self.lines = self._all()

    @staticmethod
    def _all():
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            return None
        return done.stdout.splitlines()

    def alarms(self):
        """Lines since the last look that no guest may cause."""
        before, now = self.lines, self._all()
        if before is None or now is None:
            return []
        self.lines = now
        new = now[now.index(before[-1]) + 1:] if before and before[-1] in now else now
        return [line for line in new if ALARMS.search(line)]


class Watch:
    """Samples the host in a thread, from `with` on to its end."""

    def __init__(self, engine=None, interval=0.1, on_sample=None):
        self.engine, self.interval, self.on_sample = engine, interval, on_sample
        self.over = threading.Event()
        self.before = sample()
        self.peak = dict(self.before, engine=0)
        self.unaccounted = []

    def __enter__(self):
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self):
        while not self.over.wait(self.interval):
            self.look()

    def look(self):
        now = sample()
        now["engine"] = peak_resident(self.engine) if self.engine else 0
        self.unaccounted.append(now["unaccounted"])
        for name, value in now.items():
            self.peak[name] = max(self.peak[name], value)
        if self.on_sample:
            self.on_sample(now)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.look()

    def growth(self):
        """How much each measure grew at most; of the engine its largest size.

        Unaccounted memory goes up and down by 200 MiB within seconds on a machine that compiles something, so it is the median:
        what was held for most of the time.
        """
        grown = {name: value - self.before.get(name, 0) for name, value in self.peak.items()}
        return dict(grown, unaccounted=statistics.median(self.unaccounted) - self.before["unaccounted"])


def beyond(growth, memory_limit):
    """The measures that grew beyond the memory limit and their margin."""
    # A shared mapping is a file of the host, and charged with 1.3 KiB at least.
    limits = {"unaccounted": memory_limit, "slab": memory_limit, "files": memory_limit // 1300}
    return [name for name, value in growth.items() if value > MARGINS[name] + limits.get(name, 0)]


def say_what_is_missing():
    if bpf_memory() is None:
        print("not tested here: memory of BPF programs: /proc/vmallocinfo needs root", file=sys.stderr)
    if KernelLog().lines is None:
        print("not tested here: the kernel's log: dmesg needs root here", file=sys.stderr)


class Neighbour:
    """A sandbox of another tenant that keeps running short programs."""

    def __init__(self, executable, environment):
        self.command = [executable, "run", "--tenant", "neighbour", "-c", "print(6 * 7)"]
        self.environment = environment
        self.times, self.failures = [], []
        self.over = threading.Event()

    def once(self):
        started = time.monotonic()
        done = subprocess.run(self.command, capture_output=True, text=True, env=self.environment, timeout=120)
        self.times.append(time.monotonic() - started)
        if done.stdout != "42\n":
            self.failures.append((done.returncode, (done.stdout + done.stderr)[-300:]))

    def _run(self):
        while not self.over.is_set():
            try:
                self.once()
            except subprocess.TimeoutExpired:
                self.failures.append((None, "no answer within 120 s"))
            self.over.wait(0.05)

    def __enter__(self):
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
