"""Objects of a shipped scenario at one moment of virtual time, as `gpuscale up` serves them."""

from collections.abc import Mapping
from typing import Any

from gpuscale.lab.kube_api.kinds import GROUP_KINDS, KINDS, SCALED_OBJECT
from gpuscale.lab.kube_api.objects.cluster import WorldObjects
from gpuscale.lab.kube_api.store import Store
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import START_MS
from gpuscale.lab.sim.world import World
from gpuscale.series.promapi.shapes import TimeAxis


class StoredRun:
    """A scenario in virtual time with its objects in a store."""

    def __init__(self, setup: Setup, speed: float = 1.0) -> None:
        self.world = World(setup, START_MS)
        self.controller = HpaController(self.world)
        VirtualPipeline(self.world, self.controller)
        axis = TimeAxis(START_MS, speed)
        self.objects = WorldObjects(self.world, self.controller, axis)
        self.store = Store(0)

    def run_to(self, seconds: float) -> "StoredRun":
        """Let time pass up to a moment of the scenario, and store what is there then."""
        self.world.engine.run_until(START_MS + round(seconds * 1000))
        self.store.take(self.objects.facts())
        return self

    def bodies(self, resource: str) -> list[dict[str, Any]]:
        """Return the objects of a resource, such as `deployments.apps`."""
        return [each.body for each in self.store.all(resource, None)]

    def all(self) -> Mapping[str, list[dict[str, Any]]]:
        """Return all objects by resource."""
        resources = {kind.stored_as for kind in (*KINDS, SCALED_OBJECT, *GROUP_KINDS)}
        return {resource: self.bodies(resource) for resource in sorted(resources)}


def shipped(name: str, speed: float = 1.0) -> StoredRun:
    """Return a scenario that ships with gpuscale, at its start."""
    return StoredRun(find_setup(name), speed)
