# P32: writes to the programs that run: its own interpreter, init's (CVE-2019-5736), and one that the
# guest owns in a mount. Each way must be refused.
import errno, os

interpreter = os.readlink("/proc/self/exe")
paths = ["/proc/self/exe", interpreter, "/proc/1/exe", "/usr/bin/env", "/usr/lib/os-release", "/workspace/shared/tool"]
for path in paths:
    for word, flags in ("write", os.O_WRONLY), ("append", os.O_RDWR | os.O_APPEND), ("truncate", os.O_WRONLY | os.O_TRUNC):
        try:
            os.close(os.open(path, flags))
            print(f"{word} {path}: ok")
        except OSError as error:
            print(f"{word} {path}: {errno.errorcode[error.errno]}")
for word, change in {
    "replace": lambda: os.rename("/workspace/main.py", interpreter),
    "unlink": lambda: os.unlink("/usr/bin/env"),
    "create": lambda: os.close(os.open("/usr/bin/p32", os.O_CREAT | os.O_WRONLY)),
    "chmod": lambda: os.chmod("/usr/bin/env", 0o777),
    "in root": lambda: os.mkdir("/p32"),
    "in etc": lambda: os.close(os.open("/etc/passwd", os.O_WRONLY)),
}.items():
    try:
        change()
        print(f"{word}: ok")
    except OSError as error:
        print(f"{word}: {errno.errorcode[error.errno]}")
