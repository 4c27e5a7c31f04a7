"""What is searched: a policy, its parameters from what is set today, and where their values go."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy

from gpuscale.plan.compiled import policy_function, replay
from gpuscale.plan.policies.policy import Numbers, Parameter, Policy
from gpuscale.plan.replay import Replayed, Service

LEAST, MOST = "min_replicas", "max_replicas"
_WHOLE = re.compile(r"(_s|_replicas|_pods|_percent|_(pods|percent)_\d+)$")
"""Names of parameters that are whole numbers."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter that is searched beside the policy's own."""

    parameter: Parameter
    place: int | str
    """Where its value goes: an index in the policy's settings, or a field of the service."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy as it is searched."""

    policy: Policy
    fixed: Numbers = field(default_factory=lambda: numpy.empty(0))
    """Follows the policy's parameters in its settings."""
    more: tuple[Setting, ...] = ()
    first: tuple[str, ...] = ()
    """Parameters that matter most: half of the tries leave the others as they are. Empty: all do."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return what is searched, each with today's value as its default."""
        return (*self.policy.parameters, *(each.parameter for each in self.more))

    @property
    def today(self) -> Numbers:
        """Return the defaults."""
        return numpy.array([each.default for each in self.parameters], dtype=numpy.float64)

    def named(self, values: Numbers) -> dict[str, float]:
        """Return values by the names of the parameters."""
        return {
            each.name: float(value) for each, value in zip(self.parameters, values, strict=True)
        }

    @property
    def free(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return which parameters may change, by index: those that matter most, and the others."""
        may = [at for at, each in enumerate(self.parameters) if each.least < each.most]
        first = [at for at in may if not self.first or self.parameters[at].name in self.first]
        return tuple(first), tuple(at for at in may if at not in first)

    def keeping(self, names: Collection[str]) -> "Contender":
        """Return it with some parameters that stay as they are."""

        def kept(each: Parameter) -> Parameter:
            stays = each.name in names
            return replace(each, least=each.default, most=each.default) if stays else each

        policy = replace(self.policy, parameters=tuple(map(kept, self.policy.parameters)))
        more = tuple(replace(each, parameter=kept(each.parameter)) for each in self.more)
        return replace(self, policy=policy, more=more)

    def replay(self, values: Numbers, demand: Numbers, service: Service) -> Replayed:
        """Replay a demand under values for the parameters."""
        own = len(self.policy.parameters)
        settings = numpy.concatenate([values[:own], self.fixed])
        for each, value in zip(self.more, values[own:], strict=True):
            if isinstance(each.place, str):
                service = service._replace(**{each.place: float(value)})
            else:
                settings[each.place] = value
        desired = policy_function(self.policy.desired)
        return replay(desired, settings, self.policy.memory, demand, service)


def rounded(parameter: Parameter, value: float) -> float:
    """Return a value as one would write it, within the parameter's bounds; today's value stays as it is."""
    if value == parameter.default:
        return value
    value = round(value) if _WHOLE.search(parameter.name) else float(f"{value:.2g}")
    return float(min(max(value, parameter.least), parameter.most))


def at_share(parameter: Parameter, share: float) -> float:
    """Return the value at a share of the parameter's range, 0 to 1."""
    if parameter.is_log:
        return float(parameter.least * (parameter.most / parameter.least) ** share)
    return parameter.least + (parameter.most - parameter.least) * share


def moved(parameter: Parameter, value: float, share: float) -> float:
    """Return a value that is moved by a share of the parameter's range, rounded."""
    if parameter.is_log:
        return rounded(parameter, value * (parameter.most / parameter.least) ** share)
    return rounded(parameter, value + (parameter.most - parameter.least) * share)
