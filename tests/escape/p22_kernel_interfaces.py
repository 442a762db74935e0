# P22: interfaces that kernel exploits are made of. Each must be refused with EPERM.
import ctypes, errno

libc = ctypes.CDLL(None, use_errno=True)
USER_MODE_ONLY = 1
attribute = ctypes.create_string_buffer(128)
attribute[4] = 112  # perf_event_attr.size
attribute[40] = 0x60  # exclude_kernel, exclude_hv
attempts = {
    "bpf": (321, 0, ctypes.create_string_buffer(72), 72),
    "perf_event_open": (298, attribute, 0, -1, -1, 0),
    "userfaultfd": (323, USER_MODE_ONLY),
}
for name, arguments in attempts.items():
    result = libc.syscall(*arguments)
    print(f"{name}: {'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]}")
