# P35: searches its variables, every process's files and all of its own memory for a word of the host's.
# The word comes in two parts, so that the search does not find itself.
import os, sys

canary = "".join(reversed(sys.argv[1].split(","))).encode()
found = []
if any(canary in value.encode() or canary in name.encode() for name, value in os.environ.items()):
    found.append("environment")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in "environ", "cmdline", "comm", "mountinfo", "cgroup":
        try:
            if canary in open(f"/proc/{pid}/{name}", "rb").read():
                found.append(f"{pid}/{name}")
        except OSError:
            pass
# The search holds the word itself: in this object, and in copies that Python made of it. So only memory
# that was there before Python is searched: what the kernel put on the stack, and what is mapped of files.
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        fields = line.split()
        place = fields[5] if len(fields) > 5 else ""
        start, end = (int(part, 16) for part in fields[0].split("-"))
        if fields[1][0] == "r" and (place == "[stack]" or place.startswith("/")):
            memory.seek(start)
            if canary in memory.read(end - start):
                found.append(f"memory of {place}")
print(f"found: {' '.join(found) or 'nothing'}")
