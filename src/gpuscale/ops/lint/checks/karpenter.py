"""Faults of Karpenter's NodePools and node classes.

Source: karpenter v1.15 pkg/apis/crds/karpenter.sh_nodepools.yaml (what the API server takes),
    pkg/scheduling (Requirements.Compatible, Requirement.Any: labels that are not well known),
    pkg/controllers/disruption; karpenter-provider-aws v1.14 pkg/apis/crds (EC2NodeClass).
"""

import re
from collections.abc import Iterator, Sequence

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.words import closest
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.node_pools import NODE_POOL, Pool, is_known_after_boot
from gpuscale.ops.lint.parts import Part
from gpuscale.ops.lint.problems import REFUSED_MANIFEST, UNKNOWN_FIELD

_CHECKS = Checks()
LABEL_AFTER_BOOT = _CHECKS.add(
    "label-after-boot",
    Severity.WARNING,
    "A NodePool that requires a label which GPU Feature Discovery or NFD writes once a node runs.",
    "Require what Karpenter knows of instance types before they start.",
)
CONSOLIDATES_AT_ONCE = _CHECKS.add(
    "consolidates-at-once",
    Severity.NOTE,
    "A NodePool of GPUs with `consolidateAfter: 0s`, which is the default.",
    "Write a consolidateAfter above the time that a pod takes to start, or karpenter.sh/do-not-disrupt on "
    "its pods.",
)
SINGLE_TYPE = _CHECKS.add(
    "single-type",
    Severity.NOTE,
    "A NodePool of GPUs with one instance type and one capacity type: nothing to fall back on.",
    "Allow other types with such GPUs, or a second NodePool with a lower weight.",
)
FEW_PODS = _CHECKS.add(
    "few-pods",
    Severity.WARNING,
    "A node class whose `maxPods` leaves no room beside DaemonSets.",
    "Leave maxPods out, or count the pods of DaemonSets in.",
)
OLD_KARPENTER = _CHECKS.add(
    "old-karpenter",
    Severity.NOTE,
    "A version of Karpenter's API that its releases from 1.1 on don't serve.",
    "Write karpenter.sh/v1.",
)

_DURATION = re.compile(r"([0-9]+(s|m|h))+|Never")
_ZERO = re.compile(r"(0+(s|m|h))+")
_BUDGET = re.compile(r"(100|[0-9]{1,2})%|[0-9]+")
_BUDGET_TIME = re.compile(r"(([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_POLICIES = ("WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced")
_REASONS = ("Underutilized", "Empty", "Drifted")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FIELDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("spec",): ("template", "disruption", "limits", "weight", "replicas"),
    ("spec", "template"): ("metadata", "spec"),
    ("spec", "template", "spec"): (
        *("nodeClassRef", "requirements", "taints", "startupTaints", "expireAfter"),
        "terminationGracePeriod",
    ),
    ("spec", "template", "spec", "nodeClassRef"): ("group", "kind", "name"),
    ("spec", "disruption"): ("consolidationPolicy", "consolidateAfter", "budgets"),
}
_INSTEAD = {
    "aws": "karpenter.k8s.aws/instance-gpu-name",
    "azure": "karpenter.azure.com/sku-gpu-name",
    "google": "karpenter.k8s.gcp/instance-gpu-name",
}
_OF_EACH_NODE = 2
"""DaemonSets that an EKS node has at least: aws-node and kube-proxy."""


def karpenter_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' NodePools and node classes."""
    for pool in inputs.nodes.pools:
        if pool.kind != NODE_POOL:
            continue
        version = pool.part.text("apiVersion")
        if version != "karpenter.sh/v1":
            yield OLD_KARPENTER.found(
                pool.part.place("apiVersion"), f"Karpenter 1.1 and later do not serve {version}."
            )
        else:
            yield from _schema(pool.part)
        yield from _labels(pool)
        if pool.is_of_gpus:
            yield from _consolidation(pool)
            yield from _single_type(pool)
    for node_class in inputs.nodes.objects.get("EC2NodeClass", ()):
        if node_class.text("apiVersion") == "karpenter.k8s.aws/v1":
            yield from _node_class(node_class)
        yield from _few_pods(node_class)


def _schema(pool: Part) -> Iterator[LintFinding]:
    for path, known in _FIELDS.items():
        for key in pool.fields(*path):
            if key not in known:
                yield _unknown(pool.at(*path), str(key), known)
    spec = pool.at("spec", "template", "spec")
    for each in ("group", "kind", "name"):
        if spec.at("nodeClassRef").data is not None and not spec.text("nodeClassRef", each):
            yield _refused(
                spec.at("nodeClassRef", each), "the group, kind and name of a node class"
            )
    if spec.at("requirements").data is None:
        yield _refused(spec.at("requirements"), "a list of requirements, which may be empty")
    for requirement in spec.items("requirements"):
        yield from _requirement(requirement)
    for key in ("taints", "startupTaints"):
        for taint in spec.items(key):
            yield from _one_of(taint.at("effect"), _EFFECTS)
            if taint.at("value").data is not None and not isinstance(taint.at("value").data, str):
                yield _refused(taint.at("value"), "text: put it into quotes")
    yield from _matching(spec.at("expireAfter"), _DURATION, "a time such as 720h, or Never")
    disruption = pool.at("spec", "disruption")
    yield from _one_of(disruption.at("consolidationPolicy"), _POLICIES)
    expected = "a time such as 5m, or Never"
    yield from _matching(disruption.at("consolidateAfter"), _DURATION, expected)
    for budget in disruption.items("budgets"):
        yield from _budget(budget)
    weight = pool.at("spec", "weight")
    if weight.data is not None and not 1 <= (weight.whole() or 0) <= 100:
        yield _refused(weight, "a number from 1 to 100")


def _requirement(each: Part) -> Iterator[LintFinding]:
    yield from _one_of(each.at("operator"), _OPERATORS)
    operator, values = each.text("operator"), list(each.items("values"))
    for value in values:
        if not isinstance(value.data, str):
            yield _refused(value, f'text, also of a number: "{value.text()}"')
    if operator == "In" and not values:
        yield _refused(each, "at least one value with the operator In", found="no value")
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (
        len(values) == 1 and values[0].text().isdigit()
    ):
        found = ", ".join(value.text() for value in values) or "no value"
        expected = f"one value, a whole number, with the operator {operator}"
        yield _refused(each, expected, found=found)
    least = each.whole("minValues")
    if operator == "In" and least is not None and values and len(values) < least:
        yield _refused(each.at("minValues"), f"at most {len(values)}, the number of values")
    key = each.text("key")
    domain = key.rpartition("/")[0]
    if (domain.endswith("karpenter.sh") and key != "karpenter.sh/capacity-type") or (
        key == "kubernetes.io/hostname"
    ):
        yield _refused(each.at("key"), "a label that Karpenter does not keep for itself")


def _budget(budget: Part) -> Iterator[LintFinding]:
    yield from _matching(budget.at("nodes"), _BUDGET, 'text such as "1" or "10%", up to "100%"')
    for reason in budget.items("reasons"):
        yield from _one_of(reason, _REASONS)
    has = [key for key in ("schedule", "duration") if budget.at(key).data is not None]
    if len(has) == 1:
        yield _refused(budget, "schedule and duration together, or neither", found=has[0])
    expected = "hours and minutes such as 8h or 1h30m"
    yield from _matching(budget.at("duration"), _BUDGET_TIME, expected)


def _labels(pool: Pool) -> Iterator[LintFinding]:
    for requirement, part in pool.requirements:
        operator = part.text("operator")
        if not is_known_after_boot(requirement.key) or operator not in (
            "Exists",
            "NotIn",
            "Gt",
            "Lt",
        ):
            continue
        instead = _INSTEAD.get(pool.cloud)
        yield LABEL_AFTER_BOOT.found(
            part.place("key"),
            f"{requirement.key} is written once a node runs, so Karpenter knows it of no instance type: it "
            "chooses none by it, and gives new nodes the label itself: what their pods ask for, or a random "
            "number.",
            f"operator: {operator}",
            f"Require {instead}, and give the label in template.metadata.labels where pods select by it."
            if instead
            else None,
        )


def _consolidation(pool: Pool) -> Iterator[LintFinding]:
    disruption = pool.part.at("spec", "disruption")
    if (
        disruption.text("consolidationPolicy") == "WhenEmpty"
        or pool.part.at("spec", "replicas").data
    ):
        return
    after = disruption.text("consolidateAfter")
    if after and not _ZERO.fullmatch(after):
        return
    closed = [each for each in disruption.items("budgets") if each.text("nodes") in ("0", "0%")]
    if any(each.at("schedule").data is None and not each.texts("reasons") for each in closed):
        return
    place = disruption.at("consolidateAfter") if after else pool.part.at("spec")
    yield CONSOLIDATES_AT_ONCE.found(
        place.place(),
        "Karpenter moves pods as soon as other nodes are cheaper, also those that load a model for minutes; "
        "the new node and the old one are both paid for meanwhile (karpenter#651).",
        f"consolidateAfter: {after}" if after else "",
    )


def _single_type(pool: Pool) -> Iterator[LintFinding]:
    names = pool.type_names
    capacity = [
        each.values for each, _ in pool.requirements if each.key == "karpenter.sh/capacity-type"
    ]
    if names is None or len(names) != 1 or not capacity or any(len(each) != 1 for each in capacity):
        return
    (part,) = (
        part
        for requirement, part in pool.requirements
        if names[0] in requirement.values and len(requirement.values) == 1
    )
    yield SINGLE_TYPE.found(
        part.place("values"),
        f"{names[0]} as {capacity[0][0]} is all that this NodePool may have: while the cloud has none, its "
        "pods wait.",
    )


def _node_class(node_class: Part) -> Iterator[LintFinding]:
    spec = node_class.at("spec")
    if not isinstance(spec.data, dict):
        return
    has = [key for key in ("role", "instanceProfile") if spec.at(key).data is not None]
    if len(has) != 1:
        yield _refused(
            spec, "one of role and instanceProfile", found=" and ".join(has) or "neither"
        )
    for key in ("subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms"):
        if spec.at(key).data in (None, []):
            yield _refused(spec.at(key), "at least one term", found="none")
    terms = list(spec.items("amiSelectorTerms"))
    aliases = [each for each in terms if each.at("alias").data is not None]
    if not aliases and terms and spec.at("amiFamily").data is None:
        yield _refused(spec, "one where no term has an alias", found="no amiFamily")
    for each in aliases:
        if len(terms) > 1:
            yield _refused(each.at("alias"), "no other terms beside an alias")
        if any(each.at(key).data is not None for key in ("id", "tags", "name", "owner")):
            yield _refused(each.at("alias"), "no other fields beside an alias")
        yield from _alias(each.at("alias"), spec.at("amiFamily"))


def _alias(alias: Part, family: Part) -> Iterator[LintFinding]:
    known = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025")
    name, separator, version = alias.text().partition("@")
    if not separator or not version or name not in known:
        yield _refused(alias, f"FAMILY@VERSION with a family of {', '.join(known)}")
    elif family.text() and family.text().lower() not in (name, "custom"):
        yield _refused(family, f"the alias' family, or Custom, beside {alias.text()}")


def _few_pods(node_class: Part) -> Iterator[LintFinding]:
    most = node_class.whole("spec", "kubelet", "maxPods")
    if most is not None and most <= _OF_EACH_NODE:
        yield FEW_PODS.found(
            node_class.place("spec", "kubelet", "maxPods"),
            f"Pods of DaemonSets count too, and each EKS node has {_OF_EACH_NODE} of them at least, aws-node "
            f"and kube-proxy: with {most} no other pod fits (karpenter-provider-aws#6884).",
        )


def _matching(part: Part, form: re.Pattern[str], expected: str) -> Iterator[LintFinding]:
    if part.data is not None and not (isinstance(part.data, str) and form.fullmatch(part.data)):
        yield _refused(part, expected)


def _one_of(part: Part, known: Sequence[str]) -> Iterator[LintFinding]:
    if part.data is not None and part.data not in known:
        yield _refused(part, f"one of {', '.join(known)}")


def _refused(part: Part, expected: str, found: str | None = None) -> LintFinding:
    text = found or ("nothing" if part.data is None else None)
    if text is None:
        text = repr(part.data) if isinstance(part.data, str | int | float) else "another form"
    return REFUSED_MANIFEST.found(
        part.place(),
        f"Found {text}, expected {expected}.",
        "",
        "Correct it; the API server refuses it.",
    )


def _unknown(part: Part, key: str, known: Sequence[str]) -> LintFinding:
    meant = closest(key, known)
    is_least = key.lower() in ("min", "minnodes", "minsize", "mincount")
    fix = (
        f"Did you mean {meant}?"
        if meant
        else f"Leave it out; the fields here are {', '.join(known)}."
    )
    if is_least:
        fix = (
            "A NodePool has no minimum: nodes come for pods, and stay as long as pods need them. For spare "
            "nodes, run pause pods with a low priority."
        )
    return UNKNOWN_FIELD.found(
        part.place(key),
        "karpenter.sh/v1 has no such field: kubectl refuses the object, and through other clients the field "
        "is lost.",
        "",
        fix,
    )


JUDGE = FileJudge("karpenter", _CHECKS, karpenter_findings)
