"""The table of GPU models in docs/scenarios.md is the code's; with --write as an argument this writes it."""

import sys
from pathlib import Path

from gpuscale.agent.gpu.model_table import MODELS

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
BEGIN, END = "<!-- table: GPU models -->\n", "<!-- end of table -->\n"


def rows():
    return "".join(
        f"| `{model.name}` | {', '.join(f'`{alias}`' for alias in model.aliases)} "
        f"| {model.memory_mib / 1024:.1f} | {model.max_power_w:g} | {model.mig_slices or ''} |\n"
        for model in MODELS.values()
    )


def with_rows(text):
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + rows() + END + rest.partition(END)[2]


def test_the_table_of_gpu_models_is_current() -> None:
    assert PAGE.read_text() == with_rows(PAGE.read_text())


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(with_rows(PAGE.read_text()))
