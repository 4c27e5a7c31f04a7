"""Whose pods with the least work go first, and which metric says what work is."""

from dataclasses import dataclass

from gpuscale.base.objects.names import is_object_name


@dataclass(frozen=True, slots=True)
class IdleFirst:
    """A Deployment whose scale-ins take the pods with the least work."""

    namespace: str
    workload: str
    metric: str
    """Of its pods, as this server serves it."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.workload}"


def idle_first_of(text: str) -> IdleFirst:
    """Return what `NAMESPACE/DEPLOYMENT=METRIC` names.

    Raises:
        ValueError: it is not of this form.
    """
    name, _, metric = text.partition("=")
    namespace, _, workload = name.partition("/")
    is_named = all(map(is_object_name, (namespace, workload)))
    if not is_named or not metric or "/" in metric or metric == "*":
        raise ValueError(f"found {text!r}, expected NAMESPACE/DEPLOYMENT=METRIC")
    return IdleFirst(namespace, workload, metric)
