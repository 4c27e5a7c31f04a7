"""Health paths as Kubernetes' own servers answer them.

Source: k8s.io/apiserver v0.30.0 pkg/server/healthz (healthz.go). Known difference: the reason of a failed
check is shown to those who may read metrics; upstream withholds it from all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_WITHHELD = "reason withheld"
ENDPOINTS = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health of one component."""

    name: str
    fault: str | None = None
    """Why the whole endpoint fails; None where this part does not make it fail."""
    remark: str = ""
    """What is worth knowing of a part that is well enough."""

    def line(self, *, shows_reasons: bool) -> str:
        """Return the check's line in a verbose answer."""
        if self.fault is not None:
            return f"[-]{self.name} failed: {self.fault if shows_reasons else _WITHHELD}"
        return f"[+]{self.name} ok" + (f": {self.remark}" if shows_reasons and self.remark else "")


def remarked(name: str, notes: Sequence[str | None]) -> HealthCheck:
    """Return a passing health check with a remark."""
    return HealthCheck(name, remark="; ".join(text for text in notes if text))


Checks = Callable[[str], Sequence[HealthCheck]]
"""Returns the checks of an endpoint."""
PING = HealthCheck("ping")


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """The answer of a health path."""

    is_well: bool
    text: str


def health(
    endpoint: str,
    checks: Sequence[HealthCheck],
    excluded: frozenset[str],
    *,
    verbose: bool,
    shows_reasons: bool = True,
) -> HealthAnswer:
    """Return the answer for these checks: which of them failed, and on `shows_reasons` why."""
    counted = [check for check in checks if check.name not in excluded]
    is_well = all(check.fault is None for check in counted)
    if is_well and not verbose:
        return HealthAnswer(is_well, "ok")
    end = f"{endpoint} check {'passed' if is_well else 'failed'}"
    lines = [check.line(shows_reasons=shows_reasons) for check in counted]
    return HealthAnswer(is_well, "\n".join([*lines, end, ""]))


def single(
    checks: Sequence[HealthCheck], name: str, *, shows_reasons: bool = True
) -> HealthAnswer | None:
    """Return the answer for the check of this name; None if there is none."""
    for check in checks:
        if check.name == name and check.fault is None:
            return HealthAnswer(is_well=True, text="ok")
        if check.name == name:
            return HealthAnswer(False, check.fault or "" if shows_reasons else _WITHHELD)
    return None
