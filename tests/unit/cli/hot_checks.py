"""Checks of somebody's own, as one file outside of gpuscale."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.ops.doctor.judges import NODES, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.inputs import FileJudge, Inputs

_NODE_CHECKS = Checks(NODES)
NODE_WITHOUT_RACK = _NODE_CHECKS.add(
    "node-without-rack", Severity.WARNING, "A node without a rack.", "Label the node."
)
_FILE_CHECKS = Checks()
TOO_MANY_REPLICAS = _FILE_CHECKS.add(
    "too-many-replicas", Severity.NOTE, "An HPA above our limit.", "Ask the platform team."
)


def judge_nodes(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for node in snapshot.all("nodes"):
        metadata = node.child("metadata")
        if "rack" not in metadata.labels("labels"):
            yield NODE_WITHOUT_RACK.found(f"node/{metadata.text('name')}", "It has no rack.")


def judge_files(inputs: Inputs) -> Iterator[LintFinding]:
    for placed in inputs.hpas:
        if placed.hpa.max_replicas > 100:
            yield TOO_MANY_REPLICAS.found(
                placed.place("spec", "maxReplicas"), "It may grow beyond 100."
            )


RACKS = ClusterJudge("racks", _NODE_CHECKS, judge_nodes)
LIMITS = FileJudge("limits", _FILE_CHECKS, judge_files)
