"""Builds what `toolset` names from the Go module proxy, once, into the cache.

Each program is built under a temporary name and then renamed, so that an interrupted build leaves
nothing that looks finished; a lock keeps two builds apart. No C compiler is needed: nothing here uses cgo.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuscale.base.errors import UnavailableError
from gpuscale_testing.programs.differential import module_of
from gpuscale_testing.programs.gocommand import find_go, go_environment, go_error
from gpuscale_testing.programs.toolset import (
    BuildRecord,
    Tool,
    built,
    cache_folder,
    pinned_version,
    read_records,
    write_records,
)

Say = Callable[[str], None]

NEEDED_FREE_BYTES = 8 * 1024**3
"""Measured without KEDA: sources 1.4 GB, Go's build cache 3.9 GB, the programs 0.4 GB; and room to spare."""
_REPORT_EVERY_S = 15.0
_VERSION_PACKAGE = "k8s.io/component-base/version"


def build(tools: Sequence[Tool], say: Say, folder: Path | None = None) -> None:
    """Build what is not there in its pinned version.

    Args:
        tools: in the order to build.
        say: gets one line at a time about the progress.
        folder: where to; None is the cache.

    Raises:
        UnavailableError: Go, the network or room on the disk is missing; says what to do.
        UpstreamError: the Go command failed otherwise.
    """
    target = folder or cache_folder()
    target.mkdir(parents=True, exist_ok=True)
    with locked(target, say):
        wanted = [tool for tool in tools if not built(tool, target)]
        for tool in tools:
            if tool not in wanted:
                say(f"{tool.name} {pinned_version(tool)} is there")
        go = _go(target) if wanted else ""
        for number, tool in enumerate(wanted, start=1):
            _build_one(tool, target, go, say, f"({number} of {len(wanted)})")


@contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Keep others that fill a cache out while the block runs; waits for one that is at it."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another build is at work in {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(folder: Path) -> str:
    """Return the path of the Go command once what a build needs is there."""
    otherwise = ", or set $KUBEBUILDER_ASSETS to a folder that holds the programs"
    go = find_go("the programs are built with Go", otherwise)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < NEEDED_FREE_BYTES:
        raise UnavailableError(
            f"found {free_bytes / 1024**3:.1f} GiB free at {folder}, expected at least "
            f"{NEEDED_FREE_BYTES / 1024**3:.0f} GiB; free some, or set $GPUSCALE_TOOLS, $GOCACHE and "
            "$GOMODCACHE to folders on a larger disk"
        )
    return go


def _build_one(tool: Tool, folder: Path, go: str, say: Say, position: str) -> None:
    version = pinned_version(tool)
    label = f"{tool.name} {version}"
    say(f"building {label} {position}")
    partial = folder / f".building.{tool.name}"
    began = time.monotonic()
    try:
        with module_of(tool, go) as module:
            command = _build_arguments(tool, version, go, partial)
            _run_go(command, tool, module, lambda: _tell(say, label, began))
        partial.replace(folder / tool.name)
    finally:
        partial.unlink(missing_ok=True)
    seconds = time.monotonic() - began
    size = (folder / tool.name).stat().st_size
    record = BuildRecord(version, _go_version(go), size, round(seconds, 1))
    write_records(folder, {**read_records(folder), tool.name: record})
    say(f"built {label} in {seconds:.0f} s, {size / 1e6:.0f} MB")


def _tell(say: Say, label: str, began: float) -> None:
    say(f"  {label}: {time.monotonic() - began:.0f} s so far")


def _build_arguments(tool: Tool, version: str, go: str, target: Path) -> list[str]:
    flags = ["-mod=readonly", "-trimpath", "-ldflags", _linker_flags(tool, version)]
    return [go, "build", *flags, "-o", str(target), tool.package]


def _linker_flags(tool: Tool, version: str) -> str:
    """Return flags that leave debug information out and set the version that a program says it has."""
    stamps = (f"-X {name}={value}" for name, value in _stamps(tool, version).items())
    return " ".join(["-s", "-w", *stamps])


def _stamps(tool: Tool, version: str) -> dict[str, str]:
    if tool.package.startswith("./"):
        return {}
    if tool.folder == "keda":
        # Not that of Kubernetes: KEDA's metrics server takes it for the API that it emulates.
        return {"github.com/kedacore/keda/v2/version.Version": version.removeprefix("v")}
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    return {f"{_VERSION_PACKAGE}.{name}": value for name, value in stamps.items()}


def _run_go(command: Sequence[str], tool: Tool, module: Path, tick: Callable[[], None]) -> None:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - words of our own
            command,
            cwd=module,
            env=go_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = _waited(process, tick)
        finally:
            _end(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if code:
        raise go_error(f"{tool.name} can't be built", text)


def _waited(process: "subprocess.Popen[bytes]", tick: Callable[[], None]) -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_REPORT_EVERY_S)
        tick()


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


def _go_version(go: str) -> str:
    answer = subprocess.run(  # noqa: S603 - words of our own
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.strip()
