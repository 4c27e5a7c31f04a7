"""The object of a search: a policy with its parameters, and where their values go."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import cast

import numpy

from gpuscale.base.compiling import fingerprint
from gpuscale.triggers.policies import (
    Numbers,
    Parameter,
    Policy,
    Replayed,
    ReplaySettings,
    policy_function,
    replay,
)

LEAST, MOST = "min_replicas", "max_replicas"
_WHOLE = re.compile(r"(_s|_minutes|_nodes|_replicas|_pods|_percent|_(pods|percent)_\d+)$")
"""Names of parameters that are whole numbers."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A searched parameter that is not the policy's own."""

    parameter: Parameter
    place: int | str
    """Where its value goes: an index in the policy's settings, or a field of the service."""


class Searched(ABC):
    """What a search needs of its object: parameters, and a replay under their values."""

    __slots__ = ()

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters, each with today's value as its default."""

    @property
    @abstractmethod
    def first(self) -> tuple[str, ...]:
        """Return the most important parameters, which alone vary in half of the tries. Empty means all."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Return texts that identify the object: with another identity, equal values give other outcomes."""

    @abstractmethod
    def replayed_and_paid(
        self, values: Numbers, demand: Numbers, service: ReplaySettings
    ) -> tuple[Replayed, Numbers]:
        """Replay a demand, and return what is paid for at each step too: pods or nodes."""

    def sensible(self, values: Numbers) -> Numbers:
        """Return values that have an effect; a value without one is replaced by the nearest that has."""
        return values

    @property
    def today(self) -> Numbers:
        """Return the parameters' defaults, which are today's values."""
        return numpy.array([each.default for each in self.parameters], dtype=numpy.float64)

    def named(self, values: Numbers) -> dict[str, float]:
        """Return values by parameter name."""
        return {
            each.name: float(value) for each, value in zip(self.parameters, values, strict=True)
        }

    @property
    def free(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the indexes of the parameters that may vary: the most important ones, and the others."""
        may = [at for at, each in enumerate(self.parameters) if each.least < each.most]
        first = [at for at in may if not self.first or self.parameters[at].name in self.first]
        return tuple(first), tuple(at for at in may if at not in first)


@dataclass(frozen=True, slots=True)
class Contender(Searched):
    """A policy under search."""

    policy: Policy
    fixed: Numbers = field(default_factory=lambda: numpy.empty(0))
    """Follows the policy's parameters in its settings."""
    more: tuple[Setting, ...] = ()
    important: tuple[str, ...] = ()
    """Its `first`."""
    saturating: tuple[str, str] | None = None
    """Parameters that are a target, as a share of the most that the signal says, and scale-up's tolerance."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the policy's parameters, then the additional ones."""
        return (*self.policy.parameters, *(each.parameter for each in self.more))

    @property
    def first(self) -> tuple[str, ...]:
        """Return the most important parameters."""
        return self.important

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the policy's name and text, and its fixed settings."""
        parts = (self.policy.name, self.parameters, self.fixed.tolist(), self.more)
        return repr(parts), fingerprint(cast("FunctionType", self.policy.desired))

    def sensible(self, values: Numbers) -> Numbers:
        """Return values whose target can be exceeded by more than the tolerance: else nothing scales up."""
        if self.saturating is None:
            return values
        names = [each.name for each in self.parameters]
        target, tolerance = map(names.index, self.saturating)
        most = math.floor(100 / (1 + values[tolerance]) - 1e-9) / 100
        is_today = values[target] == self.parameters[target].default
        is_kept = self.parameters[target].least == self.parameters[target].most
        if (
            values[target] <= most
            or is_kept
            or (is_today and values[tolerance] == self.today[tolerance])
        ):
            return values
        lower = values.copy()
        lower[target] = most
        return lower

    def keeping(self, names: Collection[str]) -> "Contender":
        """Return the contender with some parameters fixed."""
        policy = replace(self.policy, parameters=kept(self.policy.parameters, names))
        more = tuple(
            replace(each, parameter=kept([each.parameter], names)[0]) for each in self.more
        )
        return replace(self, policy=policy, more=more)

    def settled(self, values: Numbers, service: ReplaySettings) -> tuple[Numbers, ReplaySettings]:
        """Return the policy's settings, and the service with its searched fields set."""
        own = len(self.policy.parameters)
        settings = numpy.concatenate([values[:own], self.fixed])
        for each, value in zip(self.more, values[own:], strict=True):
            if isinstance(each.place, str):
                service = service._replace(**{each.place: float(value)})
            else:
                settings[each.place] = value
        return settings, service

    def replay(self, values: Numbers, demand: Numbers, service: ReplaySettings) -> Replayed:
        """Replay a demand with these parameter values."""
        settings, service = self.settled(values, service)
        desired = policy_function(self.policy.desired)
        return replay(desired, settings, self.policy.memory, demand, service)

    def replayed_and_paid(
        self, values: Numbers, demand: Numbers, service: ReplaySettings
    ) -> tuple[Replayed, Numbers]:
        """Replay a demand, and return all pods of each step too, which are paid for."""
        replayed = self.replay(values, demand, service)
        return replayed, replayed.replicas


def kept(parameters: Iterable[Parameter], names: Collection[str]) -> tuple[Parameter, ...]:
    """Return the parameters, with those of these names fixed at their defaults."""
    return tuple(
        replace(each, least=each.default, most=each.default) if each.name in names else each
        for each in parameters
    )


def is_whole(parameter: Parameter) -> bool:
    """Return whether a parameter takes whole numbers only."""
    return _WHOLE.search(parameter.name) is not None


def rounded(parameter: Parameter, value: float) -> float:
    """Return a value rounded for writing, within the parameter's bounds; today's value stays exact."""
    if value == parameter.default:
        return value
    value = round(value) if is_whole(parameter) else float(f"{value:.2g}")
    return float(min(max(value, parameter.least), parameter.most))


def at_share(parameter: Parameter, share: float) -> float:
    """Return the value at a share of the parameter's range, from 0 to 1."""
    if parameter.is_log:
        return float(parameter.least * (parameter.most / parameter.least) ** share)
    return parameter.least + (parameter.most - parameter.least) * share


def moved(parameter: Parameter, value: float, share: float) -> float:
    """Return a value moved by a share of the parameter's range, and rounded."""
    if parameter.is_log:
        return rounded(parameter, value * (parameter.most / parameter.least) ** share)
    return rounded(parameter, value + (parameter.most - parameter.least) * share)
