"""Print the version that is to be released, once everything that carries one carries the same.

    python tools/release_version.py [TAG]

Args:
    TAG: of the commit, `v` and the version; nothing where none is to be released yet.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PLACES = {
    "src/gpuscale/__init__.py": r'^__version__ = "(.+)"$',
    "packages/gpuscale-testing/pyproject.toml, version": r'^version = "(.+)"$',
    "packages/gpuscale-testing/pyproject.toml, dependencies": r'^dependencies = \["gpuscale==(.+)"\]$',
    "charts/gpuscale/Chart.yaml, version": r"^version: (.+)$",
    "charts/gpuscale/Chart.yaml, appVersion": r"^appVersion: (.+)$",
}


def versions(root: Path) -> dict[str, str]:
    """Return each version by the place where it stands."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {"pyproject.toml": str(project["version"])}
    for place, pattern in _PLACES.items():
        text = (root / place.partition(",")[0]).read_text(encoding="utf-8")
        match = re.search(pattern, text, re.MULTILINE)
        found[place] = match[1] if match else "none"
    return found


def main(tag: str) -> None:
    """Print the version; exit with 1 and what differs, if anything does."""
    found = versions(ROOT)
    version = found["pyproject.toml"]
    wanted = dict.fromkeys(found, version)
    if tag:
        found["tag"], wanted["tag"] = tag, f"v{version}"
    wrong = [
        f"{place}: found {found[place]}, expected {wanted[place]}"
        for place in found
        if found[place] != wanted[place]
    ]
    if wrong:
        sys.exit("\n".join(wrong))
    sys.stdout.write(f"{version}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
