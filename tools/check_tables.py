"""The tables of checks in docs/doctor.md and docs/lint.md, made of the registered checks.

`make reference` writes them: `python tools/check_tables.py` replaces each table in its page.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuscale.base.findings import Check
from gpuscale.ops.doctor.checks import CHECKS as DOCTOR_CHECKS
from gpuscale.ops.doctor.judges import AUTOSCALER
from gpuscale.ops.lint.checks import CHECKS as LINT_CHECKS

DOCS = Path(__file__).parents[1] / "docs"
_TABLE = re.compile(r"^\| id \|.*\n(?:\|.*\n)+", re.MULTILINE)
_FROM_LINT = (
    "any of lint's",
    AUTOSCALER,
    "error or warning",
    "Another check of [`gpuscale lint`](lint.md#checks), over the live autoscalers and rules.",
    "As there.",
)


def pages() -> dict[Path, str]:
    """Return both pages as they should be, with the rest of their text as it is."""
    doctor = [(_id(each), each.hop, *_rest(each)) for each in DOCTOR_CHECKS.values()]
    lint = [(_id(each), *_rest(each)) for each in LINT_CHECKS.values()]
    tables = {
        DOCS / "doctor.md": _table(
            ("id", "part", "kind", "what", "what to do"), [*doctor, _FROM_LINT]
        ),
        DOCS / "lint.md": _table(("id", "kind", "what", "what to do"), lint),
    }
    return {page: _with_table(page.read_text(), table) for page, table in tables.items()}


def _id(check: Check) -> str:
    return f"`{check.id}`"


def _rest(check: Check) -> tuple[str, str, str]:
    explanation, fix = (text.replace("|", r"\|") for text in (check.explanation, check.fix))
    return check.severity.value, explanation, fix


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _with_table(text: str, table: str) -> str:
    (found,) = _TABLE.finditer(text)
    return text[: found.start()] + table + text[found.end() :]


def main() -> None:
    """Write both pages."""
    for page, text in pages().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
