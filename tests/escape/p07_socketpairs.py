# P07: fills the buffers of as many local sockets as it may open; none of it shows in a process. Must run
# out of memory where the kernel counts it, and of descriptors otherwise.
import errno, socket

total, pairs, stopped = 0, [], "none"
try:
    for _ in range(2000):
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pairs.append(pair)
        for end in pair:
            end.setblocking(False)
            try:
                while True:
                    total += end.send(b"x" * 32768)
            except BlockingIOError:
                pass
except OSError as error:
    stopped = errno.errorcode[error.errno]
print(f"total: {total >> 20}")
print(f"stopped by: {stopped}")
