"""The table of docs/rehearse.md has the changes, and the virtual times, that the simulator has now.

Its real controllers were measured with a loop of the node autoscaler each scan interval.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuscale.lab.rehearse.comparison import NODES, REPLICAS, changes, table_rows
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rehearse.md").read_text()


@pytest.mark.parametrize("name", ["ack-bert", "eks-vision", "aks-mnist-jobs"])
def test_the_virtual_side_of_the_table_is_current(name: str) -> None:
    setup = find_setup(name)
    autoscaler = replace(setup.autoscaler, frequent_loops_enabled=False)
    document = simulate(replace(setup, autoscaler=autoscaler))
    assert changes(document, (*REPLICAS, *NODES))
    written = [line.split("|")[1:5] for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    current = [line.split("|")[1:5] for line in table_rows(name, document, {"events": []})]
    assert written == current
