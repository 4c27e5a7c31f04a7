"""PodDisruptionBudgets by which nodes of scaled workloads can't be drained.

Source: kubernetes v1.37 pkg/registry/core/pod/storage/eviction.go (a pod of several budgets).
"""

import json
import math
import shlex
from collections.abc import Iterator
from itertools import islice

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.label_index import LabelIndex, SelectorIndex
from gpuscale.base.objects.selectors import Selector
from gpuscale.ops.lint.autoscalers import Autoscaler, autoscalers
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.parts import Part
from gpuscale.ops.lint.workloads import key_of

BUDGET_CHECKS = Checks("workload")
PDB_BLOCKS = BUDGET_CHECKS.add(
    "pdb-blocks",
    Severity.NOTE,
    "A PodDisruptionBudget that lets no pod go, so that its nodes can't be drained or removed.",
    "Allow one pod to go: maxUnavailable: 1.",
)
PDBS_OVERLAP = BUDGET_CHECKS.add(
    "pdbs-overlap",
    Severity.NOTE,
    "Pods of two PodDisruptionBudgets, which can't be evicted, so that their nodes can't be drained.",
    "Delete one of the two.",
)


def budget_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the budgets that block the draining of scaled workloads' nodes for ever."""
    budgets: dict[str, list[tuple[Part, Selector]]] = {}
    for each in inputs.nodes.beside.get("PodDisruptionBudget", ()):
        selector = Fields(each.document, each.at("spec").data, ("spec",)).selector("selector")
        if selector is not None:
            budgets.setdefault(key_of(each)[0], []).append((each, selector))
    scaled: dict[str, list[tuple[Autoscaler, dict[str, str]]]] = {}
    for scaler in autoscalers(inputs) if budgets else ():
        workload = scaler.workload(inputs)
        if workload is not None and scaler.namespace in budgets:
            labels = dict(workload.pods.labels)
            scaled.setdefault(scaler.namespace, []).append((scaler, labels))
    for namespace, targets in scaled.items():
        by_labels = LabelIndex(targets)
        for budget, selector in budgets[namespace]:
            up_to = _blocks_up_to(budget)
            blocked = (each for each in by_labels.selected(selector) if each.most <= up_to)
            yield from (_blocks(inputs, budget, each) for each in islice(blocked, 1))
        by_selector = SelectorIndex(budgets[namespace])
        for scaler, labels in targets:
            both = [*by_selector.taking(labels)]
            if len(both) > 1:
                yield _overlap(inputs, both, scaler)


def _blocks_up_to(budget: Part) -> float:
    """Return the highest replica count at which a budget allows no eviction."""
    most, least = (budget.at("spec", key).data for key in ("maxUnavailable", "minAvailable"))
    if most in (0, "0", "0%") or least == "100%":
        return math.inf
    return least if isinstance(least, int) else 0


def _blocks(inputs: Inputs, budget: Part, scaler: Autoscaler) -> LintFinding:
    field = "minAvailable" if budget.at("spec", "maxUnavailable").data is None else "maxUnavailable"
    namespace, _, name = key_of(budget)
    patch = json.dumps({"spec": {"minAvailable": None, "maxUnavailable": 1}}, separators=(",", ":"))
    place = ("kubectl", "patch", "poddisruptionbudget", "-n", namespace, name)
    is_live = budget.document.source in inputs.live
    return PDB_BLOCKS.found(
        budget.place("spec", field),
        "It lets no pod go, so nodes with these pods can't be drained and the pool never shrinks.",
        f"{field}: {budget.text('spec', field)}; pods of {scaler.title}, at most {scaler.most}",
        Fix(PDB_BLOCKS.fix, shlex.join((*place, "--type=merge", "-p", patch)) if is_live else ""),
    )


def _overlap(inputs: Inputs, both: list[Part], scaler: Autoscaler) -> LintFinding:
    names = [key_of(each)[2] for each in both]
    is_live = both[1].document.source in inputs.live
    command = shlex.join(
        ("kubectl", "get", "poddisruptionbudget", "-n", scaler.namespace, *names, "-o", "yaml")
    )
    return PDBS_OVERLAP.found(
        both[1].place("spec", "selector"),
        f"The pods of {scaler.title} have the budgets {' and '.join(names)}, and none may go.",
        "the eviction API refuses a pod of several budgets",
        Fix(PDBS_OVERLAP.fix, command if is_live else ""),
    )


JUDGE = FileJudge("budgets", BUDGET_CHECKS, budget_findings)
