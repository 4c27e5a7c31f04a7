"""The tables of checks in docs/doctor.md and docs/lint.md are the registry's."""

import pytest

from check_tables import DOCS, pages
from gpuscale.ops.doctor.checks import CHECKS as DOCTOR_CHECKS
from gpuscale.ops.lint.checks import CHECKS as LINT_CHECKS


@pytest.mark.parametrize("name", ["doctor.md", "lint.md"])
def test_the_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[DOCS / name], "out of date: run make reference"


@pytest.mark.parametrize(
    ("name", "checks"), [("doctor.md", DOCTOR_CHECKS), ("lint.md", LINT_CHECKS)]
)
def test_every_check_says_what_it_means_and_what_to_do(name: str, checks) -> None:
    text = (DOCS / name).read_text()
    for check in checks.values():
        assert f"| `{check.id}` |" in text
        assert check.explanation.endswith(".")
        assert check.fix.endswith(".")
