# mypy: disable-error-code="misc"
"""Pages and help avoid the phrases that CONTRIBUTING.md lists; in the code their number may only fall."""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from gpuscale.cli.registry import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BANNED = (r"told(?! apart)", "nobody's", "anew", "can't be had", "stands? for", "whoever")
IN_CODE = {**dict.fromkeys(BANNED, 0), r"told(?! apart)": 2, "stands? for": 1}
"""The most that docstrings and comments of src may have. Lower a number when it falls; never raise one."""


INSTALLED = sorted(
    path
    for suffix in ("yaml", "json")
    for path in (ROOT / "src/gpuscale/ops/install").rglob(f"*.{suffix}")
)
"""Alert rules and dashboards."""


def count(phrase, text):
    return len(re.findall(rf"\b{phrase}\b", " ".join(text.split()), re.IGNORECASE))


def prose(source):
    """Yield the docstrings, those below attributes too, and the comments of a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@functools.cache
def code():
    """Return the prose of each module of src by its path."""
    paths = sorted((ROOT / "src").rglob("*.py"))
    return {str(path.relative_to(ROOT)): "\n\n".join(prose(path.read_text())) for path in paths}


def helps():
    """Yield the help of every command and of every flag, as `--help-all` shows them."""
    command = typer.main.get_command(app)
    waiting = [(command, command.context_class(command, info_name="gpuscale"))]
    while waiting:
        command, context = waiting.pop()
        yield command.help or ""
        yield from (getattr(each, "help", None) or "" for each in command.get_params(context))
        if isinstance(command, TyperGroup):
            names = command.list_commands(context)
            waiting += [(command.get_command(context, name), context) for name in names]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_avoid_the_phrases(page) -> None:
    lines = page.read_text().splitlines()
    if page.name == "CONTRIBUTING.md":  # its table names them
        lines = [line for line in lines if not line.startswith("|")]
    text = "\n".join(lines)
    assert {phrase: count(phrase, text) for phrase in BANNED} == dict.fromkeys(BANNED, 0)


@pytest.mark.parametrize("file", INSTALLED, ids=lambda file: file.name)
def test_alerts_and_dashboards_avoid_the_phrases(file) -> None:
    text = file.read_text()
    assert [phrase for phrase in (*BANNED, "nobody") if count(phrase, text)] == []


def test_help_avoids_the_phrases() -> None:
    texts = list(helps())
    assert len(texts) > 200  # the two servers alone have that many flags
    found = [(phrase, text) for phrase in BANNED for text in texts if count(phrase, text)]
    assert found == []


@pytest.mark.parametrize("phrase", BANNED)
def test_the_code_has_no_more_of_a_phrase_than_before(phrase) -> None:
    found = {path: number for path, text in code().items() if (number := count(phrase, text))}
    assert sum(found.values()) <= IN_CODE[phrase], found


def test_phrases_are_found_across_lines_and_only_as_words() -> None:
    assert count(BANNED[0], "The user is\nTold so, but old values can be told apart.") == 1
    assert count("can't be had", "it can't\n  be had") == 1
    assert count("anew", "janewell") == 0
