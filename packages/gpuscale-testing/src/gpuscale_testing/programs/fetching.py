"""Fetches other projects' definitions from the Go module proxy, once, into the cache.

A release is one zip file of the proxy, held against the checksum that is pinned here; so Go's checksum
database need not be asked. Only the files that are wanted are kept.
"""

import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from gpuscale.base.errors import UpstreamError
from gpuscale_testing.programs.building import Say, locked
from gpuscale_testing.programs.definitions import PINS, Definitions, fetched, files
from gpuscale_testing.programs.gocommand import find_go, go_environment, go_error
from gpuscale_testing.programs.toolset import cache_folder

_LIMIT_S = 300.0
MAX_FILE_BYTES = 8 * 1024 * 1024
"""Ten times the largest definition."""


def fetch(wanted: Sequence[Definitions], say: Say, folder: Path | None = None) -> None:
    """Fetch what is not there in its pinned release.

    Args:
        wanted: in the order to fetch.
        say: gets one line at a time about the progress.
        folder: the cache; None is the usual one.

    Raises:
        UnavailableError: Go, the network or room on the disk is missing; says what to do.
        UpstreamError: the proxy has not this release, or another one under its name.
    """
    cache = folder or cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache, say):
        absent = [each for each in wanted if not fetched(each, cache)]
        for each in wanted:
            if each not in absent:
                say(f"definitions of {each.label} are there")
        if not absent:
            return
        go = find_go("definitions of other projects come from the Go module proxy")
        for number, each in enumerate(absent, start=1):
            say(f"fetching definitions of {each.label} ({number} of {len(absent)})")
            _keep(each, _downloaded(each, go), cache)


def _downloaded(wanted: Definitions, go: str) -> Path:
    """Return the zip file of a module's release, as it is pinned."""
    failed = f"definitions of {wanted.label} can't be fetched"
    command = [go, "mod", "download", "-json", f"{wanted.module}@{wanted.version}"]
    environment = go_environment(os.environ) | {"GOTOOLCHAIN": "local", "GOSUMDB": "off"}
    with tempfile.TemporaryDirectory() as outside_any_module:
        try:
            done = subprocess.run(  # noqa: S603 - words of our own
                command,
                cwd=outside_any_module,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise go_error(failed, f"i/o timeout: no end after {_LIMIT_S:.0f} s") from None
    answer = _answer(done.stdout)
    # A module for a newer Go is an error beside its zip file; nothing of it is built here.
    if "Zip" not in answer:
        raise go_error(failed, answer.get("Error") or done.stderr or done.stdout)
    if answer.get("Sum") != wanted.sum:
        raise UpstreamError(
            f"{failed}: found the checksum {answer.get('Sum')} of {wanted.module}, expected "
            f"{wanted.sum}; if the release was changed in {PINS}, change its sum too"
        )
    return Path(answer["Zip"])


def _answer(output: str) -> dict[str, str]:
    """Return what `go mod download -json` says; nothing if it is no JSON object."""
    try:
        answer = json.loads(output)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _keep(wanted: Definitions, module: Path, cache: Path) -> None:
    """Write the files of a set; each is whole or not there."""
    with zipfile.ZipFile(module) as archive:
        for path, target in files(wanted, cache).items():
            content = _member(archive, f"{wanted.module}@{wanted.version}/{path}", wanted)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            temporary.write_bytes(content)
            temporary.replace(target)


def _member(archive: zipfile.ZipFile, name: str, wanted: Definitions) -> bytes:
    try:
        size_bytes = archive.getinfo(name).file_size
    except KeyError:
        raise UpstreamError(
            f"found no file {name} in {wanted.label}, expected one; change paths in {PINS}"
        ) from None
    if size_bytes > MAX_FILE_BYTES:
        raise UpstreamError(
            f"found {size_bytes} bytes in {name}, expected at most {MAX_FILE_BYTES}"
        )
    return archive.read(name)
