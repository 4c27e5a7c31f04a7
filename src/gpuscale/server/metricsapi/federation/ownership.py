"""Which metrics API owns a metric: this server, or a federation member.

A metric that one of our rules names is ours also while its series are away. Otherwise it would change hands,
and a member with another metric of this name would scale the workload.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Operator, Selector
from gpuscale.server.metricsapi.federation.settings import MemberSettings
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.wire.paths import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    CustomTarget,
    ExternalTarget,
)
from gpuscale.server.rules.config import AdapterConfig
from gpuscale.server.rules.queries.backwards import candidates

_MOST_NAMES = 10_000
"""Metrics that something is remembered of; each has at most some hundred bytes (`MAX_NAME`)."""
MAX_NAME = 512
"""Characters of a metric's name that is passed on."""
_Key = tuple[str, str, str]
"""Group with resource, namespace, metric."""
_Value = TypeVar("_Value")


class Own(Enum):
    """What this server's own rules say about a metric."""

    SERVED = "served"
    AWAY = "away"
    """One of our rules gives it, and there are no series of it now."""
    UNKNOWN = "unknown"
    """One of our rules may give it, and the first discovery has not ended."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class Claim:
    """Why a metric belongs to a member."""

    member: MemberSettings
    reason: str


class Ownership:
    """Decides the owner from this server's rules and the members' lists.

    Args:
        members: in the order of the settings.
        provider: of our own metrics.
    """

    def __init__(self, members: Sequence[MemberSettings], provider: MetricsProvider) -> None:
        self._members = tuple(members)
        self._provider = provider
        self._config: AdapterConfig | None = None
        self._served: dict[_Key, None] = {}
        """What our rules have served, in the order of the first time."""
        self._read: dict[_Key, tuple[bool, bool]] = {}
        """Whether a rule names a metric, and whether one may give it."""

    def claim(self, target: CustomTarget | ExternalTarget, series: Selector) -> Claim | None:
        """Return the member that claims a metric, whether or not it is ours too; None where none does."""
        if len(target.metric) > MAX_NAME or "/" in target.metric or target.metric in {".", ".."}:
            return None
        if isinstance(target, CustomTarget):
            return self._by_name(CUSTOM_GROUP, target.metric)
        return self.by_selector(series) or self._by_name(EXTERNAL_GROUP, target.metric)

    def by_selector(self, series: Selector) -> Claim | None:
        """Return the member that an external metric's selector belongs to."""
        keys = {
            each.key
            for each in series.requirements
            if each.operator in {Operator.EQUALS, Operator.IN}
        }
        for member in self._members:
            for label in member.selectors:
                if label in keys and EXTERNAL_GROUP in member.groups:
                    return Claim(member, f"the selector names {label}")
        return None

    def own(self, target: CustomTarget | ExternalTarget) -> Own:
        """Return whether our rules serve the metric now, may serve it later, or don't."""
        self._forget_other_rules()
        key = _key(target)
        if self._provider.serves(target):
            _remember(self._served, key, None)
            return Own.SERVED
        if key in self._served:
            return Own.AWAY
        if key not in self._read:
            _remember(self._read, key, self._read_rules(target))
        is_named, is_possible = self._read[key]
        if is_named:
            return Own.AWAY
        return Own.UNKNOWN if is_possible and self._provider.relisted_ms is None else Own.NO

    def _read_rules(self, target: CustomTarget | ExternalTarget) -> tuple[bool, bool]:
        """Return whether a rule certainly gives the metric, and whether one possibly does."""
        config = self._provider.config
        rules = config.rules if isinstance(target, CustomTarget) else config.external_rules
        found: list[bool] = []
        for rule in rules:
            if rule.only_in in {"", target.namespace}:
                with suppress(GpuscaleError):
                    found += [each.certain for each in candidates(rule, target.metric)]
        return any(found), bool(found)

    def _forget_other_rules(self) -> None:
        if self._config is not self._provider.config:
            self._config = self._provider.config
            self._served.clear()
            self._read.clear()

    def _by_name(self, group: str, metric: str) -> Claim | None:
        best: tuple[int, MemberSettings, str] | None = None
        for member in self._members:
            if group not in member.groups:
                continue
            for pattern in member.metrics:
                length = len(pattern) - pattern.count("*")
                # A full name is longer than any pattern that matches it.
                length = 2 * length + ("*" not in pattern)
                if (best is None or length > best[0]) and _expression(pattern).fullmatch(metric):
                    best = length, member, pattern
        return None if best is None else Claim(best[1], f"its name fits {best[2]}")


def _key(target: CustomTarget | ExternalTarget) -> _Key:
    if isinstance(target, CustomTarget):
        return f"{CUSTOM_GROUP}/{target.resource}", target.namespace or "", target.metric
    return EXTERNAL_GROUP, target.namespace, target.metric


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    memory[key] = value
    if len(memory) > _MOST_NAMES:
        del memory[next(iter(memory))]


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    # Patterns are plain text with `.*`, from settings, so that matching is quick.
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
