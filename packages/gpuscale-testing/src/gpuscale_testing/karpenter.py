"""Karpenter as released, with its provider of nodes without machines, beside a control plane."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from gpuscale.hpa.cluster.nodes import CAPACITY_TYPE, ZONE, InstanceType
from gpuscale.lab import find_setup
from gpuscale_testing.addresses import free_ports, is_listening
from gpuscale_testing.component import Component, with_variables_alone
from gpuscale_testing.plane import ControlPlane
from gpuscale_testing.programs.toolset import find

PROGRAM = "karpenter-kwok"
NODE_LABEL = "kwok.x-k8s.io/node=fake"
"""Of the nodes that it makes; somebody has to play their kubelets, such as `SimulatedKubelet(adopts=...)`."""
_NAMESPACE = "kube-system"
_READY_S = 60.0
_GRACE_S = 5.0
_ZONE = "zone-1"


class Karpenter:
    """Karpenter with the KWOK provider on a control plane, for as long as the `with` lasts; its CRDs stay.

    Args:
        plane: a running control plane.
        folder: for its instance types and log; a folder of its own below is made.
        instance_types: what its cloud offers, of which the provider takes 100m CPU and 10Mi for itself.
        environment: its options, such as `FEATURE_GATES`; it inherits none.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        instance_types: Sequence[InstanceType],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._plane = plane
        self._folder = folder / "karpenter"
        self._instance_types = instance_types
        self._environment = environment or {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Start it and return once it is ready.

        Raises:
            UnavailableError: it is not built, has ended, or is not ready within a minute.
        """
        with ExitStack() as starting:
            self._start(starting)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def log(self) -> str:
        """Return the end of its log."""
        return self._component.log_tail()

    def _start(self, stack: ExitStack) -> None:
        program = find(PROGRAM)
        self._plane.define("karpenter")
        self._folder.mkdir(parents=True)
        types = self._folder / "instance-types.json"
        types.write_text(json.dumps([_listed(each) for each in self._instance_types]))
        metrics_port, probe_port = free_ports(2)
        variables = {
            "HOME": str(self._folder),
            "KUBECONFIG": str(self._plane.admin),
            "DISABLE_LEADER_ELECTION": "true",
            "INSTANCE_TYPES_FILE_PATH": str(types),
            "METRICS_PORT": str(metrics_port),
            "HEALTH_PROBE_PORT": str(probe_port),
            "SYSTEM_NAMESPACE": _NAMESPACE,
            "KARPENTER_SERVICE": "karpenter",
            "LOG_LEVEL": "info",
            **self._environment,
        }
        command = [*with_variables_alone(variables), str(program)]
        self._component = Component(PROGRAM, command, self._folder, _GRACE_S)
        stack.callback(self._component.end_stop)
        self._component.wait_until(lambda: is_listening(probe_port), _READY_S)


def _listed(shape: InstanceType) -> dict[str, Any]:
    """Return an instance type in the form of the provider's file; without a zone it is in one of all."""
    resources = {name: str(amount) for name, amount in shape.allocatable.items()}
    return {
        "name": shape.name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"ephemeral-storage": "100Gi", **resources},
        "offerings": [
            {
                "Price": each.price_per_hour or 0.0,
                "Requirements": [
                    _in(CAPACITY_TYPE, each.capacity_type or "on-demand"),
                    _in(ZONE, each.zone or _ZONE),
                ],
            }
            for each in shape.offerings
        ],
    }


def scenario_types(scenario: str) -> tuple[InstanceType, ...]:
    """Return the instance types of a scenario's pools, for `rehearse --karpenter`.

    Args:
        scenario: a file, or the name of a shipped one.

    Raises:
        ConfigError: the file is wrong.
        NotFoundError: there is none.
    """
    shapes = {
        shape.name: shape
        for item in find_setup(scenario).pools
        for shape in item.pool.instance_types
    }
    return tuple(shapes.values())


def node_class(registration_delay: str = "10s") -> dict[str, Any]:
    """Return the class of nodes that register so long after their launch."""
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": registration_delay},
    }


def node_pool(
    name: str, spec: Mapping[str, Any], template: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a NodePool of the class `default`.

    Args:
        name: of it.
        spec: fields of its spec beside the template.
        template: fields of the spec of its template.
    """
    node_class_ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    of_nodes = {"requirements": [], "nodeClassRef": node_class_ref, **(template or {})}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": of_nodes}, **spec},
    }


def _in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
