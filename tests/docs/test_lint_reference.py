"""The table of checks in docs/lint.md is the code's."""

import re
from pathlib import Path

from gpuscale.lint.findings import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
ROW = re.compile(r"^\| `([\w-]+)` \| (\w+) \| (.*) \|$", re.MULTILINE)


def test_the_page_lists_every_check():
    wanted = [(check.id, check.severity.value, check.meaning) for check in CHECKS.values()]
    assert ROW.findall(PAGE.read_text()) == wanted
