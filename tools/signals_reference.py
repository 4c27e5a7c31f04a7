"""The tables of docs/signals.md, made of the signals that can be installed.

`make reference` writes them into the page: `python tools/signals_reference.py`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuscale.signals import Signal, SignalFamily, by_family

PAGE = Path(__file__).parents[1] / "docs" / "signals.md"
_TABLES = re.compile(r"(<!-- signals -->\n).*(<!-- end of signals -->\n)", re.DOTALL)
_HEAD = "| signal | HPA metric | series | target | what it is |\n| --- | --- | --- | --- | --- |\n"


def with_tables(text: str) -> str:
    """Return the page with current tables."""
    sections = "\n".join(_section(family, signals) for family, signals in by_family())
    return _TABLES.sub(lambda found: f"{found[1]}\n{sections}\n{found[2]}", text)


def _section(family: SignalFamily, signals: Mapping[str, Signal]) -> str:
    return f"### {family.title}\n\n{_names(family)}.\n\n{_HEAD}{''.join(_rows(signals))}"


def _names(family: SignalFamily) -> str:
    if family.name == "gpu":
        return "Names are those of dcgm-exporter, Alibaba Cloud's exporter and the node agent"
    parts = [f"Names are those of {family.version}"]
    if family.port:
        parts.append(f"pods are scraped at port {family.port}")
    if family.needs:
        parts.append(f"needs: {family.needs}")
    if family.names:
        parts.append(f"`of` names {family.names}")
    return "; ".join(parts)


def _rows(signals: Mapping[str, Signal]) -> Iterator[str]:
    for name, signal in signals.items():
        series = ", ".join(f"`{each}`" for each in signal.spellings)
        target = f"{signal.target:g} {signal.unit}"
        yield f"| `{name}` | {signal.kind} | {series} | {target} | {signal.what} |\n"


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
