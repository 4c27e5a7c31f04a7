"""Writes the locks: every distribution that an image or a release installs, with its version and hashes.

    python tools/locks.py           # keeps the versions that still fit
    python tools/locks.py --upgrade # takes the newest ones

They hold for amd64 and arm64. A change of a `pyproject.toml` can't be forgotten: `fits` says what it asks for
that its lock doesn't give.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "locks"
PYTHON = "3.11"
"""The oldest one: a lock holds for newer ones too."""


@dataclass(frozen=True)
class Lock:
    """A file of pinned distributions, and what it is made from."""

    name: str
    files: tuple[str, ...]
    extras: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def wanted(self) -> Iterator[Requirement]:
        """Yield what its projects ask for."""
        for file in self.files:
            if not file.endswith(".toml"):
                continue
            project = tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
            yield from map(Requirement, project["dependencies"])
            for extra in self.extras:
                yield from map(Requirement, project["optional-dependencies"][extra])

    def pins(self) -> dict[str, list[str]]:
        """Return the versions of each distribution: several where Pythons differ."""
        found: dict[str, list[str]] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(" "):
                pin = Requirement(line.removesuffix("\\"))
                found.setdefault(pin.name, []).append(str(pin.specifier).removeprefix("=="))
        return found


LOCKS = (
    Lock("agent", ("packages/gpuscale-agent/pyproject.toml",)),
    Lock("server", ("packages/gpuscale-server/pyproject.toml",), ("otlp",)),
    Lock("all", ("pyproject.toml",), ("nvidia", "kubernetes", "keda", "streams", "otlp")),
    Lock("command", ("pyproject.toml",)),
    Lock("build", ("locks/build.in",)),
    Lock("release", ("pyproject.toml", "locks/release.in")),
)


def fits(lock: Lock) -> list[str]:
    """Return what a project asks for that its lock doesn't give; nothing if it fits."""
    pins = lock.pins()
    return [
        f"{lock.path.relative_to(ROOT)}: found {each.name} {' and '.join(found) or 'nowhere'}, "
        f"expected {each}; run make locks"
        for each in lock.wanted()
        if not (found := pins.get(each.name, []))
        or not all(each.specifier.contains(version) for version in found)
    ]


def main() -> None:
    """Write all locks."""
    for lock in LOCKS:
        command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", *lock.files]
        command += ["--universal", "--python-version", PYTHON, "--generate-hashes", "--quiet"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        command += [f"--extra={extra}" for extra in lock.extras]
        command += ["--upgrade"] if "--upgrade" in sys.argv else []
        subprocess.run([*command, "--output-file", lock.path], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
