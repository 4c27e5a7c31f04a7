"""Which pods go so that one of a higher priority fits.

Source: kubernetes v1.37 pkg/scheduler/framework/preemption (preemption.go, util.go) and
plugins/defaultpreemption (default_preemption.go). Known difference: all nodes are tried, where clusters of
more than 100 promising nodes try a tenth of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.requests import Amounts
from gpuscale.hpa.cluster.scheduling.fit import NodeState, node_state, refusal
from gpuscale.hpa.cluster.scheduling.placing import Placer

_NONE_BELOW = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Preemption:
    """What could go on one node."""

    node: str
    victims: tuple[Pod, ...]
    """The most important first."""
    violations: int
    """How many of them their budgets would keep."""


@dataclass(frozen=True, slots=True)
class Search:
    """The outcome of looking for victims."""

    choices: tuple[Preemption, ...]
    """All that are equally good, in the order of their nodes; Kubernetes takes any of them."""
    message: str
    """Why there is none; empty where there is one."""


def find_victims(placer: Placer, pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> Search:
    """Return the pods whose end would let a pod in that fits nowhere."""
    if not pod.spec.may_preempt:
        return Search((), "not eligible due to preemptionPolicy=Never.")
    found: list[Preemption] = []
    reasons: Counter[str] = Counter()
    states = placer.states
    promising = placer.promising_nodes(pod)
    reasons[_NO_HELP] = len(states) - len(promising)
    for name in promising:
        outcome = _on_node(placer, pod, states[name], budgets)
        if isinstance(outcome, Preemption):
            found.append(outcome)
        else:
            reasons.update(outcome)
    if not found:
        return Search((), refusal(len(states), +reasons))
    best = min(map(_rank, found))
    return Search(tuple(each for each in found if _rank(each) == best), "")


def _on_node(
    placer: Placer, pod: Pod, state: NodeState, budgets: Sequence[PodDisruptionBudget]
) -> Preemption | tuple[str, ...]:
    """Return what could go on a node, or why nothing helps there."""
    below = sorted(
        (each for each in state.pods if each.spec.priority < pod.spec.priority), key=_importance
    )
    if not below:
        return (_NONE_BELOW,)
    # What takes room without being a pod that could go stays where it is.
    leaving = node_state(state.node, below)
    left = replace(
        state,
        used=_minus(state.used, leaving.used),
        unasked=_minus(state.unasked, leaving.unasked),
        pods=tuple(each for each in state.pods if each.spec.priority >= pod.spec.priority),
    )
    reasons = placer.misfits_with(pod, left)
    if reasons:
        return reasons
    kept_by_budget, free = _by_budget(below, budgets)
    victims: list[Pod] = []
    violations = 0
    for each in (*kept_by_budget, *free):
        with_it = left.with_pod(each.spec, each)
        if not placer.misfits_with(pod, with_it):
            left = with_it
            continue
        victims.append(each)
        violations += each in kept_by_budget
    return Preemption(state.name, tuple(sorted(victims, key=_importance)), violations)


def _minus(all_: Amounts, part: Amounts) -> Amounts:
    return {name: amount - part.get(name, 0) for name, amount in all_.items()}


def _importance(pod: Pod) -> tuple[int, int]:
    """Sort key: higher priorities first, then those that run for longer."""
    start_ms = pod.status.start_ms
    return -pod.spec.priority, pod.metadata.creation_ms if start_ms is None else start_ms


def _by_budget(
    pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[Pod], list[Pod]]:
    """Return the pods whose end would break a budget, and the others."""
    allowed = [budget.disruptions_allowed for budget in budgets]
    kept: list[Pod] = []
    free: list[Pod] = []
    for pod in pods:
        breaks = False
        for index, budget in enumerate(budgets):
            is_near = budget.metadata.namespace == pod.metadata.namespace
            if is_near and budget.selector and budget.selector.matches(pod.metadata.labels):
                allowed[index] -= 1
                if allowed[index] < 0:
                    breaks = True
                    break
        (kept if breaks else free).append(pod)
    return kept, free


def _rank(choice: Preemption) -> tuple[int, int, int, int, int]:
    """Sort key of choices: the least harm first."""
    priorities = [each.spec.priority for each in choice.victims]
    starts = [
        _importance(each)[1] for each in choice.victims if each.spec.priority == max(priorities)
    ]
    # Priorities count from 0 on, so that many pods of a negative one don't weigh less than a few.
    weight = sum(priority + 2**31 for priority in priorities)
    return choice.violations, max(priorities), weight, len(priorities), -min(starts)
