# P03, in the kernel: System V semaphores take 2 MiB of kernel memory a call and show in no process.
# Must be refused, or counted as the sandbox's memory. Up to N MiB.
import ctypes, errno, sys

libc = ctypes.CDLL(None, use_errno=True)
IPC_PRIVATE, MOST_IN_A_SET = 0, 32000
for made in range(int(sys.argv[1]) // 2):
    if libc.semget(IPC_PRIVATE, MOST_IN_A_SET, 0o600) < 0:
        print(f"stopped by: {errno.errorcode[ctypes.get_errno()]}")
        break
else:
    print(f"held: {sys.argv[1]} MiB")
