# P20: io_uring, whose operations no filter sees. Must be refused.
import ctypes, errno

libc = ctypes.CDLL(None, use_errno=True)
for name, number in ("io_uring_setup", 425), ("io_uring_enter", 426), ("io_uring_register", 427):
    result = libc.syscall(number, 1, ctypes.create_string_buffer(120), 0, 0, 0)
    print(f"{name}: {'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]}")
