"""Links of the pages lead somewhere, the published schema is current, and each command is named."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from gpuscale.lab.sim.scenario.model import Scenario

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page) -> None:
    text = CODE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_a_table_have_its_columns(page) -> None:
    text = BLOCK.sub("", page.read_text())
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    targets = re.findall(r"\]\(([^)#]+\.md)\)", index.read_text())
    assert {(index.parent / target).resolve() for target in targets} == set(PAGES) - {index}


def test_the_published_schema_is_the_codes() -> None:
    published = json.loads((ROOT / "docs" / "scenario.schema.json").read_text())
    assert published == Scenario.model_json_schema()


def test_every_command_stands_in_the_readme_or_the_docs() -> None:
    from gpuscale.cli.registry import app

    text = "".join(page.read_text() for page in PAGES)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    context = command.context_class(command)
    for name in command.list_commands(context):
        assert f"gpuscale {name}" in text
        inner = command.get_command(context, name)
        for word in inner.list_commands(context) if isinstance(inner, TyperGroup) else ():
            assert f"gpuscale {name} {word}" in text
