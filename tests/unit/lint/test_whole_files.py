"""Whole files as people have them: each with the errors and warnings that a right judge gives, or none.

The words before the files say why; they were written before the checks were looked at.
"""

from pathlib import Path

import pytest

from gpuscale.ops.lint import lint


def cases():
    text = Path(__file__).with_name("whole_files.txt").read_text(encoding="utf-8")
    for block in text.split("=== ")[1:]:
        head, _, body = block.partition("\n")
        expected, _, words = head.partition(" | ")
        files = [each.partition("\n")[::2] for each in body.split("+++ ")[1:]]
        wanted = set() if expected == "nothing" else set(expected.split(", "))
        yield pytest.param(wanted, files, id=words)


@pytest.mark.parametrize(("wanted", "files"), list(cases()))
def test_no_more_and_no_less_is_said(wanted, files) -> None:
    found = {f"{each.check.severity.value} {each.check.id}" for each in lint(files).findings}
    assert {each for each in found if not each.startswith("note")} == wanted
