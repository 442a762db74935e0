# P55: asks for one filter of every kind. Each would take memory from a budget of the whole machine, and free it through
# a work queue of the whole machine, so each must be refused. One of each kind is enough to see that, and no more is safe.
import ctypes, errno, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
SECCOMP = {"x86_64": 317, "aarch64": 277}[__import__("os").uname().machine]
RETURN_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0xFFFF))
ALLOW = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))


def program(code):
    return ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))


def said(name, result):
    number = ctypes.get_errno() if result < 0 else 0
    print(f"{name}: {errno.errorcode.get(number, number)}")


def option(name, number, value, size):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        said(name, libc.setsockopt(s.fileno(), socket.SOL_SOCKET, number, value, size))


filter_of_all = program(RETURN_ALL)
option("SO_ATTACH_FILTER", 26, filter_of_all, 16)
option("SO_ATTACH_BPF", 50, ctypes.byref(ctypes.c_int(0)), 4)
option("SO_ATTACH_REUSEPORT_CBPF", 51, filter_of_all, 16)
option("SO_ATTACH_REUSEPORT_EBPF", 52, ctypes.byref(ctypes.c_int(0)), 4)
allow = program(ALLOW)
said("seccomp", libc.syscall(SECCOMP, 1, 0, allow))
said("seccomp with a listener", libc.syscall(SECCOMP, 1, 8, allow))
said("seccomp of all threads", libc.syscall(SECCOMP, 1, 1, allow))
said("PR_SET_SECCOMP", libc.prctl(22, 2, allow, 0, 0))
