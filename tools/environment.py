"""Makes the virtual environment of `make run` and `make test`, and shows what is downloaded meanwhile.

Usage: python3 tools/environment.py FOLDER REQUIREMENT..., such as `.venv .` or `.venv '.[dev]'`.

Nothing is compiled ahead: Python does that for the modules that a command loads, when it first loads them.
That saves a fifth of the time and of the disk.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_FILE = re.compile(
    r"\s+(?P<how>Downloading|Using cached) (?P<file>\S+)(?: \((?P<size>[\d.]+ [kMG]?B)\))?"
)
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_WIDTH = 72
"""Letters of the line that is written again and again on a terminal."""


def main() -> int:
    """Make the environment where it is missing, then install into it."""
    folder, requirements = Path(sys.argv[1]), sys.argv[2:]
    if not (folder / "bin" / "pip").exists():
        if importlib.util.find_spec("ensurepip") is None:
            return _fail(
                f"{sys.executable} can't make virtual environments: it has no module ensurepip.\n"
                "Install it (Debian and Ubuntu: apt install python3-venv), or set PYTHON= to another Python."
            )
        print(f"making a virtual environment in {folder} ...", flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=False)
        if made.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            return _fail(
                f"no virtual environment in {folder}: `python -m venv` ended with the above"
            )
    return _install(folder, requirements)


def _install(folder: Path, requirements: Sequence[str]) -> int:
    command = [str(folder / "bin" / "python"), "-u", "-m", "pip", "install", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    for each in requirements:
        command += ["--editable", each]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        said = _follow(pip.stdout)
    if pip.returncode:
        print("".join(said[-30:]), file=sys.stderr)
        return _fail(f"pip could not install {', '.join(requirements)}; what it said is above")
    return 0


def _follow(lines: Iterable[str]) -> list[str]:
    """Show each file that pip fetches, and how much it is in all; return what pip said."""
    said: list[str] = []
    screen = _Screen()
    count, size = 0, 0.0
    for line in lines:
        said.append(line)
        found = _FILE.match(line)
        if found and not found["file"].endswith(".metadata"):
            count += 1
            size += _size(found["size"])
            package = _package(found["file"])
            shown = f"{_so_far(count, size)}: {package}"
            of_size = f" ({found['size']})" if found["size"] else ""
            screen.show(shown, f"{found['how'].lower()} {package}{of_size}")
        elif line.startswith("Collecting "):
            screen.show(f"{_so_far(count, size)}: looking up {line.split()[1]}")
        elif line.lstrip().startswith("Installing build dependencies"):
            screen.show("preparing the installation")
        elif line.lstrip().startswith("WARNING: "):
            screen.end(line.strip())  # of a network that doesn't answer, which can take minutes
        elif line.startswith("Installing collected packages"):
            screen.show(f"{_so_far(count, size)}: unpacking", "unpacking")
    screen.end(f"fetched {_so_far(count, size)}" if count else "nothing to fetch")
    return said


class _Screen:
    """One line that changes on a terminal, a line each elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, short: str, line: str = "") -> None:
        """Show a step: its short form on a terminal, elsewhere its line if it has one."""
        if self._is_terminal:
            print(f"\r{short[:_WIDTH]:<{_WIDTH}}", end="", flush=True)
        elif line:
            print(f"  {line}", flush=True)

    def end(self, line: str) -> None:
        """Write a line that stays."""
        if self._is_terminal:
            print(f"\r{line:<{_WIDTH}}", flush=True)
        else:
            print(line, flush=True)


def _so_far(count: int, size: float) -> str:
    return f"{count} package{'' if count == 1 else 's'}, {size / 1e6:.1f} MB"


def _package(file: str) -> str:
    """Return `name version` of a wheel's file name, or the name as it is."""
    name, _, rest = file.rpartition("/")[2].partition("-")
    return f"{name} {rest.partition('-')[0]}" if rest else name


def _size(text: str | None) -> float:
    if text is None:
        return 0
    number, unit = text.split()
    return float(number) * _BYTES[unit]


def _fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
