"""Faults of ScaledObjects, whatever their triggers measure: fallbacks, names, settings without effect.

Source: KEDA v2.21 apis/keda/v1alpha1/scaledobject_types.go (CheckFallbackValid),
    pkg/fallback/fallback.go (HasValidFallback), pkg/scaling/executor/scale_scaledobjects.go,
    pkg/scaling/scale_handler.go (no fallback without a metric spec: kedacore/keda#8056),
    pkg/scalers/prometheus_scaler.go, apis/keda/v1alpha1/scaledobject_webhook.go (verifyName,
    verifyScaledObjects, ValidateAndCompileScalingModifiers: the formula knows the names of triggers).
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuscale.base.documents.documents import Path
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.scaled_object import PROMETHEUS, ScaleTrigger
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.ops.lint.checks.reach import signal_findings
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.inputs import FileJudge, Inputs, PlacedScaledObject
from gpuscale.ops.lint.operators.refusals import Refusal
from gpuscale.ops.lint.parts import whole_document
from gpuscale.ops.lint.problems import refused_by, sentence
from gpuscale.triggers import read_metadata
from gpuscale.triggers.policies import policy_faults

_CHECKS = Checks()
FALLBACK_TO_ZERO = _CHECKS.add(
    "fallback-to-zero",
    Severity.WARNING,
    "`fallback.replicas: 0`, with which an error of a trigger scales to zero.",
    "Write the number of replicas that should run while the source is away, 1 at least.",
)
FALLBACK_WITHOUT_EFFECT = _CHECKS.add(
    "fallback-without-effect",
    Severity.ERROR,
    "A `fallback` that KEDA refuses or never applies: beside cpu and memory triggers alone, or beside a "
    "`scalingModifiers.target` that is no whole number above 0.",
    "Leave the fallback out, or write a whole number, and multiply the formula where it was a fraction.",
)
FALLBACK_OF_A_SCALER = _CHECKS.add(
    "fallback-of-a-scaler",
    Severity.NOTE,
    "A `fallback` for an external scaler: it never applies while the scaler can't be reached.",
    "Run two replicas of the scaler behind a headless Service, and have it hold its last decision.",
)
CA_IGNORED = _CHECKS.add(
    "ca-ignored",
    Severity.WARNING,
    "A prometheus trigger with a `ca` and without `authModes`, which ignores it.",
    "Write authModes into the trigger's metadata, such as tls or bearer.",
)
POLLING_WITHOUT_EFFECT = _CHECKS.add(
    "polling-without-effect",
    Severity.NOTE,
    "A `pollingInterval` that scales nothing, because only the HPA asks.",
    "Leave it out, or write minReplicaCount: 0, idleReplicaCount or useCachedMetrics.",
)
NAME_TOO_LONG = _CHECKS.add(
    "name-too-long",
    Severity.ERROR,
    "A name of more than 63 characters of a ScaledObject or of its HPA, which KEDA's webhook refuses.",
    "Shorten it; advanced.horizontalPodAutoscalerConfig.name gives the HPA another name.",
)
WRONG_TRIGGER = _CHECKS.add(
    "wrong-trigger",
    Severity.ERROR,
    "Metadata of a trigger on `gpuscale scaler` that it refuses.",
    "Correct it; the scaler answers such a trigger with an error.",
)

_TEXTS = re.compile(r"""("[^"]*"|'[^']*'|`[^`]*`)""")
_NAMES = re.compile(r"(?<![\w.$#])[A-Za-z_]\w*(?!\w|\s*\()")
"""Of values in a formula: neither functions nor fields of something."""
_LET = re.compile(r"\blet\s+(\w+)")
_WORDS = frozenset(
    (
        *("true", "false", "nil", "and", "or", "not", "in", "let", "if", "else"),
        *("matches", "contains", "startsWith", "endsWith"),
    )
)
"""Source: expr-lang v1.17 docs/language-definition.md."""
_MOST_CHARACTERS = 63
_EXTERNAL = frozenset({"external", "external-push"})
_OURS = frozenset({"workload", "wake", "wakeQuery", "wakeStart"})
"""Keys that only metadata of triggers on `gpuscale scaler` have; it holds its decisions itself."""
_POLLING = "pollingInterval"
"""A key that the scaler takes beside those of a trigger."""
_CA, _MODES = "ca", ("authModes", "authMode")


def keda_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' ScaledObjects."""
    for placed in inputs.scaled_objects:
        yield from _names(placed)
        yield from _fallback(placed)
        yield from refused_by("KEDA's webhook", _refused_modifiers(placed))
        yield from _polling(placed)
        for index, trigger in enumerate(placed.scaled.triggers):
            if trigger.kind == PROMETHEUS:
                yield from _ca(inputs, placed, index, trigger)
            elif trigger.kind in _EXTERNAL and _is_ours(trigger):
                yield from _metadata(placed, index, trigger)


def _names(placed: PlacedScaledObject) -> Iterator[LintFinding]:
    name, hpa = placed.scaled.metadata.name, placed.scaled.hpa_name
    if len(name) > _MOST_CHARACTERS:
        yield NAME_TOO_LONG.found(
            placed.place("metadata", "name"),
            f"The name has {len(name)} characters; KEDA takes {_MOST_CHARACTERS}, because it is the value of "
            "a label.",
        )
    elif len(hpa) > _MOST_CHARACTERS:
        given = ("spec", "advanced", "horizontalPodAutoscalerConfig", "name")
        is_given = "name" in placed.written(*given[:-1])
        yield NAME_TOO_LONG.found(
            placed.place(*(given if is_given else ("metadata", "name"))),
            f"The HPA's name has {len(hpa)} characters; KEDA takes {_MOST_CHARACTERS}.",
            hpa,
        )


def _fallback(placed: PlacedScaledObject) -> Iterator[LintFinding]:
    scaled = placed.scaled
    if scaled.fallback is None:
        return
    if scaled.fallback.replicas == 0 and (scaled.least == 0 or scaled.idle is not None):
        yield FALLBACK_TO_ZERO.found(
            placed.place("spec", "fallback", "replicas"),
            "While a trigger fails, KEDA takes the target for idle and scales it to "
            f"{scaled.idle or 0} after the cooldown: the outage of a source stops the workload.",
            "With any other number KEDA waits for the fallback instead.",
        )
    modifiers = scaled.modifiers
    if modifiers is None and scaled.triggers and all(each.is_resource for each in scaled.triggers):
        kinds = ", ".join(each.kind for each in scaled.triggers)
        yield FALLBACK_WITHOUT_EFFECT.found(
            placed.place("spec", "fallback"),
            "KEDA's webhook refuses a fallback where no trigger but cpu and memory has a value of KEDA's.",
            f"triggers: {kinds}",
            "Leave the fallback out: what such triggers ask, the HPA asks the resource metrics API.",
        )
    if modifiers is not None and not _is_whole(modifiers.target):
        yield FALLBACK_WITHOUT_EFFECT.found(
            placed.place("spec", "advanced", "scalingModifiers", "target"),
            f"The fallback never applies: with scalingModifiers it takes a whole number as target, and "
            f"{modifiers.target!r} is none.",
            "KEDA's webhook lets it pass; errors then reach the HPA as they are.",
        )
    others = [each for each in scaled.triggers if each.kind in _EXTERNAL and not _is_ours(each)]
    if others:
        address = others[0].metadata.get("scalerAddress", "")
        yield FALLBACK_OF_A_SCALER.found(
            placed.place("spec", "fallback"),
            "KEDA counts failures of metrics that it knows, and it learns them from the scaler: while that "
            "can't be reached, the fallback does not apply (kedacore/keda#8056).",
            f"scalerAddress: {address}" if address else "",
        )


def _refused_modifiers(placed: PlacedScaledObject) -> Iterator[Refusal]:
    modifiers, scaled = placed.scaled.modifiers, placed.scaled
    path = ("spec", "advanced", "scalingModifiers")
    part = whole_document(placed.document).at(*path)
    if modifiers is None:
        if scaled.fallback is not None and scaled.fallback.behavior.value == path[-1]:
            behavior = whole_document(placed.document).at("spec", "fallback", "behavior")
            yield Refusal(behavior, "another one: there is no scalingModifiers.formula")
        return
    try:
        float(modifiers.target)
    except ValueError:
        if "$" not in modifiers.target and "{" not in modifiers.target:
            yield Refusal(
                part.at("target"), "a number above 0, to hold the formula's value against"
            )
    if modifiers.metric_type == "Utilization":
        yield Refusal(part.at("metricType"), "AverageValue or Value")
    named = {each.name for each in scaled.triggers if each.name and not each.is_resource}
    formula = _TEXTS.sub(" ", modifiers.formula)
    known = named | _WORDS | {*_LET.findall(formula)}
    unknown = [name for name in dict.fromkeys(_NAMES.findall(formula)) if name not in known]
    if unknown:
        names = ", ".join(sorted(named)) or "none, as no trigger but cpu and memory has one"
        yield Refusal(
            part.at("formula"),
            f"the names of triggers alone, and {unknown[0]} is none; there are {names}",
        )


def _is_ours(trigger: ScaleTrigger) -> bool:
    is_named = "gpuscale" in trigger.metadata.get("scalerAddress", "")
    return is_named or not _OURS.isdisjoint(trigger.metadata)


def _metadata(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger
) -> Iterator[LintFinding]:
    given = {key: text for key, text in trigger.metadata.items() if key != _POLLING}
    try:
        read = read_metadata(given, placed.scaled.metadata.namespace, check=policy_faults)
    except ConfigError as error:
        for problem in error.problems:
            path: Path = ("spec", "triggers", index, "metadata")
            key = problem.field or ""
            at = (*path, key) if key in trigger.metadata else path
            bare = replace(problem, source="", line=None, field=None, fix=None)
            said = str(bare).removeprefix(": ")
            what = said if problem.found or said[:1].isupper() else f"expected {said}"
            fix = sentence(problem.fix) if problem.fix else None
            yield WRONG_TRIGGER.found(placed.place(*at), f"{key}: {what.rstrip('.')}.", "", fix)
        return
    target = placed.place("spec", "triggers", index, "metadata", "target")
    yield from signal_findings(read, target, placed.scaled.most, DEFAULT_SETTINGS.tolerance)


def _is_whole(target: str) -> bool:
    return target.isascii() and target.isdigit() and int(target) > 0


def _polling(placed: PlacedScaledObject) -> Iterator[LintFinding]:
    if "pollingInterval" in placed.written("spec") and not placed.scaled.polls_matter:
        yield POLLING_WITHOUT_EFFECT.found(
            placed.place("spec", "pollingInterval"),
            "pollingInterval scales nothing here: above minReplicaCount the HPA asks, every 15 s.",
            f"minReplicaCount: {placed.scaled.least}, no idleReplicaCount, no useCachedMetrics",
        )


def _ca(
    inputs: Inputs, placed: PlacedScaledObject, index: int, trigger: ScaleTrigger
) -> Iterator[LintFinding]:
    path: Path = ("spec", "triggers", index)
    kind = str(placed.written(*path, "authenticationRef").get("kind") or "TriggerAuthentication")
    namespace = "default" if kind.startswith("Cluster") else placed.scaled.metadata.namespace
    parameters = inputs.authentications.get((namespace, kind, trigger.authentication), frozenset())
    has_ca = _CA in parameters or _CA in trigger.metadata
    if has_ca and not any(key in trigger.metadata or key in parameters for key in _MODES):
        at = "authenticationRef" if _CA in parameters else "metadata"
        yield CA_IGNORED.found(
            placed.place(*path, at),
            "KEDA ignores the CA: without authModes it does not look at what authenticates the trigger.",
            f"{kind} {trigger.authentication} gives {', '.join(sorted(parameters))}."
            if _CA in parameters
            else "",
        )


JUDGE = FileJudge("keda", _CHECKS, keda_findings)
