"""GPU health, as the node agents report it."""

from collections.abc import Iterator, Sequence

from gpuscale.base.findings import Check, Checks, Fix, Severity
from gpuscale.ops.doctor.facts import quoted
from gpuscale.ops.doctor.judges import AGENT, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import AgentLook, Snapshot

_CHECKS = Checks(AGENT)
GPU_UNHEALTHY = _CHECKS.add(
    "gpu-unhealthy",
    Severity.ERROR,
    "A GPU on which work fails, so that its pods are no capacity.",
    "Keep new pods off the node, drain it and reset the GPU (nvidia-smi --gpu-reset) or reboot.",
)
GPU_IMPAIRED = _CHECKS.add(
    "gpu-impaired",
    Severity.WARNING,
    "A GPU that is slowed down, or that has a repair pending.",
    "See its reason; repairs are done at the next reset.",
)

_PROBLEM = "gpuscale_gpu_health_problem"
_UNREADABLE = "lost"
"""`gpu-unreadable` names these GPUs."""
_RESET = GPU_UNHEALTHY.fix
_REBOOT = "Keep new pods off the node, drain it and reboot it: a reset of the GPU is not enough."
_AT_RESET = "Drain the node when it suits, and reset the GPU (nvidia-smi --gpu-reset)."
_FABRIC = "See that Fabric Manager runs on the node, in the driver's own release, and what it says."
_ADVICE = (
    ("needs_reboot", _REBOOT),
    ("fabric_", _FABRIC),
    ("row_remap_failed", "Keep new pods off the node, drain it and have the GPU replaced."),
    ("slowed_by_heat", "See to the node's cooling: its GPU holds its clocks down."),
    ("slowed_by_power_brake", "See to the node's power supply: it holds the GPU's clocks down."),
    ("row_remap_pending", _AT_RESET),
    ("page_retirement_pending", _AT_RESET),
    ("nvlink_not_recovered", _AT_RESET),
    (
        "uncorrectable_ecc",
        "Watch it: a GPU with more of them is due for NVIDIA's field diagnostics.",
    ),
)
"""Beginning of a reason to what to do; a reset for all others. The first one that a GPU has is said."""


def health_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return a finding for each GPU that an agent reports as unhealthy or with a warning."""
    for look in snapshot.agents:
        for gpu, reasons in _reasons(look, "fatal").items():
            what = f"GPU {gpu} of node {look.node} is no capacity: {', '.join(reasons)}."
            yield _finding(GPU_UNHEALTHY, look, what, reasons)
        unhealthy = _reasons(look, "fatal").keys()
        for gpu, reasons in _reasons(look, "warning").items():
            if gpu not in unhealthy:
                what = f"GPU {gpu} of node {look.node} works, with {', '.join(reasons)}."
                yield _finding(GPU_IMPAIRED, look, what, reasons)


def _reasons(look: AgentLook, severity: str) -> dict[str, list[str]]:
    """Return the problems of each GPU that have this severity."""
    found: dict[str, list[str]] = {}
    family = look.families.get(_PROBLEM)
    for sample in family.samples if family is not None else ():
        labels = dict(sample.labels)
        reason = labels.get("reason", "")
        if sample.value and labels.get("severity") == severity and reason != _UNREADABLE:
            gpu = labels.get("UUID") or labels.get("uuid") or labels.get("gpu", "")
            found.setdefault(gpu, []).append(reason)
    return found


def _finding(check: Check, look: AgentLook, what: str, reasons: Sequence[str]) -> ClusterFinding:
    say = next(
        (said for start, said in _ADVICE if any(each.startswith(start) for each in reasons)),
        _RESET,
    )
    evidence = ", ".join(f'{_PROBLEM}{{reason="{each}"}} 1' for each in reasons)
    command = quoted("kubectl", "describe", "node", look.node)
    if check is GPU_UNHEALTHY:
        command = quoted("kubectl", "cordon", look.node)
    return check.found(f"node/{look.node}", what, evidence, Fix(say, command))


JUDGE = ClusterJudge("gpu-health", _CHECKS, health_findings)
