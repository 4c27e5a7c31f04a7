"""The page about alerts is what the code would write, and every alert leads to its section."""

import re
from pathlib import Path

import pytest

from alerts_reference import alerts_markdown, main
from gpuscale.ops.install.rendering import alert_groups
from gpuscale.ops.install.values import Values, ValuesSpec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "alerts.md"


def test_the_page_is_current() -> None:
    fix = "make reference"
    assert PAGE.read_text() == alerts_markdown(), f"out of date: run {fix}"


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out == alerts_markdown()


def test_every_alert_says_what_to_do_and_where_more_is() -> None:
    sections = {
        heading.lower() for heading in re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)
    }
    for group in alert_groups(Values(spec=ValuesSpec())):
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
            page, _, fragment = rule["annotations"]["runbook_url"].partition("#")
            assert (ROOT / page) == PAGE
            assert fragment in sections
