# P41: directories N deep, and names that would act on a terminal or a log. The depth must be
# refused, the names come back encoded, and everything be gone afterwards.
import os, sys

os.makedirs("out")
os.chdir("out")
for name in b"new\nline", b"escape\x1b[2J", b"not-utf8-\xff\xfe", b"back\\slash", "\u202egnp.txt".encode(), b"-rf":
    with open(name, "wb") as file:
        file.write(b"x")
os.makedirs("deep")
os.chdir("deep")
depth = 0
try:
    for depth in range(int(sys.argv[1])):
        os.mkdir("d")
        os.chdir("d")
except OSError as error:
    print(f"stopped by: {error.strerror}")
print(f"depth: {depth + 1}")
