"""Which programs are there, what is said where they are not, and what a build leaves behind."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale_testing import tools
from gpuscale_testing.programs import building, definitions, fetching, toolset

ETCD = toolset.tool_named("etcd")
GO_THAT_BUILDS = """
while [ "$1" != "-o" ] && [ $# -gt 0 ]; do
  if [ "$1" = env ]; then echo go1.99; exit; fi
  shift
done
printf program > "$2"; chmod +x "$2"
"""


def program(path, script: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a script in the place of Go; the test says what it does."""

    def put(script: str) -> None:
        program(tmp_path / "bin" / "go", script)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    monkeypatch.setattr(building, "NEEDED_FREE_BYTES", 0)
    return put


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(toolset.CACHE_VARIABLE, str(folder))
    monkeypatch.delenv(toolset.ASSETS_VARIABLE, raising=False)
    return folder


def test_the_versions_are_those_of_the_go_modules() -> None:
    versions = {tool.name: toolset.pinned_version(tool) for tool in toolset.TOOLS}
    kubernetes = {versions[name] for name in toolset.CONTROL_PLANE if name != "etcd"}
    assert len(kubernetes) == 1
    assert kubernetes.pop().startswith("v1.")
    assert versions["prometheus-adapter"] == "v0.12.0"
    assert versions["etcd"].startswith("v3.")
    (release,) = (each for each in definitions.pinned_definitions() if each.name == "keda")
    assert {versions[name] for name in toolset.KEDA} == {release.version}


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({"GPUSCALE_TOOLS": "/t", "XDG_CACHE_HOME": "/c"}, "/t", id="chosen"),
        pytest.param({"XDG_CACHE_HOME": "/c"}, "/c/gpuscale/tools", id="user's cache"),
    ],
)
def test_the_cache_is_where_the_environment_says(environment, folder: str) -> None:
    assert str(toolset.cache_folder(environment)) == folder


def test_a_program_of_kubebuilder_assets_comes_before_the_cache(tmp_path: Path) -> None:
    etcd = program(tmp_path / "assets" / "etcd", "true")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "GPUSCALE_TOOLS": str(tmp_path)}
    assert toolset.find("etcd", environment) == etcd


def test_a_program_that_is_not_there_is_told_with_the_command_that_builds_it(
    tmp_path: Path,
) -> None:
    version = toolset.pinned_version(ETCD)
    with pytest.raises(UnavailableError) as caught:
        toolset.find("etcd", {"GPUSCALE_TOOLS": str(tmp_path)})
    assert str(caught.value) == (
        f"etcd {version} is not there: looked in $KUBEBUILDER_ASSETS (not set) and {tmp_path}; "
        "build once with `python -m gpuscale_testing.tools build`"
    )


def test_several_programs_that_are_not_there_are_told_in_one_sentence(tmp_path: Path) -> None:
    etcd, apiserver = (
        toolset.pinned_version(toolset.tool_named(n)) for n in toolset.CONTROL_PLANE[:2]
    )
    environment = {"GPUSCALE_TOOLS": str(tmp_path), "KUBEBUILDER_ASSETS": "/none"}
    assert toolset.missing(["etcd", "kube-apiserver"], environment) == (
        f"etcd {etcd}, kube-apiserver {apiserver} are not there: looked in $KUBEBUILDER_ASSETS (/none) "
        f"and {tmp_path}; build once with `python -m gpuscale_testing.tools build`"
    )


def test_what_is_built_apart_has_a_command_that_names_it(tmp_path: Path) -> None:
    reason = toolset.missing(toolset.KEDA, {"GPUSCALE_TOOLS": str(tmp_path)})
    programs = "keda-operator keda-adapter keda-webhooks"
    assert reason.endswith(f"once with `python -m gpuscale_testing.tools build {programs}`")
    judge = toolset.missing(["karpenter-judge"], {"GPUSCALE_TOOLS": str(tmp_path)})
    assert judge.endswith("once with `python -m gpuscale_testing.tools build karpenter-judge`")


def test_a_build_without_names_leaves_out_what_is_built_apart(
    cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []
    monkeypatch.setattr(
        building, "build", lambda chosen, _: wanted.extend(tool.name for tool in chosen)
    )
    monkeypatch.setattr(fetching, "fetch", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["tools", "build"])
    with pytest.raises(SystemExit) as caught:
        tools.main()
    assert not caught.value.code
    assert wanted == [
        *toolset.CONTROL_PLANE,
        "hpa-differential",
        "hpa-differential-1.36",
        "prometheus-adapter",
        "promql-engine",
    ]


def test_another_version_in_the_cache_does_not_count(tmp_path: Path) -> None:
    program(tmp_path / "etcd", "true")
    toolset.write_records(tmp_path, {"etcd": toolset.BuildRecord("v3.0.0", "go1.26", 1, 1.0)})
    assert not toolset.built(ETCD, tmp_path)


@given(st.binary(max_size=200) | st.text('[]{}":,etcdversion01 ').map(str.encode))
def test_records_that_cannot_be_read_count_as_none(tmp_path_factory, content) -> None:
    folder = tmp_path_factory.getbasetemp() / "records"
    folder.mkdir(exist_ok=True)
    (folder / toolset.RECORD).write_bytes(content)
    assert isinstance(toolset.read_records(folder), dict)


def test_a_build_leaves_the_program_and_its_record_and_the_next_one_has_nothing_to_do(
    cache, go
) -> None:
    go(GO_THAT_BUILDS)
    said: list[str] = []
    building.build([ETCD], said.append)
    version = toolset.pinned_version(ETCD)
    assert said == [f"building etcd {version} (1 of 1)", f"built etcd {version} in 0 s, 0 MB"]
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "etcd", "versions.json"]
    record = json.loads((cache / "versions.json").read_text())["etcd"]
    assert (record["version"], record["go"], record["size_bytes"]) == (version, "go1.99", 7)
    go("exit 1")
    building.build([ETCD], said.append)
    assert said[2:] == [f"etcd {version} is there"]


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        pytest.param(
            "dial tcp 10.0.0.1:443: i/o timeout",
            UnavailableError,
            "etcd can't be built: the Go module proxy does not answer. Check the network and $GOPROXY, "
            "then run the command again; it goes on where it stopped. Go said:\n",
            id="no network",
        ),
        pytest.param(
            "write /x: no space left on device",
            UnavailableError,
            "etcd can't be built: the disk is full. Free some room, or set $GPUSCALE_TOOLS, $GOCACHE, "
            "$GOMODCACHE and $TMPDIR to a larger disk. Go said:\n",
            id="disk full",
        ),
        pytest.param(
            "go.mod requires go >= 1.26.0",
            UpstreamError,
            "etcd can't be built. Go said:\n",
            id="anything else",
        ),
    ],
)
def test_a_failed_build_says_why_and_leaves_nothing(cache, go, words: str, kind, told: str) -> None:
    go(f'echo "{words}" >&2; exit 1')
    with pytest.raises(kind) as caught:
        building.build([ETCD], lambda _: None)
    assert str(caught.value) == told + words
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_without_go_the_message_says_what_to_install(
    cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        building.build([ETCD], lambda _: None)
    assert str(caught.value) == (
        "the programs are built with Go, and there is no `go` on PATH; install Go 1.26 or newer "
        "(https://go.dev/dl), or set $KUBEBUILDER_ASSETS to a folder that holds the programs"
    )


def test_a_small_disk_is_told_before_the_build(cache, go, monkeypatch: pytest.MonkeyPatch) -> None:
    go("exit 1")
    monkeypatch.setattr(building, "NEEDED_FREE_BYTES", 1 << 60)
    with pytest.raises(UnavailableError, match=r"GiB free at .*, expected at least 1073741824 GiB"):
        building.build([ETCD], lambda _: None)


def test_a_second_build_waits_for_the_first(cache, go, tmp_path: Path) -> None:
    go(f"until [ -e {tmp_path}/go-on ]; do sleep 0.01; done\n{GO_THAT_BUILDS}")
    first, second = [], []
    waiting = threading.Event()

    def say(line: str) -> None:
        second.append(line)
        waiting.set()

    one = threading.Thread(target=building.build, args=([ETCD], first.append))
    one.start()
    while not first:
        pass
    two = threading.Thread(target=building.build, args=([ETCD], say))
    two.start()
    assert waiting.wait(10)
    (tmp_path / "go-on").touch()
    one.join(10)
    two.join(10)
    assert second == [
        f"another build is at work in {cache}; waiting for it",
        f"etcd {toolset.pinned_version(ETCD)} is there",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(
            ["find", "kubelet"],
            2,
            "found the program or definitions 'kubelet', expected",
            id="unknown",
        ),
        pytest.param(["find", "etcd"], 1, "Error: etcd v", id="not built"),
        pytest.param(["where"], 1, "", id="list"),
    ],
)
def test_the_command_line_ends_with_the_code_of_its_answer(
    cache,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["tools", *arguments])
    with pytest.raises(SystemExit) as caught:
        tools.main()
    assert caught.value.code == code
    assert told in capsys.readouterr().err
