# P39: makes hostile archives in DIR, on the host; nothing of it runs in a sandbox. Each must be refused
# before anything runs. `honest` is the one that must be taken.
import io, os, sys, tarfile, zipfile

place = sys.argv[1]


def tar(name, *entries, mode="w"):
    with tarfile.open(f"{place}/{name}", mode) as archive:
        for path, kind, rest in entries:
            entry = tarfile.TarInfo(path)
            entry.type = kind
            content = rest if kind == tarfile.REGTYPE else b""
            entry.size = len(content)
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = rest
            if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
                entry.devmajor, entry.devminor = rest
            archive.addfile(entry, io.BytesIO(content))


def zipped(name, path, content=b"x", attributes=0o100644):
    with zipfile.ZipFile(f"{place}/{name}", "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo(path)
        entry.external_attr = attributes << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)


FILE, LINK, HARD, CHAR, FIFO = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
tar("honest.tar", ("data/a.txt", FILE, b"honest"))
tar("up.tar", ("../up", FILE, b"x"))
tar("inner-up.tar", ("a/../../up", FILE, b"x"))
tar("absolute.tar", ("/tmp/absolute", FILE, b"x"))
tar("link-then-file.tar", ("way", LINK, "/tmp"), ("way/planted", FILE, b"x"))
tar("hardlink.tar", ("shadow", HARD, "/etc/shadow"))
tar("device.tar", ("mem", CHAR, (1, 1)))
tar("fifo.tar", ("pipe", FIFO, None))
tar("twice.tar", ("a", FILE, b"1"), ("a", FILE, b"2"))
tar("bomb.tar.gz", *[(f"zeroes-{number}", FILE, bytes(8 << 20)) for number in range(12)], mode="w:gz")
tar("many.tar", *[(f"f{number}", FILE, b"") for number in range(20_001)])
zipped("up.zip", "../up")
zipped("absolute.zip", "/tmp/absolute")
zipped("link.zip", "way", b"/etc/shadow", 0o120777)
zipped("device.zip", "mem", b"", 0o020644)
zipped("bomb.zip", "zeroes", bytes(96 << 20))
