"""The docs' tables of flags and paths are what the code says."""

from pathlib import Path

from gpuscale.agent.exporter.flags import GROUPS
from gpuscale.agent.exporter.routes import AZURE, HEALTH, METRICS, READY, STREAM

PAGE = Path(__file__).parents[3] / "docs" / "node-agent.md"


def flags_text():
    """Return the flags as the page has them."""
    tables = []
    for group, flags in GROUPS.items():
        lines = [f"### {group}", "", "| flag | variable | default | |", "| --- | --- | --- | --- |"]
        lines += [flag_row(flag) for flag in flags]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def flag_row(flag):
    dashes = "-" if len(flag.alias) == 1 else "--"
    alias = f", `{dashes}{flag.alias}`" if flag.alias else ""
    choices = f" ({', '.join(flag.choices)})" if flag.choices else ""
    effect = f" Changes nothing: {flag.no_effect}." if flag.no_effect else ""
    default = f"`{flag.default}`" if flag.default else ""
    help_ = f"{flag.help.removesuffix('.')}{choices}.{effect}".replace("|", "\\|")
    return f"| `--{flag.name}`{alias} | `{flag.env}` | {default} | {help_} |"


def test_flags_table_is_the_codes() -> None:
    assert flags_text() in PAGE.read_text()


def test_every_path_is_described() -> None:
    text = PAGE.read_text()
    for path in (METRICS, AZURE, STREAM, HEALTH, READY):
        assert f"| `{path}` |" in text
