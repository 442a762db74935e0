# P59: whole-file locks. Those on its own files work as ever, also when several processes wait for one; system files, which it shares
# with the host and with other sandboxes, cannot be locked.
import errno, fcntl, os, sys, tempfile, threading


def attempt(path, operation, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        fcntl.flock(fd, operation)
        return "0"
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.close(fd)


for path in ["/usr", "/usr/bin/env", "/dev/null"]:
    print(f"{path}: {attempt(path, fcntl.LOCK_EX | fcntl.LOCK_NB)}")
for path in [".", "/tmp", "/dev/shm"]:
    print(f"{path}: {attempt(path, fcntl.LOCK_EX)}")
first = open("lock", "w")
fcntl.flock(first, fcntl.LOCK_EX)
print(f"held by another: {attempt('lock', fcntl.LOCK_SH | fcntl.LOCK_NB)}")
print(f"odd: {attempt('lock', 77)}")
# Four processes and a thread wait in turn, and none of them is lost.
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        with open("lock", "r+") as file, open("count", "a+") as count:
            fcntl.flock(file, fcntl.LOCK_EX)
            count.write("x")
            count.flush()
        os._exit(0)
    children.append(child)
result = []
thread = threading.Thread(target=lambda: result.append(attempt("lock", fcntl.LOCK_EX)))
thread.start()
fcntl.flock(first, fcntl.LOCK_UN)
for child in children:
    os.waitpid(child, 0)
thread.join()
print(f"waited: {len(open('count').read())} {result[0]}")
