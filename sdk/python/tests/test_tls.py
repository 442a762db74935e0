"""A service behind TLS, as those are that others can reach."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Iterator
from urllib.parse import urlsplit

import pytest
from conftest import POLICY

import belljar

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="not tested here: TLS: openssl is not here")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        writer.close()


def _proxy(
    context: ssl.SSLContext, to: str, ready: "threading.Event", found: "list[int]", loop: asyncio.AbstractEventLoop
) -> None:
    target = urlsplit(to)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(_pump(reader, inner[1]), _pump(inner[0], writer))

    async def start() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()

    asyncio.set_event_loop(loop)
    loop.run_until_complete(start())
    loop.run_forever()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, Path]":
    directory = tmp_path_factory.mktemp("tls")
    key, found = directory / "key.pem", directory / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=belljar tests"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(found)]
    subprocess.run(command, check=True, capture_output=True)
    return key, found


@pytest.fixture
def url(certificate: "tuple[Path, Path]", service: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    key, found = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(found))
    ready, ports, loop = threading.Event(), [], asyncio.new_event_loop()
    thread = threading.Thread(target=_proxy, args=(context, service, ready, ports, loop), daemon=True)
    thread.start()
    assert ready.wait(20)
    with belljar.connect(service, default=False) as plain:
        plain.call("PUT", "/v1/policies/tests", POLICY)
    yield f"https://127.0.0.1:{ports[0]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)


def test_whoever_waits(url: str) -> None:
    """Tools answer on threads of their own while another thread reads."""
    with belljar.connect(url, policy="tests", default=False) as client:
        assert belljar.run("1 + 1", client=client).value == 2
        with belljar.Sandbox(client=client, tools={"large": lambda n: "x" * n}) as sandbox:
            code = "import asyncio\n[len(x) for x in await asyncio.gather(*(large(2 << 20) for _ in range(4)))]"
            assert sandbox.run(code).check().value == [2 << 20] * 4
            sandbox.files.write("a", b"y" * 1_000_000)
            assert len(sandbox.files.read("a")) == 1_000_000
            assert sandbox.run("print('z' * 300_000)").stdout == "z" * 300_000 + "\n"


async def test_whoever_awaits(url: str) -> None:
    with belljar.connect(url, policy="tests", default=False) as client:
        assert (await belljar.run_async("1 + 1", client=client)).value == 2
        async with belljar.AsyncSandbox(client=client, tools={"large": lambda n: "x" * n}) as sandbox:
            code = "import asyncio\n[len(x) for x in await asyncio.gather(*(large(2 << 20) for _ in range(4)))]"
            assert (await sandbox.run(code)).check().value == [2 << 20] * 4


def test_a_certificate_that_nobody_vouches_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(belljar.EngineUnavailable, match="certificate"):
        belljar.run("1", client=belljar.connect(url, default=False))
