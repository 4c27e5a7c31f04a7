"""From the texts of files to the inputs of checks: rules, autoscalers, objects around them.

Judges look at these alone.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.findings import Judge, Unseen
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.fields import Fields, shown
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.hpa.fields import unknown_fields
from gpuscale.base.objects.manifests import read_manifest
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.base.words import closest
from gpuscale.hpa.cluster.catalogue import ListedType
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.ops.lint.charts import objects_of_values, values_within
from gpuscale.ops.lint.cluster import Cluster
from gpuscale.ops.lint.findings import LintFinding, PassedOver, Place
from gpuscale.ops.lint.node_inputs import NodeInputs, is_autoscaler_chart, sharing_of
from gpuscale.ops.lint.operators.kinds import CustomKind, custom_kind, kind_of_definition
from gpuscale.ops.lint.operators.made import LIMITS, Made
from gpuscale.ops.lint.parts import Part, place_in, whole_document
from gpuscale.ops.lint.problems import (
    BROKEN_FILE,
    REFUSED_MANIFEST,
    UNKNOWN_FIELD,
    ignored_by,
    refused,
    refused_by,
    refused_object,
)
from gpuscale.ops.lint.reconcilers import Reconciler, reconciler_of
from gpuscale.ops.lint.removed import Removed, removed
from gpuscale.ops.lint.rule_inputs import PlacedRule, RuleReading, is_rules, read_preset, read_rules
from gpuscale.ops.lint.serving import RuleIndex
from gpuscale.ops.lint.workloads import SCALED, ObjectKey, Workload, key_of
from gpuscale.signals import CountersRead, read_counters
from gpuscale.triggers import Trigger, is_trigger_file, read_triggers
from gpuscale.triggers.policies import policy_faults

_GROUPS = {
    "Deployment": "apps",
    "Service": "",
    "HorizontalPodAutoscaler": "autoscaling",
    "ScaledObject": "keda.sh",
}
"""Kinds that are read, with the group that makes them these."""
_ADAPTER = "prometheus-adapter"
_COUNTERS = re.compile(r"^\s*DCGM_FI_\w+\s*,\s*\w+\s*,", re.MULTILINE)
"""A row of dcgm-exporter's list of fields."""
_SERIES_OF = (("dcgm", "DCGM_"), ("gpu-metrics", "DCGM_"), ("engine-servicemonitor", "vllm:"))
"""Words in the names of monitors and jobs that say which series these are for."""
_WITHOUT_IT = "the other files were read without it"
_MONITORS = frozenset({"ServiceMonitor", "PodMonitor"})
_AUTHENTICATIONS = frozenset({"TriggerAuthentication", "ClusterTriggerAuthentication"})


@dataclass(frozen=True, slots=True)
class PlacedHpa:
    """An HPA with its place."""

    hpa: HorizontalPodAutoscaler
    document: Document

    def place(self, *path: str | int) -> Place:
        """Return the place of a field in the manifest."""
        return place_in(self.document, path)

    @property
    def version(self) -> str:
        """Return the API version without group, such as `v2`."""
        data = self.document.data
        text = data.get("apiVersion") if isinstance(data, dict) else ""
        return str(text).removeprefix("autoscaling/")


@dataclass(frozen=True, slots=True)
class PlacedScaledObject:
    """A ScaledObject with its place."""

    scaled: ScaledObject
    document: Document

    def place(self, *path: str | int) -> Place:
        """Return the place of a field in the manifest."""
        return place_in(self.document, path)

    def written(self, *path: str | int) -> Mapping[str, object]:
        """Return a mapping of the manifest as written; an empty one if it is absent."""
        found: object = self.document.data
        for key in path:
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and isinstance(key, int) and key < len(found):
                found = found[key]
            else:
                return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Scrape:
    """How often samples are taken."""

    interval_ms: int | None
    """None: by default."""
    place: Place
    of: str
    """How the names of its series begin; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """The list of fields that a dcgm-exporter serves."""

    part: Part
    read: CountersRead


@dataclass(slots=True)
class Inputs:
    """The content of all files, as checks read it."""

    rules: list[PlacedRule] = field(default_factory=list)
    external_rules: list[PlacedRule] = field(default_factory=list)
    hpas: list[PlacedHpa] = field(default_factory=list)
    scaled_objects: list[PlacedScaledObject] = field(default_factory=list)
    limits: list[Made] = field(default_factory=list)
    """Of operators that scale by themselves."""
    defined: dict[tuple[str, str], CustomKind] = field(default_factory=dict)
    """Kinds whose CustomResourceDefinition is among the objects, by group and kind."""
    made: list[Made] = field(default_factory=list)
    """What operators make of custom resources, still to be read."""
    custom: RuleIndex = field(default_factory=RuleIndex)
    """The same rules by the metrics that they give."""
    external: RuleIndex = field(default_factory=RuleIndex)
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict)
    """The first of each name, of any kind that has replicas or a pod template."""
    authentications: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """The parameters that KEDA's TriggerAuthentications give."""
    triggers: list[Trigger] = field(default_factory=list)
    """Of trigger files, whose metrics are served as external ones."""
    served: dict[tuple[str, str], Trigger] = field(default_factory=dict)
    """The trigger that serves an external metric, by namespace and name."""
    prometheus_rules: list[Part] = field(default_factory=list)
    """Alerts and recording rules of Prometheus."""
    exporters: list[Exporter] = field(default_factory=list)
    """Exporters with the list of what they serve."""
    recorded: set[str] = field(default_factory=set)
    """Series that recording rules make."""
    honors_labels: bool = False
    """Whether a monitor keeps the labels of the exporter."""
    scrapes: list[Scrape] = field(default_factory=list)
    rule_files: int = 0
    has_all_rules: bool = True
    """False where a rule file can't be used or is not there, so that a metric may be served all the same."""
    values: int = 0
    """Values files of other projects' charts."""
    removed: list[tuple[Part, Removed]] = field(default_factory=list)
    """Objects of versions and kinds that are no longer served, with what replaced them."""
    refused: Counter[str] = field(default_factory=Counter)
    """How many objects of a kind can't be read."""
    nodes: NodeInputs = field(default_factory=NodeInputs)
    findings: list[LintFinding] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)
    kubernetes: KubernetesVersion | None = None
    """The release of the cluster that they are for; None where nobody said."""
    cluster: Cluster = field(default_factory=Cluster)
    """What a live one says beside its objects; nothing where there are files alone."""
    reconcilers: list[Reconciler] = field(default_factory=list)
    """What has manifests applied again and again."""
    is_simulated: bool = False
    """Whether a scenario is among the files, where replicas are those to begin with."""
    scenario_workloads: list[Part] = field(default_factory=list)
    """What scenarios say of workloads, such as the time in which they start."""
    has_made: set[ObjectKey] = field(default_factory=set)
    """Live objects of which an operator has made others."""
    named: set[ObjectKey] = field(default_factory=set)
    """The objects of files."""
    live: set[str] = field(default_factory=set)
    """The sources of documents that a cluster has so, and that are no manifests."""
    skipped: list[Problem] = field(default_factory=list)
    """Why files were passed over."""
    unseen: list[Unseen] = field(default_factory=list)
    """What checks would need to see, and don't."""


def read_inputs(
    texts: Sequence[tuple[str, str]],
    objects: Sequence[Mapping[str, object]] = (),
    kubernetes: KubernetesVersion | None = None,
    instance_types: Mapping[str, ListedType] | None = None,
    cluster: Cluster | None = None,
    may_skip: Collection[str] = (),
) -> Inputs:
    """Return the content of files, of objects without a file, and of a live cluster.

    Args:
        texts: file name and text of each.
        objects: as `render` makes them; `object_name` is their place.
        kubernetes: release of the cluster that they are for.
        instance_types: by name; None for the built-in ones.
        cluster: what is there already; None where nobody looked.
        may_skip: names of files that are passed over where they are broken. The others' faults are findings.
    """
    nodes = NodeInputs() if instance_types is None else NodeInputs(instance_types)
    inputs = Inputs(kubernetes=kubernetes, nodes=nodes, cluster=cluster or Cluster())
    for source, text in texts:
        try:
            _read_file(inputs, source, text)
        except ConfigError as error:
            if source in may_skip:
                inputs.skipped += error.problems
                continue
            inputs.findings += (refused(BROKEN_FILE, each, _WITHOUT_IT) for each in error.problems)
            inputs.has_all_rules = False  # It may have some.
    for index, each in enumerate(objects):
        _read_document(inputs, Document(object_name(each), index, each, {}), "")
    _read_made(inputs)
    _read_cluster(inputs)
    _read_made(inputs)
    _find_templates(inputs)
    inputs.unseen += inputs.cluster.unseen
    inputs.recorded |= {each.text("record") for each in inputs.prometheus_rules}
    if inputs.rule_files == 0:
        inputs.has_all_rules = False
        _add_rules(inputs, read_preset())
    inputs.custom, inputs.external = RuleIndex(inputs.rules), RuleIndex(inputs.external_rules)
    return inputs


def _read_cluster(inputs: Inputs) -> None:
    """Read the live objects that no file stands in place of.

    What operators made of live custom resources is there, so nothing is made of those once more.
    """
    passed_over = len(inputs.passed_over)
    for each in inputs.cluster.objects:
        whole = whole_document(Document("", 0, each, {}))
        namespace = key_of(whole)[0]
        inputs.has_made |= {
            (namespace, owner.text("kind"), owner.text("name"))
            for owner in whole.items("metadata", "ownerReferences")
        }
    for index, each in enumerate(inputs.cluster.objects):
        document = Document(object_name(each), index, each, {})
        if key_of(whole_document(document)) in inputs.named:
            continue
        inputs.live.add(document.source)
        try:
            _read_document(inputs, document, "")
        except ConfigError as error:  # such as rules in a ConfigMap that are no YAML
            inputs.findings += (refused(BROKEN_FILE, one, _WITHOUT_IT) for one in error.problems)
            inputs.has_all_rules = False
    del inputs.passed_over[passed_over:]  # A cluster has more than is autoscaled.


def _read_made(inputs: Inputs) -> None:
    """Read what operators make of the objects so far, but for what is among these itself."""
    while inputs.made:
        made, inputs.made = inputs.made, []
        for document in made:
            key = key_of(whole_document(document))
            if key[1] == LIMITS[1]:
                inputs.limits.append(document)
            elif key not in inputs.named:
                _read_document(inputs, document, "")


def _find_templates(inputs: Inputs) -> None:
    """Give Rollouts the template of the Deployment that they name.

    Source: argo-rollouts v1.9 pkg/apis/rollouts/v1alpha1/types.go (WorkloadRef).
    """
    for key, each in inputs.workloads.items():
        reference = each.part.at("spec", "workloadRef")
        named = key[0], reference.text("kind"), reference.text("name")
        if reference.fields() and named in inputs.workloads:
            inputs.workloads[key] = replace(each, template_of=inputs.workloads[named].part)


def object_name(manifest: Mapping[str, object]) -> str:
    """Return an object's name where no file holds it: `HorizontalPodAutoscaler prod/bert`."""
    metadata = manifest.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    key = "/".join(str(names[part]) for part in ("namespace", "name") if names.get(part))
    return f"{manifest.get('kind', 'object')} {key}".strip()


def _read_file(inputs: Inputs, source: str, text: str) -> None:
    documents = load_documents(text, source)
    if not documents:
        inputs.skipped.append(Problem(source, None, None, "an empty file", "rules or manifests"))
    if any(is_trigger_file(document.data) for document in documents):
        _add_triggers(inputs, text, source)
        return
    if len(documents) == 1 and is_rules(documents[0].data):
        inputs.rule_files += 1
        _add_rules(inputs, read_rules(documents[0], text))
        return
    if len(documents) == 1 and _read_adapter_section(inputs, documents[0], text):
        return
    problems: list[Problem] = []
    for document in documents:
        try:
            _read_document(inputs, document, text)
        except ConfigError as error:
            problems.extend(error.problems)
    if len(documents) == 1 and not _is_manifest(documents[0].data):
        inputs.skipped += problems
        return
    if problems:
        raise ConfigError(*problems)


def _read_adapter_section(inputs: Inputs, document: Document, text: str) -> bool:
    """Read the values of prometheus-adapter's chart in those of a chart around it; return whether it is all.

    Rules are compiled from their text, so the section's lines are read as a file of their own.
    """
    data = document.data
    if not isinstance(data, dict) or not is_rules(data.get(_ADAPTER)) or _is_manifest(data):
        return False
    start = document.line((_ADAPTER,)) or 0
    lines = [document.line((key,)) or 0 for key in data]
    end = min((each for each in lines if each > start), default=None)
    body = text.split("\n")[start : None if end is None else end - 1]
    inside = "\n" * start + "\n".join(body)
    with suppress(ConfigError):
        for each in load_documents(inside, document.source):
            inputs.values += 1
            inputs.rule_files += 1
            _add_rules(inputs, read_rules(each, inside))
    return objects_of_values(whole_document(document)) is None


def _add_rules(inputs: Inputs, reading: RuleReading) -> None:
    inputs.rules.extend(reading.rules)
    inputs.external_rules.extend(reading.external_rules)
    inputs.findings.extend(reading.findings)
    inputs.has_all_rules &= reading.has_all


def _add_triggers(inputs: Inputs, text: str, source: str) -> None:
    for each in read_triggers(text, source, policy_faults):
        inputs.triggers.append(each)
        inputs.served.setdefault((each.namespace, each.name), each)


# Manifests


def _read_document(inputs: Inputs, document: Document, text: str) -> None:
    data = document.data
    if is_autoscaler_chart(data):
        inputs.nodes.charts.append(whole_document(document))
        return
    if (objects := objects_of_values(whole_document(document))) is not None:
        inputs.values += 1
        for each in objects:
            _read_document(inputs, each, text)
        return
    if not (isinstance(data, dict) and _is_manifest(data)):
        expected = "a manifest with apiVersion and kind; rules stand alone in their file"
        raise ConfigError(document.problem((), expected, found=shown(data)))
    kind = str(data.get("kind"))
    if isinstance(data.get("items"), list) and kind.endswith("List"):
        for item in _items(document, data["items"]):
            _read_document(inputs, item, text)
        return
    whole = whole_document(document)
    if kind == "Scenario":
        inputs.is_simulated = True
        inputs.scenario_workloads += whole.items("spec", "workloads")
    inputs.named.add(key_of(whole))
    gone = removed(whole)
    if gone is not None:
        inputs.removed.append((whole, gone))
        if not gone.is_read:
            return
    if kind in _GROUPS and data.get("apiVersion") is None:
        inputs.findings.append(_without_version(whole))
        return
    if kind in SCALED or {"replicas", "template", "workloadRef"} & whole.fields("spec").keys():
        workload = Workload(whole, document.source in inputs.live)
        inputs.workloads.setdefault(key_of(whole), workload)
    known = custom_kind(whole.text("apiVersion"), kind)
    refused = tuple(known.refuses(whole)) if known is not None and known.refuses is not None else ()
    if known is not None and refused:
        inputs.findings += refused_by(known.refuser, refused)
    if known is not None and known.ignores is not None and not refused:
        inputs.findings += ignored_by(known.ignores(whole))
    makes = None if known is None or refused else known.makes
    made = () if makes is None else tuple(makes(whole))
    # Pods of what is made of it are read there.
    has_pods = all(each.is_autoscaler for each in made)
    if document.source not in inputs.live or key_of(whole) not in inputs.has_made:
        inputs.made += made
    is_of_nodes = inputs.nodes.read(document, has_pods=has_pods)
    is_pods = isinstance(document, Made) and "template" in whole.fields("spec")
    if str(data.get("apiVersion")).rpartition("/")[0] == _GROUPS.get(kind) and not is_pods:
        _read_object(inputs, document)
    elif is_of_nodes or is_pods:
        return
    elif kind == "ConfigMap":
        _read_config_map(inputs, document, text)
    else:
        has_values = _read_values_within(inputs, whole, text)
        _read_beside(inputs, document, kind, has_values=has_values)


def _is_manifest(data: object) -> bool:
    """Return whether a document is an object of Kubernetes, or a file of Prometheus' rules."""
    return isinstance(data, dict) and ("kind" in data or "groups" in data)


def _without_version(whole: Part) -> LintFinding:
    meant = closest("apiVersion", whole.fields(), cutoff=0.8)
    return REFUSED_MANIFEST.found(
        whole.place(meant or "kind"),
        "Found no apiVersion, expected one, as of each object.",
        "",
        f"Write apiVersion in place of {meant}." if meant else None,
    )


def _items(document: Document, items: list[object]) -> Iterator[Document]:
    """Return a List's items as documents."""
    lines: dict[int, dict[Path, int]] = {}
    for path, line in document.lines.items():
        match path:
            case ("items", int() as index, *rest):
                lines.setdefault(index, {})[tuple(rest)] = line
    for index, item in enumerate(items):
        yield Document(document.source, document.index, item, lines.get(index, {}))


def _read_object(inputs: Inputs, document: Document) -> None:
    kind = document.data.get("kind") if isinstance(document.data, dict) else None
    if kind == "HorizontalPodAutoscaler" and not isinstance(document, Made):
        inputs.findings += _unknown_fields(document)
    try:
        found = read_manifest(document)
    except ConfigError as error:
        inputs.findings += refused_object(document, error.problems)
        inputs.refused[str(kind)] += 1
        return
    if isinstance(found, ScaledObject):
        inputs.scaled_objects.append(PlacedScaledObject(found, document))
    elif isinstance(found, HorizontalPodAutoscaler):
        inputs.hpas.append(PlacedHpa(found, document))


def _unknown_fields(document: Document) -> Iterator[LintFinding]:
    data = document.data if isinstance(document.data, dict) else {}
    for each in unknown_fields(data):
        meant = f"Did you mean {each.meant}?" if each.meant else ""
        yield UNKNOWN_FIELD.found(
            place_in(document, each.path),
            f"{data['apiVersion']} has no such field: kubectl refuses the object, and through other "
            "clients the field is lost.",
            "",
            meant or f"Leave it out; the fields here are {', '.join(each.known)}.",
        )


def _read_config_map(inputs: Inputs, document: Document, text: str) -> None:
    """Read the rule files in a ConfigMap, such as prometheus-adapter's."""
    sharing = tuple(sharing_of(document))
    inputs.nodes.sharing += sharing
    found = bool(sharing)
    for name, value in Fields(document, document.data).child("data").data.items():
        if not isinstance(value, str):
            continue
        line = document.line(("data", name)) or 0
        padded = "\n" * line + value if is_block(text, line, value) else value
        if _COUNTERS.search(value):
            found = True
            read = read_counters(padded, document.source)
            if padded is value:  # in quotes, or folded: its lines are not those of the file
                problems = tuple(replace(each, line=line or None) for each in read.problems)
                read = replace(read, problems=problems)
            inputs.exporters.append(Exporter(whole_document(document).at("data", name), read))
        if not name.endswith((".yaml", ".yml")):
            continue
        inside = load_documents(padded, document.source)
        if len(inside) != 1:
            continue
        data = inside[0].data
        if _read_prometheus_file(inputs, inside[0]):
            found = True
        elif is_trigger_file(data):
            found = True
            _add_triggers(inputs, padded, document.source)
        elif is_rules(data):
            found = True
            inputs.rule_files += 1
            _add_rules(inputs, read_rules(inside[0], padded))
    if not found and not isinstance(document, Made):
        inputs.passed_over.append(_passed(document))


def _read_prometheus_file(inputs: Inputs, document: Document) -> bool:
    """Read a Prometheus file's rules and kept labels; return False if it is none."""
    whole = whole_document(document)
    rules = tuple(_prometheus_rules(whole))
    inputs.prometheus_rules += rules
    listed = whole.items() if isinstance(whole.data, list) else whole.items("scrape_configs")
    jobs = [each for each in listed if "job_name" in each.fields()]
    inputs.honors_labels |= any(each.at("honor_labels").data is True for each in jobs)
    overall = whole.at("global", "scrape_interval")
    inputs.scrapes += (
        _scrape(each, "scrape_interval", each.text("job_name"), overall) for each in jobs
    )
    return bool(rules or jobs)


def is_block(text: str, line: int, value: str) -> bool:
    """Return whether a text is a YAML block scalar, so that its lines have line numbers in the file."""
    below = text.split("\n", line + 1)[line : line + 1]
    return bool(below) and below[0].strip() == value.split("\n", 1)[0].strip()


def _read_values_within(inputs: Inputs, whole: Part, text: str) -> bool:
    found = False
    for values, chart in values_within(whole):
        objects = objects_of_values(values, chart) if values.fields() else None
        if objects is not None:
            found = True
            inputs.values += 1
            for each in objects:
                _read_document(inputs, each, text)
    return found


def _read_beside(inputs: Inputs, document: Document, kind: str, *, has_values: bool) -> None:
    data = document.data if isinstance(document.data, dict) else {}
    rules: tuple[Part, ...] = ()
    if kind == "CustomResourceDefinition":
        key, found = kind_of_definition(whole_document(document))
        inputs.defined[key] = found
    if kind == "PrometheusRule" or "groups" in data:
        whole = whole_document(document)
        rules = tuple(_prometheus_rules(whole.at("spec") if "spec" in data else whole))
        inputs.prometheus_rules += rules
    if kind in _AUTHENTICATIONS:
        inputs.authentications[key_of(whole_document(document))] = frozenset(
            _parameters(data.get("spec"))
        )
    elif kind in _MONITORS:
        spec, (_, _, name) = whole_document(document).at("spec"), key_of(whole_document(document))
        ends = (*spec.items("endpoints"), *spec.items("podMetricsEndpoints"))
        inputs.honors_labels |= any(each.at("honorLabels").data is True for each in ends)
        inputs.scrapes += (_scrape(each, "interval", name) for each in ends)
    elif (reconciler := reconciler_of(whole_document(document))) is not None:
        inputs.reconcilers.append(reconciler)
    elif not (rules or has_values or isinstance(document, Made)):
        inputs.passed_over.append(_passed(document))


def _prometheus_rules(whole: Part) -> Iterator[Part]:
    """Yield the alerts and recording rules of a file."""
    for group in whole.items("groups"):
        yield from (each for each in group.items("rules") if isinstance(each.at("expr").data, str))


def _parameters(spec: object) -> Iterator[str]:
    """Return the parameter names in a TriggerAuthentication's lists, such as secretTargetRef."""
    for key in spec if isinstance(spec, dict) else ():
        for each in _dicts(spec, str(key)):
            if isinstance(each.get("parameter"), str):
                yield str(each["parameter"])


def _scrape(end: Part, key: str, name: str, overall: Part | None = None) -> Scrape:
    """Return how often something is scraped, which the name of the job or monitor may say."""
    found = end.at(key) if overall is None or end.at(key).data is not None else overall
    of = next((prefix for word, prefix in _SERIES_OF if word in name), "")
    try:
        return Scrape(parse_duration_ms(found.text()), found.place(), of)
    except ValueError:
        return Scrape(None, end.place(), of)


def _dicts(data: object, key: str) -> Iterator[Mapping[str, object]]:
    listed = data.get(key) if isinstance(data, dict) else None
    if isinstance(listed, list):
        yield from (each for each in listed if isinstance(each, dict))


def _passed(document: Document) -> PassedOver:
    data = document.data if isinstance(document.data, dict) else {}
    kind = f"{data.get('apiVersion', '')} {data.get('kind', '')}".strip()
    return PassedOver(Place(document.source, document.line(), None), kind)


class FileJudge(Judge[Inputs, Place]):
    """A check of `gpuscale lint`, given the parsed files."""

    __slots__ = ()
