"""Run the shipped scenarios in virtual time and as rehearsals, and write the table of docs/rehearse.md.

It needs the programs of `make cluster-tools`, and takes about 15 minutes:

    .venv/bin/python tools/rehearsal_table.py
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from gpuscale.kube.client.settings import KubeSettings
from gpuscale.lab.rehearse.comparison import table_rows
from gpuscale.lab.rehearse.rehearsal import Rehearsal
from gpuscale.lab.rehearse.target import RehearsalTarget
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale_testing import ControlPlane, Settings

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rehearse.md"
SCENARIOS = ("ack-bert", "eks-vision", "aks-mnist-jobs")
SPEED = 10.0
BEGIN, END = "<!-- table: tools/rehearsal_table.py -->\n", "<!-- end of table -->\n"
HEAD = (
    "| scenario | autoscaler | from → to | virtual time | real controllers | apart |",
    "| --- | --- | --- | --- | --- | --- |",
)


async def rehearse(plane: ControlPlane, setup: Setup) -> dict[str, object]:
    """Return the document of a whole rehearsal."""
    cluster = KubeSettings(kubeconfig=plane.admin)
    target = RehearsalTarget(cluster, "gpuscale-rehearsal", is_named=True)
    rehearsal = Rehearsal(setup, target, lambda _: None, lambda _: None, SPEED)
    return await rehearsal.run(asyncio.Event())


def main() -> None:
    """Run everything and write the page."""
    rows: list[str] = []
    with ControlPlane(Settings().sped_up(SPEED)) as plane:
        for name in SCENARIOS:
            sys.stderr.write(f"rehearsing {name}\n")
            setup = find_setup(name)
            autoscaler = replace(setup.autoscaler, frequent_loops_enabled=False)
            setup = replace(setup, autoscaler=autoscaler)
            rows += table_rows(name, simulate(setup), asyncio.run(rehearse(plane, setup)))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([*HEAD, *rows]) + "\n"
    PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
