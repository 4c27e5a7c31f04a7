"""Health paths as Kubernetes' own servers answer them.

Source: k8s.io/apiserver v0.30.0 pkg/server/healthz (healthz.go). Known difference: the reason of a failed
check is shown; upstream withholds it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ENDPOINTS = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class Check:
    """How one part does."""

    name: str
    fault: str | None = None
    """Why the whole endpoint fails; None where this part does not make it fail."""
    remark: str = ""
    """What is worth knowing of a part that is well enough."""

    @property
    def line(self) -> str:
        """Return the check's line in a verbose answer."""
        if self.fault is not None:
            return f"[-]{self.name} failed: {self.fault}"
        return f"[+]{self.name} ok" + (f": {self.remark}" if self.remark else "")


Checks = Callable[[str], Sequence[Check]]
"""Returns the checks of an endpoint."""
PING = Check("ping")


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of a health path."""

    is_well: bool
    text: str


def health(
    endpoint: str, checks: Sequence[Check], excluded: frozenset[str], *, verbose: bool
) -> Health:
    """Return the answer for these checks; the reasons are always told where one failed."""
    counted = [check for check in checks if check.name not in excluded]
    is_well = all(check.fault is None for check in counted)
    if is_well and not verbose:
        return Health(is_well, "ok")
    end = f"{endpoint} check {'passed' if is_well else 'failed'}"
    return Health(is_well, "\n".join([*(check.line for check in counted), end, ""]))


def single(checks: Sequence[Check], name: str) -> Health | None:
    """Return the answer for one check; None where there is none of that name."""
    for check in checks:
        if check.name == name:
            return Health(check.fault is None, check.fault or "ok")
    return None
