"""The docs' examples are run, and print what the docs say.

In a page, a fenced block `yaml title=NAME` is a file, and a `console` block is a session: each line that
begins with `$ ` is run in a folder that holds the page's files, and what follows is its output. A line `...`
stands for any lines.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.sim.scenario import Scenario

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\S+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sessions(page):
    """Return the page's files, and its commands with the output each should have."""
    files, commands = {}, []
    for kind, title, body in BLOCK.findall(page.read_text()):
        if title:
            files[title] = body
        if kind == "console":
            for chunk in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = chunk.partition("\n")
                commands.append((command, output.splitlines()))
    return files, commands


def matches(wanted, told):
    """Whether the lines are as wanted; `...` stands for any lines, runs of blanks count as one."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else f"{squeezed(line)}\n" for line in wanted
    )
    return (
        re.fullmatch(pattern, "".join(f"{' '.join(line.split())}\n" for line in told)) is not None
    )


def squeezed(line):
    return re.escape(" ".join(line.split()))


@pytest.mark.parametrize("page", [p for p in PAGES if sessions(p)[1]], ids=lambda page: page.name)
def test_examples_print_what_the_page_says(page, tmp_path):
    files, commands = sessions(page)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "examples").symlink_to(ROOT / "docs" / "examples")
    binary = Path(sys.executable).parent
    for command, wanted in commands:
        line = command.replace(".venv/bin/gpuscale", "gpuscale")
        result = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": f"{binary}:/usr/bin:/bin"},
        )
        told = (result.stdout + result.stderr).splitlines()
        assert matches(wanted, told), f"{command}\n" + "\n".join(told)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    text = CODE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_published_schema_is_the_codes():
    published = json.loads((ROOT / "docs" / "scenario.schema.json").read_text())
    assert published == Scenario.model_json_schema()


def test_every_command_stands_in_the_readme_or_the_docs():
    from gpuscale.cli.commands import app

    text = "".join(page.read_text() for page in PAGES)
    for command in app.registered_commands:
        assert f"gpuscale {command.name}" in text
    for group in app.registered_groups:
        assert f"gpuscale {group.name}" in text
        for command in group.typer_instance.registered_commands:
            assert f"gpuscale {group.name} {command.name}" in text
