# P59: takes record locks on every other byte of a file, up to N. The kernel counts them for nobody, so the sandbox must. Then uses
# them as a program does, and asks for the locks that are refused.
import errno, fcntl, os, sqlite3, struct, sys


def word(error):
    return errno.errorcode.get(error.errno, error.errno)


def take(fd, wanted):
    for taken in range(wanted):
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * taken)
        except OSError as error:
            return taken, word(error)
    return wanted, "none"


fd = os.open("locked", os.O_RDWR | os.O_CREAT)
taken, stopped = take(fd, int(sys.argv[1]))
print(f"taken: {taken}")
print(f"stopped by: {stopped}")
# Another process has no more.
reader, writer = os.pipe()
if os.fork() == 0:
    other = os.open("other", os.O_RDWR | os.O_CREAT)
    os.write(writer, f"{take(other, int(sys.argv[1]))[0]}".encode())
    os._exit(0)
os.wait()
print(f"taken by a child: {os.read(reader, 100).decode()}")
os.close(fd)
# Closing gives them back.
fd = os.open("locked", os.O_RDWR)
print(f"taken after closing: {take(fd, 100)[0]}")
os.close(fd)
F_OFD_SETLK = 37
try:
    with open("locked", "r+") as file:
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
    print("F_OFD_SETLK: none")
except OSError as error:
    print(f"F_OFD_SETLK: {word(error)}")
with sqlite3.connect("data.db") as data:
    data.execute("create table t (n)")
    for n in range(50):
        data.execute("insert into t values (?)", (n,))
        data.commit()
    print(f"sqlite: {data.execute('select count(*) from t').fetchone()[0]}")
