"""Scenarios: the file format, and the setup of a run."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.sim.scenario.loading import load_setup
    from gpuscale.lab.sim.scenario.model import Scenario, parse_scenario
    from gpuscale.lab.sim.scenario.setup import Setup
else:
    __getattr__ = door(__name__)

__all__ = ["Scenario", "Setup", "load_setup", "parse_scenario"]
