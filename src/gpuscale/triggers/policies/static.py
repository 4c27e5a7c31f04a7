"""A constant replica count, with which other policies are compared."""

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    return float(settings[0])


STATIC = Policy(
    "static",
    "a fixed number of replicas",
    _desired,
    (Parameter("replicas", 1, 0, 1e6),),
)
