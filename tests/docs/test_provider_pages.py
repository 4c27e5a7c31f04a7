"""The pages of providers: their values are for them, and their manifests are YAML."""

import re
from pathlib import Path

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.values import parse_values
from gpuscale.ops.providers import NAMES

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "providers").glob("*.md"))
BLOCK = re.compile(r"^```(\S+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, kind):
    return [
        (title, body) for found, title, body in BLOCK.findall(page.read_text()) if found == kind
    ]


def test_every_provider_has_its_page() -> None:
    assert [page.stem for page in PAGES] == sorted(NAMES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_values_are_for_it(page) -> None:
    (text,) = [body for title, body in blocks(page, "yaml") if title == "values.yaml"]
    assert parse_values(text, page.name).spec.provider.name == page.stem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_manifests_are_yaml(page) -> None:
    for title, body in blocks(page, "yaml"):
        assert load_documents(body, f"{page.name}:{title}")
