# P33: lists its descriptors, looks through each that leads to a directory, and walks up from everywhere.
# There must be the three streams and nothing else, and `..` must end at its own root.
import os

for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        continue  # the one that lists
    kind = target.split(":")[0] if ":" in target else target
    print(f"descriptor {name}: {kind}")
    for up in "", "/..", "/../..":
        try:
            print(f"through {name}{up}: {' '.join(sorted(os.listdir(f'/proc/self/fd/{name}{up}')))}")
        except OSError:
            pass
root = os.stat("/")
above = os.stat("/workspace" + "/.." * 40)
print(f"above is the root: {(root.st_dev, root.st_ino) == (above.st_dev, above.st_ino)}")
print(f"root holds: {' '.join(sorted(os.listdir('/workspace' + '/..' * 40)))}")
