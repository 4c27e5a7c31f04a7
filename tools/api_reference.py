"""The tables of docs/api.md, made of the modules' `__all__` and docstrings.

`make reference` writes them into the page: `python tools/api_reference.py`.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MODULES = (
    "gpuscale",
    "gpuscale.hpa",
    "gpuscale.manifests",
    "gpuscale.planning",
    "gpuscale.readings",
    "gpuscale.store",
    "gpuscale.testing.api_server",
    "gpuscale.testing.nvml",
    "gpuscale.testing.podresources",
    "gpuscale.testing.prometheus",
    "gpuscale_testing",
)
"""All that is promised."""
_TABLE = re.compile(r"(<!-- names of (\S+) -->\n).*?(<!-- end of names -->\n)", re.DOTALL)


def with_tables(text: str) -> str:
    """Return the page with current tables."""
    return _TABLE.sub(lambda found: found[1] + _table(found[2]) + found[3], text)


def _table(name: str) -> str:
    module = importlib.import_module(name)
    return "".join(("| name | what it is |\n| --- | --- |\n", *_rows(module)))


def _rows(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__, key=lambda name: (name.lower(), name)):
        yield f"| `{name}` | {_meaning(getattr(module, name))} |\n"


def _meaning(value: object) -> str:
    """Return the first sentence of a docstring; of other values, the value itself or its parts."""
    if inspect.isroutine(value) or isinstance(value, type):
        first = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
        return re.split(r"(?<=[.:;]) ", first)[0].rstrip(".:;").replace("|", "\\|")
    parts = getattr(value, "__args__", None)
    if parts:
        return f"one of {', '.join(f'`{part.__name__}`' for part in parts)}"
    return f"`{value}`"


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
