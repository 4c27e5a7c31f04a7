"""The list of what the node agent alone needs is part of the project's own dependencies."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("nvidia", "kubernetes")


def named(lines) -> set[str]:
    return {line.replace(" ", "") for line in lines if line and not line.startswith("#")}


def test_each_line_is_a_dependency_in_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    lines = named((ROOT / "agent-requirements.txt").read_text().splitlines())
    assert lines <= named([*project["dependencies"], *of_extras])
    assert named(of_extras) <= lines


def test_the_page_has_the_commands_of_the_file() -> None:
    page = (ROOT / "docs" / "node-agent.md").read_text()
    text = (ROOT / "agent-requirements.txt").read_text()
    (command,) = re.findall(r"^#   (pip install .*)$", text, re.MULTILINE)
    first, _, _ = command.partition(" && ")
    assert first in page
