"""Which values a label may have: what pods, pools, types and offerings ask for, and whether they agree.

Source: Karpenter 1.15 pkg/scheduling/requirement.go, requirements.go, pkg/apis/v1/labels.go.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpuscale.base.objects.selectors import Operator, Requirement
from gpuscale.hpa.cluster.nodes.pools import INSTANCE_TYPE

NODE_POOL = "karpenter.sh/nodepool"
HOSTNAME = "kubernetes.io/hostname"

_NORMAL = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}


@dataclass(frozen=True, slots=True)
class Values:
    """The values that one label may have."""

    key: str
    values: frozenset[str] = frozenset()
    others: bool = False
    """All but `values`; else only them, and where there are none the label must not be there."""
    least: int | None = None
    most: int | None = None

    def has(self, value: str) -> bool:
        """Return whether the label may have this value."""
        if not self.others:
            return value in self.values
        if value in self.values:
            return False
        if self.least is None and self.most is None:
            return True
        try:
            number = int(value)
        except ValueError:
            return False
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )

    def meets(self, other: "Values") -> bool:
        """Return whether some value suits both."""
        if not self.others:
            return any(other.has(value) for value in self.values)
        if not other.others:
            return any(self.has(value) for value in other.values)
        least, most = _larger(self.least, other.least), _smaller(self.most, other.most)
        return least is None or most is None or least <= most

    def both(self, other: "Values") -> "Values":
        """Return the values that suit both."""
        if self.others and other.others:
            least, most = _larger(self.least, other.least), _smaller(self.most, other.most)
            if least is not None and most is not None and least > most:
                return Values(self.key)
            bounded = Values(self.key, frozenset(), True, least, most)
            out = (value for value in self.values | other.values if bounded.has(value))
            return Values(self.key, frozenset(out), True, least, most)
        listed, open_to = (other, self) if self.others else (self, other)
        return Values(self.key, frozenset(filter(open_to.has, listed.values)))

    @property
    def suits_absence(self) -> bool:
        """Return whether an object without the label will do: NotIn, DoesNotExist."""
        return bool(self.values) is self.others

    def __str__(self) -> str:
        if self.values:
            listed = sorted(self.values)
            more = [f"and {len(listed) - 5} others"] if len(listed) > 5 else []
            operator = "NotIn" if self.others else "In"
            text = f"{self.key} {operator} [{' '.join([*listed[:5], *more])}]"
        else:
            text = f"{self.key} {'Exists' if self.others else 'DoesNotExist'}"
        least = "" if self.least is None else f" >={self.least}"
        return text + least + ("" if self.most is None else f" <={self.most}")


Requirements = Mapping[str, Values]


def _larger(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def values_of(requirement: Requirement) -> Values:
    """Return what a requirement of a pod or pool allows; older names of labels count as today's."""
    key, given = _NORMAL.get(requirement.key, requirement.key), frozenset(requirement.values)
    match requirement.operator:
        case Operator.IN | Operator.EQUALS:
            return Values(key, given)
        case Operator.NOT_IN | Operator.NOT_EQUALS:
            return Values(key, given, others=True)
        case Operator.EXISTS:
            return Values(key, others=True)
        case Operator.DOES_NOT_EXIST:
            return Values(key)
        case Operator.GREATER_THAN:
            return Values(key, others=True, least=int(requirement.values[0]) + 1)
        case Operator.LESS_THAN:
            return Values(key, others=True, most=int(requirement.values[0]) - 1)


def exactly(labels: Mapping[str, str]) -> dict[str, Values]:
    """Return the requirements that just these labels meet."""
    return all_of(
        Values(_NORMAL.get(key, key), frozenset((value,))) for key, value in labels.items()
    )


def all_of(parts: Iterable[Values]) -> dict[str, Values]:
    """Return the requirements that hold where all parts do."""
    found: dict[str, Values] = {}
    for part in parts:
        known = found.get(part.key)
        found[part.key] = part if known is None else part.both(known)
    return found


def conflicts(own: Requirements, incoming: Requirements) -> list[str]:
    """Return what the two don't agree on, in Karpenter's words; a label that one does not name is free."""
    found: list[str] = []
    for key in sorted(incoming.keys() & own.keys()):
        asked, given = incoming[key], own[key]
        if given.meets(asked) or (asked.suits_absence and given.suits_absence):
            continue
        found.append(f"key {key}, {asked} not in {given}")
    return found


def agree(own: Requirements, incoming: Requirements) -> bool:
    """Return whether there are no conflicts."""
    for key, asked in incoming.items():
        given = own.get(key)
        if given is None or given.meets(asked) or (asked.suits_absence and given.suits_absence):
            continue
        return False
    return True


def incompatibility(own: Requirements, incoming: Requirements, free: Collection[str]) -> str:
    """Return why `incoming` can't be met, in Karpenter's words; empty where it can.

    Args:
        own: what is promised.
        incoming: what is asked for.
        free: labels that may be asked for without being promised.
    """
    for key in sorted(incoming):
        if key not in free and key not in own and not incoming[key].suits_absence:
            return f'label "{key}" does not have known values{_hint(key, [*sorted(free), *sorted(own)])}'
    return "; ".join(conflicts(own, incoming))


def _hint(key: str, known: Iterable[str]) -> str:
    last = key.partition("/")[2] or key
    for each in known:
        if key in each or each.endswith(last):
            return f' (typo of "{each}"?)'
    return ""


def suits(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels meets the requirements."""
    for key, asked in requirements.items():
        value = labels.get(key)
        if not (asked.suits_absence if value is None else asked.has(value)):
            return False
    return True
