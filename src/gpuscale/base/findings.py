"""The types of checks and findings of `gpuscale lint` and `gpuscale doctor`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from gpuscale.base.errors import BugError
from gpuscale.base.plugins import PluginError, PluginGroup

Where = TypeVar("Where")
"""What names the place of a finding: a line of a file, or an object of a cluster."""
Subject = TypeVar("Subject")
"""What is judged."""
AnyJudge = TypeVar("AnyJudge", bound="Judge[Any, Any]")


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """It can't work."""
    WARNING = "warning"
    """It works, but not as it looks."""
    NOTE = "note"
    """Worth a look; nothing has to be wrong."""

    def is_at_least(self, other: "Severity") -> bool:
        """Return whether it is as bad as another one, or worse."""
        order = tuple(Severity)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A request that is part of a fix."""

    path: str
    """Of the object to patch, or of the collection to create it in."""
    body: Mapping[str, Any]
    creates: bool = False
    """False: `body` is a merge patch."""


@dataclass(frozen=True, slots=True)
class Fix:
    """How to fix a finding."""

    say: str
    """In one sentence."""
    command: str = ""
    """What does it, for a terminal; empty where there is no one command."""
    changes: tuple[FixRequest, ...] = ()
    """What `--fix` does in its place; empty where that might restart or take away something."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check with its id and severity."""

    id: str
    """Stable: scripts and suppressions may name it."""
    severity: Severity
    explanation: str
    """What is wrong when it fires, in one sentence."""
    fix: str
    """What to do in general; a finding may know better."""
    hop: str = ""
    """The part of the chain that it is about, where the doctor of a cluster has it too."""

    def at(self, severity: Severity) -> "Check":
        """Return the check for a finding of which more or less is known than of others."""
        return replace(self, severity=severity)

    def found(
        self, where: Where, what: str, evidence: str = "", fix: Fix | str | None = None
    ) -> "Finding[Where]":
        """Return a finding of this check.

        Args:
            where: its place.
            what: what is wrong, in one sentence.
            evidence: what shows it; empty where `what` says it all.
            fix: what to do; the check's own if None.
        """
        if not isinstance(fix, Fix):
            fix = Fix(self.fix if fix is None else fix)
        return Finding(self, where, what, evidence, fix)


@dataclass(frozen=True, slots=True)
class Finding(Generic[Where]):
    """A fault, or a possible one. Created by `Check.found`."""

    check: Check
    where: Where
    what: str
    evidence: str
    fix: Fix
    same: tuple["Finding[Where]", ...] = ()
    """The same of other objects, each with its own evidence and fix."""
    consequences: tuple["Finding[Where]", ...] = ()
    """What follows from it, and ends with it."""

    def whole(self) -> Iterator["Finding[Where]"]:
        """Yield the finding and all findings folded under it."""
        yield self
        for each in (*self.same, *self.consequences):
            yield from each.whole()


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part of the chain that could not be read."""

    hop: str
    about: str
    why: str
    fix: Fix
    """What would let it be looked at."""


@dataclass(frozen=True, slots=True)
class Report(Generic[Where]):
    """All findings."""

    findings: tuple[Finding[Where], ...]

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.check.severity is severity for finding in self.findings)

    def fails(self, least: Severity = Severity.WARNING) -> bool:
        """Return whether action is needed: whether a finding is as bad as `least`, or worse."""
        return any(finding.check.severity.is_at_least(least) for finding in self.findings)


@dataclass(frozen=True, slots=True)
class ChainReport(Report[str]):
    """Findings about a cluster, by hop; a place is `kind/name` or `kind/namespace/name`."""

    hops: tuple[str, ...]
    seen: Mapping[str, int]
    """How much was looked at, by kind."""
    unseen: tuple[Unseen, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Return whether no action is needed; notes don't count."""
        return not self.fails()


class Checks:
    """One judge's checks, in the order of the docs.

    Args:
        hop: the part of the chain that they are about, for checks that the doctor has.
        including: checks of modules that the judge calls.
    """

    def __init__(self, hop: str = "", *, including: Iterable["Checks"] = ()) -> None:
        self.hop = hop
        self._checks = [check for checks in including for check in checks]

    def add(self, id_: str, severity: Severity, explanation: str, fix: str) -> Check:
        """Register a check, and return it."""
        check = Check(id_, severity, explanation, fix, self.hop)
        self._checks.append(check)
        return check

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)


@dataclass(frozen=True, slots=True)
class Judge(Generic[Subject, Where]):
    """Code with a set of checks."""

    name: str
    """A plug-in's is the name of its entry point."""
    checks: Checks
    judge: Callable[[Subject], Iterable[Finding[Where]]]


def checks_by_id(judges: Sequence[Judge[Any, Any]]) -> dict[str, Check]:
    """Return the checks of all judges by id.

    Raises:
        BugError: two checks have the same id.
    """
    found: dict[str, Check] = {}
    for check in (each for judge in judges for each in judge.checks):
        if check.id in found:
            raise BugError(f"two checks have the id {check.id!r}")
        found[check.id] = check
    return found


_PLUGINS: PluginGroup[Judge[Any, Any]] = PluginGroup("gpuscale.checks", Judge)


def with_plugins(judges: Sequence[AnyJudge], kind: type[AnyJudge]) -> tuple[AnyJudge, ...]:
    """Return the built-in judges and those of plug-ins.

    Raises:
        PluginError: a plug-in can't be used, or one of its checks has the id of another check.
    """
    found = (*judges, *(each for each in _PLUGINS.every() if isinstance(each, kind)))
    try:
        checks_by_id(found)
    except BugError as error:
        raise PluginError(f"{_PLUGINS.name}: {error}") from None
    return found
