"""Images on a real engine: built once, rebuilt for a stated reason, never for another."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import psutil
import pytest
from docker.errors import ImageNotFound, NotFound

from lab import engine, paths, sources
from lab.errors import InputError, LabError
from lab.images import (
    ImageSpec,
    ensure,
    ensure_base,
    ensure_toxiproxy,
    times,
    toxiproxy,
    why_rebuild,
)
from lab.images.dockerfile import docker_build
from lab.images.listing import entries, entry
from lab.images.pull import NotPulledError, pull
from lab.images.types import find
from lab.progress import Progress

DOCKERFILE = """\
ARG BASE
FROM ${BASE}
ARG BUILD
ARG COMMIT
ARG FORCE
COPY . /tree
RUN --mount=type=cache,id=rpclab-ccache-test,target=/c date >> /c/times && cp /c/times / \\
 && echo "build $BUILD from $COMMIT" > /built
"""


class Recorder(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    @property
    def builds(self) -> list[str]:
        """Why each build was started; how long it took is said too, where it took long."""
        return [line for line in self.said if re.match(r"building \S+: \D", line)]


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.client()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose llama.cpp is one text file and whose images take a second."""
    ensure_base()
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    (upstream / "kv.cpp").write_text(f"(model, offload) {uuid.uuid4()}\n")
    (upstream / "ignored").write_text("not for the context\n")
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "--message=x"],
    ):
        subprocess.run(["git", *command], cwd=upstream, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=upstream, check=True, capture_output=True, text=True
    ).stdout.strip()

    images = tmp_path / "images"
    (images / "cpu").mkdir(parents=True)
    (images / "cpu" / "flavour.toml").write_text('about = "a text file"\n')
    (images / "variants").mkdir()
    (images / "cpu" / "Dockerfile").write_text(DOCKERFILE)
    (images / "cpu" / "Dockerfile.dockerignore").write_text("ignored\n")
    (images / "pins.toml").write_text(
        f'["{commit[:9]}"]\ncommit = "{commit}"\nbuild = "b1"\nrole = "fixed"\nabout = "planted"\n'
        'sdist = { build = 1, why = "planted" }\n'
    )
    _variant(images, "offload", 1)
    monkeypatch.setattr(paths, "IMAGES", images)
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(sources.git.VARIABLE, f"file://{upstream}")
    sources.git_reachable.cache_clear()
    yield images
    sources.git_reachable.cache_clear()
    for image in engine.client().images.list("rpclab/llama.cpp"):
        for tag in image.tags:
            if commit[:9] in tag:
                engine.client().images.remove(tag, force=True)


@pytest.fixture
def spec(project: Path) -> ImageSpec:
    return ImageSpec((project / "pins.toml").read_text()[2:11])


def test_the_same_inputs_build_once(spec: ImageSpec, client: docker.DockerClient) -> None:
    assert why_rebuild(spec) == "no image"
    progress = Recorder()
    image = ensure(spec, progress=progress)
    assert ensure(spec, progress=progress) == image
    assert why_rebuild(spec) is None
    assert progress.builds == [f"building {spec.name}: no image"]

    assert image.tag == f"rpclab/llama.cpp:{spec.pin}-cpu"
    assert image.labels["rpclab.pin"] == spec.pin
    assert image.labels["rpclab.build"] == "1"
    assert image.labels["rpclab.source"] == "git"
    assert image.labels["rpclab.commit"].startswith(spec.pin)
    assert image.labels["rpclab.description"] == f"b1 (git {spec.pin})"
    assert _run(client, image.ref, "cat", "/built") == "build 1 from git\n"
    assert _run(client, image.ref, "ls", "/tree") == "kv.cpp\n"
    listed = entry(spec)
    assert (listed.state, listed.build, listed.source) == ("built", "b1", "git")
    assert listed.time
    assert listed.time.compiled
    assert listed in entries()


def test_each_changed_input_is_the_reason(
    spec: ImageSpec, project: Path, client: docker.DockerClient, tmp_path: Path
) -> None:
    first = ensure(spec)
    dockerfile = project / "cpu" / "Dockerfile"
    dockerfile.write_text(DOCKERFILE + "RUN true\n")
    assert why_rebuild(spec) == "Dockerfile changed"
    assert entry(spec).state == "stale"
    second = ensure(spec)
    # The steps before the change were not run again.
    time_taken = entry(spec).time
    assert time_taken
    assert not time_taken.compiled
    assert second.id != first.id
    # The one that it replaces is not left behind without a name.
    with pytest.raises(ImageNotFound):
        client.images.get(first.id)

    (project / "cpu" / "Dockerfile.dockerignore").write_text("ignored\nother\n")
    assert why_rebuild(spec) == "dockerignore changed"
    ensure(spec)

    pins = (project / "pins.toml").read_text()
    (project / "pins.toml").write_text("# a comment\n" + pins)
    assert why_rebuild(spec) is None
    assert why_rebuild(spec, source="sdist") == "it was built from git, and sdist is asked for"

    client.images.remove(spec.tag, force=True)
    assert why_rebuild(spec) == "no image"
    docker_build(
        dockerfile,
        tmp_path / "upstream",
        tag=spec.tag,
        labels={},
        args={"BASE": "rpclab/base:trixie"},
        log=tmp_path / "log",
        title="",
        progress=Recorder(),
    )
    assert why_rebuild(spec) == "the image is not one of the lab's"
    assert ensure(spec).labels["rpclab.pin"] == spec.pin


def test_a_changed_tree_is_fetched_anew_for_a_build(spec: ImageSpec, tmp_path: Path) -> None:
    ensure(spec)
    file = tmp_path / "cache" / "sources" / f"git-{spec.pin}" / "llama.cpp" / "kv.cpp"
    original = file.read_text()
    file.write_text("tampered\n")
    progress = Recorder()
    ensure(spec, force=True, progress=progress)
    assert file.read_text() == original
    assert any("was changed" in line for line in progress.said)


def test_force_compiles_anew_and_keeps_the_compiler_cache(
    spec: ImageSpec, client: docker.DockerClient
) -> None:
    first = _run(client, ensure(spec).ref, "cat", "/times")
    forced = _run(client, ensure(spec, force=True).ref, "cat", "/times")
    assert forced.startswith(first)
    assert len(forced) > len(first)
    assert str(times.of(spec.name, ensure(spec).labels["rpclab.key"])).endswith(" s")


def test_a_variant_is_edited_and_its_edits_are_an_input(
    spec: ImageSpec, project: Path, client: docker.DockerClient
) -> None:
    variant = ImageSpec(spec.pin, variant="offload-false")
    image = ensure(variant)
    assert image.labels["rpclab.variant"] == "offload-false"
    assert "(model, false)" in _run(client, image.ref, "cat", "/tree/kv.cpp")
    assert "(model, offload)" in _run(client, ensure(spec).ref, "cat", "/tree/kv.cpp")

    file = project / "variants" / "offload-false.toml"
    file.write_text(file.read_text().replace("false'", "true'"))
    assert why_rebuild(variant) == "variant changed"
    assert why_rebuild(spec) is None


def test_a_wrong_count_fails_the_build(
    spec: ImageSpec, project: Path, client: docker.DockerClient
) -> None:
    _variant(project, "offload", 2)
    variant = ImageSpec(spec.pin, variant="offload-false")
    with pytest.raises(InputError, match=r"edits\.0.*expected 2 times in kv\.cpp.*found 1 times"):
        ensure(variant)
    assert find(client, variant.tag) is None


def test_a_failed_build_keeps_its_log(spec: ImageSpec, project: Path) -> None:
    (project / "cpu" / "Dockerfile").write_text(DOCKERFILE + "RUN echo oh no && exit 3\n")
    with pytest.raises(LabError, match="the build failed") as caught:
        ensure(spec)
    log = paths.cache() / "logs" / f"{spec.name}.log"
    assert str(log) in caught.value.hint
    assert "oh no" in log.read_text()
    assert "exit code: 3" in str(caught.value)


def test_two_labs_build_an_image_once(spec: ImageSpec) -> None:
    progress = [Recorder(), Recorder()]
    with ThreadPoolExecutor(2) as pool:
        images = list(pool.map(lambda p: ensure(spec, progress=p), progress))
    assert images[0] == images[1]
    assert sorted(len(p.builds) for p in progress) == [0, 1]


def test_an_interrupt_ends_the_build_on_the_engine(spec: ImageSpec, project: Path) -> None:
    (project / "cpu" / "Dockerfile").write_text(DOCKERFILE + "RUN sleep 617\n")
    main = threading.get_ident()

    def interrupt() -> None:
        _wait(lambda: _sleepers() > 0)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        ensure(spec)
    _wait(lambda: _sleepers() == 0)


def test_the_real_image_is_what_its_labels_say(client: docker.DockerClient) -> None:
    image = ensure(ImageSpec("f1793c1c4"))
    said = _run(client, image.ref, "llama-server", "--version")
    assert re.search(rf"\b{image.labels['rpclab.build']}\b", said)
    assert "--device" in _run(client, image.ref, "sh", "-c", "ggml-rpc-server --help 2>&1 || true")
    assert _run(client, image.ref, "id", "-u") == "10001\n"
    # Process 1 is an init: without one an abort would end with another code.
    assert _run(client, image.ref, "cat", "/proc/1/comm") == "tini\n"
    with pytest.raises(docker.errors.ContainerError) as caught:
        _run(client, image.ref, "sh", "-c", "kill -ABRT $$")
    assert caught.value.exit_status == 134


def test_toxiproxy_knows_its_version(client: docker.DockerClient) -> None:
    said = client.containers.run(
        ensure_toxiproxy().ref, ["-version"], remove=True, read_only=True, cap_drop=["ALL"]
    )
    assert toxiproxy.VERSION in said.decode()


def test_an_image_is_pulled_where_a_hub_answers(
    client: docker.DockerClient, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"{registry}/proxy:2.12.0"
    client.images.get(ensure_toxiproxy().id).tag(source)
    assert "errorDetail" not in client.images.push(source)
    client.images.remove(source)
    tag = f"rpclab/test-{uuid.uuid4().hex[:8]}:1"
    monkeypatch.setattr(toxiproxy, "TAG", tag)
    monkeypatch.setenv(toxiproxy.VARIABLE, source)
    try:
        image = ensure_toxiproxy()
        assert image.tag == tag
        assert image.id == client.images.get(source).id
        progress = Recorder()
        assert ensure_toxiproxy(progress) == image
        assert not progress.said

        monkeypatch.setenv(toxiproxy.VARIABLE, f"{registry}/absent:1")
        with pytest.raises(LabError, match=r"absent:1 cannot be pulled"):
            ensure_toxiproxy()
    finally:
        for name in (tag, source):
            with contextlib.suppress(ImageNotFound):
                client.images.remove(name, force=True)


def test_no_hub_is_noticed_soon(client: docker.DockerClient) -> None:
    start = time.monotonic()
    # Port 1 of this machine: nothing listens.
    with pytest.raises(NotPulledError, match=r"127\.0\.0\.1:1"):
        pull(client, "127.0.0.1:1/absent:1", "rpclab/absent:1", Progress())
    assert time.monotonic() - start < 20


@pytest.fixture
def registry(client: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    """A registry of Debian's, on a port of loopback."""
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "config").write_text(
        'version: 0.1\nstorage:\n  inmemory: {}\nhttp:\n  addr: ":5000"\n'
    )
    (tmp_path / "Dockerfile").write_text(
        f"FROM {ensure_base().tag}\n"
        "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends docker-registry\n"
        "COPY config /config\n"
        'CMD ["docker-registry", "serve", "/config"]\n'
    )
    docker_build(
        tmp_path / "Dockerfile",
        tmp_path / "context",
        tag="rpclab/test-registry:1",
        labels={},
        log=tmp_path / "registry.log",
        title="",
        progress=Recorder(),
    )
    container = client.containers.run(
        "rpclab/test-registry:1",
        detach=True,
        labels={"rpclab.test": "registry"},
        ports={"5000/tcp": ("127.0.0.1", 0)},
    )
    try:
        container.reload()
        bindings = container.ports["5000/tcp"]
        assert bindings
        _wait(lambda: b"listening on" in container.logs())
        yield f"127.0.0.1:{bindings[0]['HostPort']}"
    finally:
        with contextlib.suppress(NotFound):
            container.remove(force=True, v=True)


def _variant(images: Path, pattern: str, count: int) -> None:
    (images / "variants" / "offload-false.toml").write_text(
        f'about = "planted"\n[[edits]]\nfile = "kv.cpp"\npattern = \'{pattern}\'\n'
        f"replacement = 'false'\ncount = {count}\n"
    )


def _run(client: docker.DockerClient, image: str, *command: str) -> str:
    said = client.containers.run(image, list(command), remove=True, stderr=True)
    return str(said.decode())


def _sleepers() -> int:
    return sum(p.info["cmdline"] == ["sleep", "617"] for p in psutil.process_iter(["cmdline"]))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
