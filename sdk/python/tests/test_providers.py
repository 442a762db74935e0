"""Which wall it runs behind: `provider`, `image` and `approved` wherever something is run (R35, R36, R37)."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, Tuple, Type

import pytest

import belljar
from belljar.sandboxes import DockerSandbox, ProcessSandbox, SandboxConfig, SandboxManager

TRUSTED: Dict[str, Any] = {"provider": "venv", "approved": True}
WRONG: Tuple[Tuple[Dict[str, Any], Type[Exception], str], ...] = (
    ({"provider": "moat"}, ValueError, "provider must be one of native, docker, gvisor, venv, not 'moat'"),
    ({"provider": 3}, ValueError, "provider"),
    ({"image": ""}, ValueError, "image is empty"),
    ({"image": "a b"}, ValueError, "is no image's name"),
    ({"image": "--privileged"}, ValueError, "is no image's name"),
    ({"image": 3}, TypeError, "image must be text"),
    ({"image": "python:3", "provider": "native"}, ValueError, "image is for the provider docker, not for native"),
    ({"approved": "yes"}, TypeError, "approved must be True or False"),
)


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Iterator[belljar.Client]:
    """An engine that reaches Docker or Podman, where the tests were told of one, and its image."""
    socket = os.environ.get("BELLJAR_TEST_DOCKER")
    if not socket:
        pytest.skip("not tested here: sandboxes in containers; BELLJAR_TEST_DOCKER names no socket")
    monkeypatch.setenv("DOCKER_HOST", socket if "://" in socket else f"unix://{socket}")
    with belljar.connect(default=False) as client:
        yield client


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> Iterator[belljar.Client]:
    """An engine that finds nothing where Docker would listen."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with belljar.connect(default=False) as client:
        yield client


IMAGE = os.environ.get("BELLJAR_TEST_IMAGE", "python:3.11-slim")


@pytest.mark.parametrize(("options", "kind", "match"), WRONG)
def test_what_cannot_be_meant_is_found_before_anything_starts(
    options: Dict[str, Any], kind: Type[Exception], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_BIN", "/nowhere/belljar")
    with pytest.raises(kind, match=match):
        belljar.run("1", **options)
    with pytest.raises(kind, match=match):
        belljar.Sandbox(**options)
    with pytest.raises(kind, match=match):
        belljar.AsyncSandbox(**options)
    with pytest.raises(kind, match=match):
        list(belljar.map(["1"], **options))


async def test_without_a_wall_everything_takes_a_yes(engine: belljar.Client) -> None:
    """R37."""
    for options in ({"provider": "venv"}, {"provider": "venv", "approved": False}):
        with pytest.raises(belljar.Denied) as refused:
            belljar.run("1", client=engine, **options)
        assert refused.value.code == "approval_required" and refused.value.fix
        with pytest.raises(belljar.Denied), belljar.Sandbox(client=engine, **options) as sandbox:
            sandbox.run("1")


async def test_trusted_code_runs_everywhere(engine: belljar.Client) -> None:
    results = [
        belljar.run("6 * 7", client=engine, **TRUSTED),
        await belljar.run_async("6 * 7", client=engine, **TRUSTED),
        *belljar.map(["6 * 7"], client=engine, **TRUSTED),
        belljar.run("f(6)", globals={"f": lambda x: x * 7}, client=engine, **TRUSTED),
    ]
    with belljar.Sandbox(client=engine, **TRUSTED) as sandbox:
        sandbox.run("x = 6")
        results.append(sandbox.run("x * 7"))
    async with belljar.AsyncSandbox(client=engine, **TRUSTED) as other:
        results.append(await other.run("6 * 7"))
    for result in results:
        assert result.value == 42, result
        assert (result.receipt.provider, result.receipt.isolation) == ("venv", "none")


def test_trust_alone_takes_no_wall_away(engine: belljar.Client) -> None:
    assert belljar.run("1", approved=True, client=engine).receipt.isolation == "process"


def test_a_service_asks_its_own_approvers(service: str) -> None:
    with belljar.connect(service, default=False) as client:
        with pytest.raises(belljar.BadRequest, match="approved"):
            belljar.run("1", client=client, **TRUSTED)
        with pytest.raises(belljar.Denied) as refused:
            belljar.run("1", provider="venv", client=client)
        assert refused.value.code == "provider_not_allowed"


def test_a_wall_that_is_not_there_is_never_replaced(no_docker: belljar.Client) -> None:
    """R36."""
    for options in ({"provider": "docker"}, {"image": "python:3.12"}, {"provider": "docker", "image": "python:3.12"}):
        with pytest.raises(belljar.Denied) as refused:
            belljar.run("1", client=no_docker, **options)
        assert refused.value.code == "isolation_unavailable" and "docker: " in str(refused.value)


def test_a_manager_replaces_only_what_is_preferred(no_docker: belljar.Client) -> None:
    """R35: one kind is a requirement, several are a preference."""
    with SandboxManager(client=no_docker) as manager:
        with pytest.raises(belljar.Denied) as refused:
            manager.create_sandbox("required", kind="docker", image="python:3.12")
        assert refused.value.code == "isolation_unavailable" and manager.list_sandboxes() == []
        for kinds in (["docker"], ("docker", "docker")):
            with pytest.raises(belljar.Denied):
                manager.create_sandbox("required", kind=kinds)
        made = manager.create_sandbox("preferred", kind=("docker", "process"), image="python:3.12")
        assert type(made) is ProcessSandbox and made.execute("echo made").receipt.provider == "native"
        for kind in ([], ("docker", "vm"), 3, None):
            with pytest.raises(ValueError, match="kind"):
                manager.create_sandbox("wrong", kind=kind)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="image"):
            manager.create_sandbox("wrong", kind=("docker", "process"), image="a b")
        with pytest.raises(TypeError, match="image"):
            manager.create_sandbox("wrong", kind="process", image="python:3.12")
        assert manager.list_sandboxes() == ["preferred"]


def test_a_manager_replaces_nothing_for_another_reason(engine: belljar.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """R35: a denial that has nothing to do with what is there stays one."""
    refusal = {"code": "image_not_allowed", "rule": "image", "value": "x", "message": "no", "fix": "yes"}

    def setup(_: DockerSandbox) -> None:
        raise belljar.Denied(refusal)

    monkeypatch.setattr(DockerSandbox, "setup", setup)
    with SandboxManager(client=engine) as manager:
        with pytest.raises(belljar.Denied, match="no"):
            manager.create_sandbox("one", kind=("docker", "process"))
        assert manager.list_sandboxes() == []


def test_a_container_is_asked_for_by_name_and_image(no_docker: belljar.Client) -> None:
    """R33, R36: with a policy that allows nothing else."""
    sandbox = DockerSandbox(SandboxConfig(), image="python:3.9", client=no_docker)
    policy = sandbox._policy()
    assert (policy["isolation_level"], policy["providers"]) == ("container", ["docker"])
    assert policy["allowed_images"] == ["python:3.9"]
    with pytest.raises(belljar.Denied) as refused:
        sandbox.setup()
    assert refused.value.code == "isolation_unavailable" and refused.value.value == "docker"


def test_code_and_commands_run_in_containers(docker: belljar.Client) -> None:
    ran = belljar.run("6 * 7", provider="docker", image=IMAGE, client=docker)
    assert ran.value == 42 and (ran.receipt.provider, ran.receipt.isolation) == ("docker", "container")
    with DockerSandbox(image=IMAGE, files={"in.txt": "a b"}, client=docker) as sandbox:
        result = sandbox.execute("cat in.txt")
        assert result.stdout == "a b" and result.receipt.provider == "docker"
    with SandboxManager(client=docker) as manager:
        made = manager.create_sandbox("one", kind=("docker", "process"), image=IMAGE)
        assert type(made) is DockerSandbox and made.execute("echo made").stdout == "made\n"
    with pytest.raises(belljar.Denied) as refused:
        belljar.run("1", image="belljar.invalid/nothing:none", client=docker)
    assert refused.value.code == "image_unavailable"
