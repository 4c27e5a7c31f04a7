"""`python -m gpuscale.ops.install.chart FOLDER`: write the chart's generated files."""

import sys
from pathlib import Path

from gpuscale.ops.install.chart.made import chart_files


def main() -> None:
    """Write the chart's generated files."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "charts/gpuscale")
    for name, text in chart_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
