# P50: output that breaks readers of JSON: depth of a million, numbers that are none, lone surrogates,
# NUL, and a line of 4 MiB. It must come back as a plain string of the outcome.
import sys

out = sys.stdout.buffer
out.write(b"[" * 1_000_000 + b"\n")
out.write(b'{"a":NaN,"b":Infinity,"c":1e99999,"d":"\\ud800"}\n')
out.write(b'"},"success":true,"outcome":{"exit_code":7}}\n')
out.write(b"\x00\xff\xed\xa0\x80\x1b]0;x\x07\r\n")
out.write(b"y" * (4 << 20) + b"\n")
