"""Which definitions of other projects are there, how they are fetched, and what is said where not."""

import dataclasses
import json
import os
import re
import stat
import zipfile
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError, UpstreamError, UsageError
from gpuscale_testing.programs import definitions, fetching, toolset
from gpuscale_testing.programs.definitions import Definitions

KEDA = Definitions(
    "keda", "github.com/kedacore/keda/v2", "v2.0.0", "h1:sum=", ("crd/a.yaml", "crd/b.yaml")
)
CONTENT = {"crd/a.yaml": "a", "crd/b.yaml": "b", "main.go": "package main"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(toolset.CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a script in the place of Go, which gives an answer or says something and fails."""
    path = tmp_path / "bin" / "go"
    path.parent.mkdir()
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    def put(answer, said="") -> None:
        (tmp_path / "answer").write_text(json.dumps(answer) if answer else "")
        code = 1 if said or "Error" in answer else 0
        path.write_text(
            f"#!/bin/sh\ncat {tmp_path}/answer\ncat >&2 <<'E'\n{said}\nE\nexit {code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return put


@pytest.fixture
def release(tmp_path: Path):
    """Return what Go answers about a release that has these files."""

    def make(content=CONTENT, **more):
        with zipfile.ZipFile(tmp_path / "module.zip", "w") as archive:
            for path, text in content.items():
                archive.writestr(f"{KEDA.module}@{KEDA.version}/{path}", text)
        return {"Zip": str(tmp_path / "module.zip"), "Sum": KEDA.sum, **more}

    return make


def fetched_files(cache):
    folder = definitions.definitions_folder(KEDA, cache)
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def fetch():
    said = []
    fetching.fetch([KEDA], said.append)
    return said


def test_the_files_are_kept_and_the_next_time_there_is_nothing_to_do(cache, go, release) -> None:
    go(release())
    assert fetch() == ["fetching definitions of keda v2.0.0 (1 of 1)"]
    assert fetched_files(cache) == {"a.yaml": "a", "b.yaml": "b"}
    go({}, "no more")
    assert fetch() == ["definitions of keda v2.0.0 are there"]


def test_a_cache_without_one_of_the_files_is_completed(cache, go, release) -> None:
    folder = definitions.definitions_folder(KEDA, cache)
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("a")
    assert not definitions.fetched(KEDA, cache)
    go(release())
    fetch()
    assert definitions.fetched(KEDA, cache)


def test_another_release_in_the_cache_does_not_count(cache, go, release) -> None:
    go(release())
    fetch()
    assert not definitions.fetched(dataclasses.replace(KEDA, version="v2.0.1"), cache)


def test_a_module_for_a_newer_go_serves_as_well(cache, go, release) -> None:
    go(release(Error="requires go >= 9.9"))
    fetch()
    assert definitions.fetched(KEDA, cache)


def test_a_release_that_is_not_the_pinned_one_is_refused(cache, go, release) -> None:
    go(release(Sum="h1:other="))
    with pytest.raises(UpstreamError) as caught:
        fetch()
    assert str(caught.value) == (
        "definitions of keda v2.0.0 can't be fetched: found the checksum h1:other= of "
        "github.com/kedacore/keda/v2, expected h1:sum=; if the release was changed in definitions.toml, "
        "change its sum too"
    )
    assert fetched_files(cache) == {}


def test_a_release_without_one_of_the_files_is_reported(cache, go, release) -> None:
    go(release({"crd/a.yaml": "a"}))
    with pytest.raises(
        UpstreamError, match=r"found no file .*/v2@v2.0.0/crd/b.yaml in keda v2.0.0"
    ):
        fetch()
    assert not definitions.fetched(KEDA, cache)


def test_a_file_too_large_for_a_definition_is_refused(
    cache, go, release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_FILE_BYTES", 0)
    go(release())
    with pytest.raises(UpstreamError, match=r"found 1 bytes in .*a.yaml, expected at most 0"):
        fetch()


@pytest.mark.parametrize(
    ("answer", "said", "kind", "told"),
    [
        pytest.param(
            {"Error": "dial tcp: lookup proxy: no such host"},
            "",
            UnavailableError,
            "definitions of keda v2.0.0 can't be fetched: the Go module proxy does not answer. Check the "
            "network and $GOPROXY, then run the command again; it goes on where it stopped. Go said:\n"
            "dial tcp: lookup proxy: no such host",
            id="no network",
        ),
        pytest.param(
            {"Error": "reading proxy: 404 Not Found"},
            "",
            UpstreamError,
            "definitions of keda v2.0.0 can't be fetched. Go said:\nreading proxy: 404 Not Found",
            id="not served",
        ),
        pytest.param(
            {},
            "go: bad flag",
            UpstreamError,
            "definitions of keda v2.0.0 can't be fetched. Go said:\ngo: bad flag",
            id="no answer",
        ),
    ],
)
def test_a_proxy_that_gives_nothing_is_reported(
    cache, go, answer, said: str, kind, told: str
) -> None:
    go(answer, said)
    with pytest.raises(kind) as caught:
        fetch()
    assert str(caught.value) == told


def test_without_go_the_message_says_what_to_install(
    cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        fetch()
    assert str(caught.value) == (
        "definitions of other projects come from the Go module proxy, and there is no `go` on PATH; "
        "install Go 1.26 or newer (https://go.dev/dl)"
    )


def test_every_pin_has_a_release_a_checksum_and_files_of_its_own() -> None:
    for each in definitions.pinned_definitions():
        assert each.version.startswith("v")
        assert each.sum.startswith("h1:")
        assert each.paths
        assert len(set(definitions.files(each, Path("/c")).values())) == len(each.paths)


def test_the_page_names_the_pinned_releases() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing-on-a-cluster.md").read_text()
    sentence = re.search(r"^The definitions are .*?\n\n", page, re.MULTILINE | re.DOTALL)[0]
    named = re.findall(r"`([\w-]+)` (\d+\.\d+)", sentence)
    pinned = definitions.pinned_definitions()
    assert named == [(each.name, re.match(r"v(\d+\.\d+)", each.version)[1]) for each in pinned]


def test_what_is_missing_is_told_with_the_command_that_gets_it(tmp_path: Path) -> None:
    environment = {toolset.CACHE_VARIABLE: str(tmp_path)}
    keda = definitions.definitions_named("keda").label
    eksctl = definitions.definitions_named("eksctl").label
    told = definitions.missing_definitions(["keda", "eksctl"], environment)
    assert told == (
        f"definitions of {keda}, {eksctl} are not there: looked in {tmp_path}/definitions; fetch once "
        "with `python -m gpuscale_testing.tools build`"
    )
    with pytest.raises(UnavailableError):
        definitions.find_definitions("keda", environment)


def test_a_name_that_is_not_known_is_reported() -> None:
    with pytest.raises(UsageError, match="found the definitions 'istio', expected one of prom"):
        definitions.definitions_named("istio")
