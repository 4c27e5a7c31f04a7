"""Each house has a page that names only what is there, and links lead to files."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "gpuscale"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAYERS = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
HOUSES = sorted(
    house
    for layer in LAYERS
    for house in layer.split(" | ")
    if (PACKAGE / house).is_dir() and house != "testing"
)
NAMED = [
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "designs" / "decisions.md",
    *(PACKAGE / house / "README.md" for house in HOUSES),
]
LINKED = [ROOT / "SCOPE.md", ROOT / "CONTRIBUTING.md", *NAMED]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MODULE = re.compile(rf"(?<![\w./-])(?:gpuscale\.)?((?:{'|'.join(HOUSES)})(?:\.\w+)+)")


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def missing_modules(text: str) -> list[str]:
    """Return the modules that a text names in code and that are not there."""
    named = {name for code in CODE.findall(text) for name in MODULE.findall(code)}
    there = {name for name in named if _is_there(name)}
    return sorted(named - there)


def _is_there(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_has_a_page_with_the_same_parts(house) -> None:
    text = (PACKAGE / house / "README.md").read_text()
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    assert headings[0] == house
    assert headings[2:] == ["Door", "Rules", "What it refuses"]  # [1] is the picture of one request


@pytest.mark.parametrize(
    "house", sorted({*HOUSES} - {"base", "cli"})
)  # entered by modules; by nobody
def test_a_page_lists_the_doors_of_its_house(house) -> None:
    doors = {
        ".".join(path.parent.relative_to(PACKAGE).parts)
        for path in (PACKAGE / house).rglob("__init__.py")
        if "\n__all__ = " in path.read_text()
    }
    text = (PACKAGE / house / "README.md").read_text().partition("## Door")[2].partition("##")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)) == doors


def test_the_map_links_every_house_and_has_the_layers_of_the_contract() -> None:
    text = NAMED[0].read_text()
    links = re.findall(r"\]\(\.\./src/gpuscale/(\w+)/README\.md\)", text)
    assert sorted(links) == HOUSES
    picture = text.split("```")[3]
    shown_layers = [re.split(r"  +", line.strip())[0] for line in picture.strip().splitlines()]
    assert shown_layers == LAYERS


@pytest.mark.parametrize("page", NAMED, ids=shown)
def test_a_page_of_the_town_names_modules_that_are_there(page) -> None:
    assert missing_modules(page.read_text()) == []


def test_a_module_that_is_not_there_is_found_in_pictures_and_in_words() -> None:
    assert missing_modules("`base.errors` and `gpuscale.base.gone`") == ["base.gone"]
    assert missing_modules("```\n x ─► hpa.gone.too\n```\n base.prose") == ["hpa.gone.too"]
    assert missing_modules("`tests/unit/base.x` `docs/signals.md`") == []


@pytest.mark.parametrize("page", LINKED, ids=shown)
def test_links_of_a_page_lead_to_files_that_are_there(page) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", CODE.sub("", page.read_text())):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
