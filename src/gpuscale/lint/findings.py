"""What a finding is, and every check by its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """It can't work."""
    WARNING = "warning"
    """It works, but not as it looks."""
    NOTE = "note"
    """Worth a look; nothing has to be wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked for."""

    id: str
    """Stable: scripts and suppressions may name it."""
    severity: Severity
    meaning: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    file: str
    line: int | None
    field: str | None
    """Dotted path; None where the finding is the whole file's."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be."""

    check: Check
    place: Place
    what: str
    """What is wrong, in one sentence."""
    evidence: str
    """What shows it; empty where `what` says it all."""
    fix: str
    """What to do."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A manifest that nothing is known to look for in."""

    place: Place
    kind: str
    """`apiVersion kind`."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found in some files."""

    findings: tuple[Finding, ...]
    """By file and line, the files in the order in which they were given."""
    passed_over: tuple[PassedOver, ...]
    files: int
    rules: int
    """Rules that were read, the chart's default ones included."""
    autoscalers: int
    """HorizontalPodAutoscalers that were looked at, refused ones included."""
    scaled_objects: int = 0
    """KEDA's ScaledObjects that were looked at, refused ones included."""
    values: int = 0
    """Values files whose rendering was read."""
    scenarios: int = 0
    """Scenarios whose files were read."""

    @property
    def has_checked(self) -> bool:
        """Return whether there was anything that lint looks at, right or wrong."""
        counts = self.rules + self.autoscalers + self.scaled_objects + self.values + self.scenarios
        return bool(counts or self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings are of a severity."""
        return sum(finding.check.severity is severity for finding in self.findings)

    def fails(self, *, strict: bool) -> bool:
        """Return whether something has to be done: errors and warnings count, with `strict` notes too."""
        return any(
            strict or finding.check.severity is not Severity.NOTE for finding in self.findings
        )


def _checks(*rows: tuple[str, Severity, str]) -> dict[str, Check]:
    return {id_: Check(id_, severity, meaning) for id_, severity, meaning in rows}


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

CHECKS: Mapping[str, Check] = MappingProxyType(
    _checks(
        # Whole files
        ("refused-rules", _E, "A rule file, of which no rule would be served."),
        ("refused-manifest", _E, "A manifest that the API server would refuse."),
        ("unknown-field", _E, "A field of an HPA that its API version does not have."),
        ("refused-values", _E, "A values file that `gpuscale render` would refuse."),
        ("refused-scenario", _E, "A scenario that `gpuscale simulate` would refuse."),
        ("not-read", _N, "A part of a rule file that is passed over."),
        ("no-rules", _N, "Autoscalers without a rule file to hold them against."),
        # Rules
        ("custom-resource", _N, "A resource that only a CustomResourceDefinition can give."),
        ("empty-group", _W, "`as` names a group that `matches` has not, as in `$1_rate`."),
        ("no-query", _E, "A rule without `metricsQuery`: listed, and never answered."),
        ("query-not-promql", _W, "A query that does not look like PromQL once it is filled in."),
        (
            "unquoted-name",
            _W,
            "A value of `.LabelValuesByName` outside of quotes: requests write PromQL.",
        ),
        ("second-label", _W, "Two labels for one resource; queries ask for the first."),
        ("no-namespace-label", _E, "A rule for objects in namespaces that maps no label to them."),
        ("no-group-by", _E, "A query whose rows don't carry the label of the object."),
        ("impossible-label", _E, "A label that no series can have, or not with such a value."),
        ("shadowed-rule", _W, "Two rules that give one metric; the last has it."),
        ("rate-of-gauge", _W, "`rate` of a series that goes up and down by itself."),
        ("counter-without-rate", _W, "A counter as it is, which only ever grows."),
        ("short-rate-window", _N, "A range that may hold fewer than two samples."),
        ("sum-of-percentages", _W, "A sum over several GPUs of what is a percentage or a ratio."),
        (
            "nan-without-traffic",
            _N,
            "A quantile of a histogram: NaN, and so absent, without traffic.",
        ),
        ("unknown-gpu-series", _W, "A name that looks like a GPU metric's and is none."),
        ("recorded-gpu-series", _N, "A GPU series that only a recording rule can make."),
        # Autoscalers and rules together
        ("unknown-metric", _E, "A metric that no rule names."),
        (
            "misspelled-metric",
            _W,
            "A metric that only rules for any series can give, and that is nearly another.",
        ),
        ("metric-not-for-resource", _E, "A metric that is there, but not for such objects."),
        ("external-rows-summed", _W, "Rows of an external metric that make no sense as a sum."),
        ("unreachable-target", _E, "A target that the metric can't get far enough above."),
        ("capped-replicas", _W, "A target with which the metric can't ask for `maxReplicas`."),
        ("cannot-wake", _W, "Scaling from zero on what only running pods can show."),
        ("exporter-pod", _N, "A `pod` label that may be the exporter's own pod."),
        ("scrape-job-label", _W, "The scrape job's name, taken for a Kubernetes Job's."),
        # Autoscalers alone
        ("impossible-selector", _E, "A metric selector that no series can match."),
        ("cluster-scoped-object", _E, "An object without a namespace, which an HPA can't ask for."),
        ("namespace-name-ignored", _W, "A Namespace other than the HPA's own."),
        ("ignored-target-type", _W, "`target.type` names another field than the one that counts."),
        ("contradicting-target-type", _E, "`target.type` names a field that is not set."),
        ("ignored-target-field", _W, "A field of the target that the controller does not look at."),
        ("gpu-resource-metric", _E, "A Resource metric on GPUs, which nobody measures."),
        ("removed-api-version", _E, "An API version that Kubernetes no longer serves."),
        ("scale-to-zero-gate", _N, "`minReplicas: 0`, which takes a feature gate."),
        ("two-hpas", _E, "Two autoscalers of one target."),
        ("several-rows", _W, "A KEDA query that may give more rows than the one that it takes."),
    )
)
"""Every check by its id, in the order in which the docs list them."""
