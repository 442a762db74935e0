"""A small world to try a wall in: a network of its own in which every address is local, a resolver, and servers.

    unshare -nm python3 -I stage.py SEEN -- COMMAND...

Runs COMMAND in it, and writes to SEEN, as JSON lines, what reached the servers.
"""
import ctypes, fcntl, hashlib, io, json, os, resource, socket, ssl, struct, subprocess, sys, tarfile, tempfile, threading, zipfile

seen_path, command = sys.argv[1], sys.argv[sys.argv.index("--") + 1:]
seen, lock = open(seen_path, "a"), threading.Lock()

# Names and their addresses; each lookup takes the next list, and the last one stays. A text is another name for it.
ZONE = {
    "api.test": [["203.0.114.10"]],
    "other.test": [["203.0.114.20"]],
    "a.wild.test": [["203.0.114.30"]],
    "six.test": [["2a00:1450::10"]],
    "private.test": [["10.1.2.3"]],
    "meta.test": [["169.254.169.254"]],
    "meta6.test": [["fd00:ec2::254"]],
    "loop.test": [["127.0.0.1"]],
    "nat64.test": [["64:ff9b::7f00:1"]],
    "mixed.test": [["203.0.114.10", "10.1.2.3"]],
    "rebind.test": [["203.0.114.10"], ["127.0.0.1"]],
    "alias.test": "private.test",
    "inside.test": [["10.1.2.3"]],
    "own.test": [["203.0.114.5"]],
    "index.test": [["203.0.114.50"]],
    "gone.test.corp.test": [["203.0.114.66"]],
    "vault.test": [["203.0.114.40"]],
    "clear.test": [["203.0.114.41"]],
    "stranger.test": [["203.0.114.42"]],
}


def note(**what):
    with lock:
        seen.write(json.dumps(what) + "\n")
        seen.flush()


def prepare():
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    up = struct.pack("16sH14x", b"lo", 1 | 64)
    fcntl.ioctl(control, 0x8914, up)
    # One address is this machine's own.
    address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("203.0.114.5"))
    fcntl.ioctl(control, 0x8916, address)
    mask = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("255.255.255.255"))
    fcntl.ioctl(control, 0x891C, mask)
    # local default dev lo
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    for family in (socket.AF_INET, socket.AF_INET6):
        route = struct.pack("BBBBBBBBI", family, 0, 0, 0, 255, 3, 254, 2, 0) + struct.pack("HHi", 8, 4, 1)
        link.send(struct.pack("IHHII", 16 + len(route), 24, 0x1 | 0x4 | 0x400 | 0x100, 1, 0) + route)
        assert struct.unpack_from("i", link.recv(512), 16)[0] == 0
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) == 0
    for place, text in (("/etc/resolv.conf", "nameserver 127.0.0.1\nsearch corp.test\n"), ("/etc/hosts", "127.0.0.1 localhost\n"),
                        ("/etc/nsswitch.conf", "hosts: files dns\n")):
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        assert libc.mount(file.name.encode(), place.encode(), None, 0x1000, None) == 0
        os.unlink(file.name)


asked = {}


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    name, (kind, _) = ".".join(labels).lower(), struct.unpack_from("!HH", query, at + 1)
    note(asked=name)
    question = query[12:at + 5]
    found, alias = ZONE.get(name), b""
    if isinstance(found, str):
        target = b"".join(bytes([len(part)]) + part.encode() for part in found.split(".")) + b"\0"
        alias = b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 0, len(target)) + target
        found = ZONE[found]
    if found is None:
        return query[:2] + b"\x81\x83" + struct.pack("!HHHH", 1, 0, 0, 0) + question
    turn = asked.setdefault((name, kind), 0)
    asked[name, kind] += 1
    records, family = [], {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    owner = b"\xc0\x0c" if not alias else alias[12:]
    for address in found[min(turn, len(found) - 1)]:
        if family and (":" in address) == (family == socket.AF_INET6):
            packed = socket.inet_pton(family, address)
            records.append(owner + struct.pack("!HHIH", kind, 1, 0, len(packed)) + packed)
    count = len(records) + bool(alias)
    return query[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, count, 0, 0) + question + alias + b"".join(records)


def resolve():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        query, whom = server.recvfrom(512)
        server.sendto(answer(query), whom)


def serve(port, handle, context=None):
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("::", port))
    server.listen(1024)

    def one(peer):
        address = peer.getsockname()[0].removeprefix("::ffff:")
        name = [None]
        try:
            if context:
                peer = context(peer, name)
            handle(peer, port, address, name[0])
        except (OSError, ValueError) as error:
            note(port=port, address=address, name=name[0], error=type(error).__name__)
        finally:
            peer.close()

    def accept():
        while True:
            peer, _ = server.accept()
            threading.Thread(target=one, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def packages():
    """What an index of packages answers: one for pip and one for npm."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "tiny_thing-1.0.dist-info/"
        archive.writestr("tiny_thing.py", "WORD = 'from the index'\n")
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: stage\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", f"tiny_thing.py,,\n{info}METADATA,,\n{info}WHEEL,,\n{info}RECORD,,\n")
    tarball = io.BytesIO()
    with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
        for path, text in (("package/package.json", '{"name": "tiny-thing", "version": "1.0.0", "main": "index.js"}'),
                           ("package/index.js", "module.exports = 'from the index';\n")):
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    wheel, tarball = wheel.getvalue(), tarball.getvalue()
    name = "tiny_thing-1.0-py3-none-any.whl"
    version = {"name": "tiny-thing", "version": "1.0.0", "dist": {
        "tarball": "http://index.test/tiny-thing.tgz", "shasum": hashlib.sha1(tarball).hexdigest()}}
    about = {"name": "tiny-thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    link = f'<a href="/{name}#sha256={hashlib.sha256(wheel).hexdigest()}">{name}</a>'
    return {
        b"/simple/tiny-thing/": f"<!DOCTYPE html><html><body>{link}</body></html>".encode(),
        f"/{name}".encode(): wheel,
        b"/tiny-thing": json.dumps(about).encode(),
        b"/tiny-thing.tgz": tarball,
    }


PACKAGES = packages()


def http(peer, port, address, name):
    """Answers every request that it can make out with what it saw; stays open."""
    stream = peer.makefile("rb")
    while line := stream.readline():
        method, target = line.split()[:2]
        headers = {}
        while (header := stream.readline()).strip():
            key, value = header.decode("latin-1").split(":", 1)
            headers[key.lower()] = value.strip()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(stream.readline(), 16):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            body = stream.read(int(headers.get("content-length", 0)))
        told = dict(port=port, address=address, name=name, method=method.decode(), target=target.decode("latin-1"),
                    host=headers.get("host"), body=body.decode("latin-1")[:100])
        form = [headers.get(name) for name in ("accept-encoding", "accept_encoding", "te", "a-im", "sec-websocket-extensions")]
        note(authorization=headers.get("authorization"), key=headers.get("x-key"), form=form, **told)
        if target.startswith(b"/to/"):
            peer.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://" + target[4:] + b"/\r\nContent-Length: 0\r\n\r\n")
        elif headers.get("upgrade") == "websocket":
            peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
            while data := peer.recv(4096):
                peer.sendall(data)
            return
        elif target in PACKAGES:
            text = PACKAGES[target]
            kind = b"text/html" if text.startswith(b"<") else b"application/json" if text.startswith(b"{") else b"application/octet-stream"
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(text), text))
        elif target == b"/say":
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        elif target == b"/echo":
            text = json.dumps(headers).encode()
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        elif target.startswith(b"/bytes/"):
            size = int(target[7:])
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            piece = bytes(1 << 20)
            while size > 0:
                size -= peer.send(piece[:size])
        else:
            text = json.dumps(told).encode()
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


def careless(peer, port, address, name):
    """Answers every request and reads nothing of what it brings: that is the next request, unless this was the last one."""
    stream = peer.makefile("rb")
    while line := stream.readline():
        method, target = line.split()[:2]
        headers = {}
        while (header := stream.readline()).strip():
            key, value = header.decode("latin-1").split(":", 1)
            headers[key.lower()] = value.strip()
        note(port=port, address=address, name=name, method=method.decode(), target=target.decode("latin-1"), host=headers.get("host"),
             expect=headers.get("expect"))
        ends = headers.get("connection", "").lower() == "close"
        peer.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\n\r\n{}" % (b"Connection: close\r\n" if ends else b""))
        if ends:
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
            return


def echo(peer, port, address, name):
    """Speaks first, then says everything again."""
    note(port=port, address=address)
    peer.sendall(b"hello\n")
    while data := peer.recv(65536):
        peer.sendall(data)


def tls():
    """A certificate for some of the names, by an authority that the command trusts."""
    with tempfile.TemporaryDirectory() as place:
        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=place)

        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=stage", "-keyout", "ca.key", "-out", "ca.pem")
        openssl("req", "-new", *key, "-subj", "/CN=test", "-keyout", "key.pem", "-out", "request.pem")
        with open(os.path.join(place, "names"), "w") as file:
            file.write("subjectAltName=DNS:api.test,DNS:vault.test")
        openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "names", "-out", "cert.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(place, "cert.pem"), os.path.join(place, "key.pem"))
        with open(os.path.join(place, "ca.pem")) as file, open(seen_path + ".ca", "w") as trusted:
            trusted.write(file.read())
        os.environ["SSL_CERT_FILE"] = seen_path + ".ca"

    def wrap(peer, name):
        context.sni_callback = lambda _socket, asked, _context: name.__setitem__(0, asked)
        return context.wrap_socket(peer, server_side=True)

    return wrap


prepare()
threading.Thread(target=resolve, daemon=True).start()
for port in (80, 8080, 5000):
    serve(port, http)
context = tls()
serve(443, http, context)
serve(5001, careless)
serve(5002, careless, context)
serve(7, echo)
# As many programs start: with fewer descriptors than they could have.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
code = subprocess.run(command, preexec_fn=few).returncode
note(peak=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
