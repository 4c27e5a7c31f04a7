"""The site, the index and docs/ have the same pages, and links leave the site where they must."""

import re

import pytest
import yaml

import docs_site

DOCS = docs_site.ROOT / "docs"
HOME, *NAV = yaml.safe_load((docs_site.ROOT / "mkdocs.yml").read_text())["nav"]
PARTS = {title: pages for part in NAV for title, pages in part.items()}


def test_each_page_is_in_the_navigation_once() -> None:
    listed = [page for pages in PARTS.values() for each in pages for page in each.values()]
    there = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted([*HOME.values(), *listed]) == sorted(there)


def test_the_index_shows_the_parts_of_the_navigation() -> None:
    _, *sections = re.split(r"^## (.+)$", (DOCS / "README.md").read_text(), flags=re.MULTILINE)
    shown = {
        title: re.findall(r"\]\(([^)]+)\)", text)
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }
    assert {title: shown.get(title) for title in PARTS} == {
        title: [page for each in pages for page in each.values()] for title, pages in PARTS.items()
    }


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        pytest.param("api.md", "../README.md", "https://r/README.md", id="outside"),
        pytest.param("guides/aks.md", "../../README.md#start", "https://r/README.md#start", id="anchor"),
        pytest.param("scenarios.md", "examples/own-trace", "https://r/docs/examples/own-trace", id="folder"),
        pytest.param("guides/aks.md", "../api.md#gpuscale", "../api.md#gpuscale", id="page"),
        pytest.param("api.md", "https://semver.org", "https://semver.org", id="elsewhere"),
        pytest.param("api.md", "../missing.md", "../missing.md", id="broken"),
    ],
)  # fmt: skip
def test_links_to_files_that_the_site_lacks_lead_to_the_repository(
    page: str, link: str, expected: str
) -> None:
    written = docs_site.with_links(f"[it]({link}) is", page, {"docs/api.md"}, "https://r")
    assert written == f"[it]({expected}) is"
