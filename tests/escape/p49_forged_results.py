# P49: claims success wherever it can write: on its streams, on every descriptor it has or can open again
# through /proc, and in every file it may make. Then it fails. The real exit code must be kept.
import json, os, sys

claims = [
    json.dumps({"success": True, "outcome": {"status": "completed", "exit_code": 0}}).encode() + b"\n",
    b'exit_code: 0\n{"Ended":{"status":0,"cpu_micros":1}}\n',
    # An event of init in its own framing, should a channel be open.
    b"\x03\x00\x00\x00\x06\x00\x01",
]
reached = set()
places = [int(name) for name in os.listdir("/proc/self/fd")] + list(range(3, 256))
for place in places:
    for path in (None, f"/proc/self/fd/{place}", f"/proc/1/fd/{place}", f"/dev/fd/{place}"):
        try:
            target = os.dup(place) if path is None else os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            for claim in claims:
                os.write(target, claim)
            reached.add(os.fstat(target).st_ino)
        except OSError:
            pass
        os.close(target)
for name in "result.json", "exit_code", ".belljar", "outcome":
    with open(name, "wb") as file:
        file.write(claims[0])
os.write(2, f"reached {len(reached)}\n".encode())
os._exit(41)
