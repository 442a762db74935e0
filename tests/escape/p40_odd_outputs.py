# P40: a FIFO, a socket, a file that cannot be read and a directory of them where files are wanted.
# Taking them out must neither hang nor succeed.
import os, socket

os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.makedirs("dir")
os.mkfifo("dir/fifo")
with open("dir/honest", "w") as file:
    file.write("honest")
os.symlink("/dev/zero", "zero")
