# P09: an output file of 1 TiB that takes no room. Must be refused with EFBIG; should one exist all the
# same, it must not be taken out.
import errno

with open("big", "wb") as file:
    try:
        file.truncate(1 << 40)
        print("truncate: ok")
    except OSError as error:
        print(f"truncate: {errno.errorcode[error.errno]}")
