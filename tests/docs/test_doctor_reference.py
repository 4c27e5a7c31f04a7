"""The table of checks in docs/doctor.md is the code's."""

import re
from pathlib import Path

from gpuscale.doctor.findings import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
ROW = re.compile(r"^\| `([\w-]+)` \| ([\w ]+) \| (\w+) \| (.*) \|$", re.MULTILINE)


def test_the_page_lists_every_check():
    wanted = [
        (check.id, check.hop, check.severity.value, check.meaning) for check in CHECKS.values()
    ]
    assert ROW.findall(PAGE.read_text()) == wanted
