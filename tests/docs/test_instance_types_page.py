"""The page of instance types is what the code would write."""

from pathlib import Path

from instance_types_reference import instance_types_markdown

PAGE = Path(__file__).parents[2] / "docs" / "instance-types.md"


def test_the_page_is_current() -> None:
    assert instance_types_markdown() == PAGE.read_text(), "out of date: run make reference"
