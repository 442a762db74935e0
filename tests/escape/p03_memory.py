# P03: takes memory of one KIND, up to N MiB, and says so if it got there. Must run out of memory first.
# private: pages of its own. shared: anonymous pages that count as nobody's own.
# tables: reads one byte of every 2 MiB, so that only the kernel's page tables grow.
import mmap, sys

MIB = 1 << 20
kind, wanted = sys.argv[1], int(sys.argv[2])
NORESERVE, NOHUGEPAGE = 0x4000, 15
held = []
try:
    if kind == "private":
        for _ in range(wanted):
            held.append(bytearray(b"x") * MIB)
    elif kind == "shared":
        held = mmap.mmap(-1, wanted * MIB)
        for at in range(0, wanted * MIB, 4096):
            held[at] = 1
    elif kind == "tables":
        # One page of table maps 2 MiB: 512 MiB of addresses cost 1 MiB.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        size = wanted * 512 * MIB
        held = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ)
        held.madvise(NOHUGEPAGE)
        for at in range(0, size, 2 * MIB):
            held[at]
    print(f"held: {wanted} MiB")
except (MemoryError, OSError) as error:
    print(f"stopped by: {type(error).__name__}")
