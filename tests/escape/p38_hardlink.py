# P38: hard links to files that are not its own, into places it may write to: of the system, and of a
# writable mount. Must fail; a link to a file of its own works.
import errno, os

place = "/workspace/shared"
for name, source, target in (
    ("system", "/usr/bin/env", "/workspace/link"),
    ("system to mount", "/usr/bin/env", f"{place}/link"),
    ("foreign in mount", f"{place}/foreign", f"{place}/link"),
    ("own", f"{place}/own", f"{place}/link"),
):
    if name == "own":
        open(source, "w").close()
    try:
        os.link(source, target)
        print(f"{name}: ok")
    except OSError as error:
        print(f"{name}: {errno.errorcode[error.errno]}")
