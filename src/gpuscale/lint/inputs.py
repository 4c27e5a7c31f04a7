"""From the texts of files to what can be looked at: rules, autoscalers, and what stands beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.core.documents import Document, Path, dotted, load_documents
from gpuscale.core.errors import ConfigError, Problem
from gpuscale.core.spelling import closest
from gpuscale.lint.findings import CHECKS, Finding, PassedOver, Place
from gpuscale.objects.fields import Fields, shown
from gpuscale.objects.hpa import HorizontalPodAutoscaler
from gpuscale.objects.manifests import read_manifest
from gpuscale.objects.workloads import Deployment
from gpuscale.sources.preset import preset_config
from gpuscale.sources.resources import KUBERNETES, ResourceType, UnknownResourceError
from gpuscale.sources.rules import AdapterConfig, Rule, load_rules

_KUBERNETES_NAMES = frozenset(
    name for known in KUBERNETES.types for name in (known.plural, known.singular)
)
_RULE_KEYS = frozenset({"rules", "externalRules", "resourceRules"})
_GROUPS = {
    "Deployment": "apps",
    "Service": "",
    "HorizontalPodAutoscaler": "autoscaling",
}
"""Kinds that are read, with the group that makes them these."""
_MONITORS = frozenset({"ServiceMonitor", "PodMonitor"})


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule, and where it stands."""

    rule: Rule
    document: Document | None
    """None for a rule of the chart or the preset, which stands in no file of the user's."""
    path: Path = ()

    def place(self, *path: str | int) -> Place:
        """Return where a field of the rule stands."""
        if self.document is None:
            return Place(self.rule.origin, None, None)
        whole = (*self.path, *path)
        return Place(self.document.source, self.document.line(whole), dotted(whole) or None)

    def text(self, *path: str) -> str:
        """Return a text of the rule as the file has it; empty where it has none."""
        value: object = None if self.document is None else _at(self.document.data, self.path)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class PlacedHpa:
    """An autoscaler, and where it stands."""

    hpa: HorizontalPodAutoscaler
    document: Document

    def place(self, *path: str | int) -> Place:
        """Return where a field of the manifest stands."""
        return Place(self.document.source, self.document.line(path), dotted(path) or None)

    @property
    def version(self) -> str:
        """Return `v2` and the like."""
        data = self.document.data
        text = data.get("apiVersion") if isinstance(data, dict) else ""
        return str(text).removeprefix("autoscaling/")


@dataclass(slots=True)
class Inputs:
    """All that some files hold."""

    rules: list[PlacedRule] = field(default_factory=list)
    external_rules: list[PlacedRule] = field(default_factory=list)
    hpas: list[PlacedHpa] = field(default_factory=list)
    deployments: list[Deployment] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    """Series that recording rules make."""
    honors_labels: bool = False
    """Whether a monitor keeps the labels of the exporter."""
    rule_files: int = 0
    has_all_rules: bool = True
    """False where a rule file can't be used or is not there, so that a metric may be served all the same."""
    findings: list[Finding] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)


def read_inputs(texts: Sequence[tuple[str, str]]) -> Inputs:
    """Return what files hold.

    Args:
        texts: file name and text of each.

    Raises:
        ConfigError: with every file or document that is neither a rule file nor a manifest.
    """
    inputs = Inputs()
    problems: list[Problem] = []
    for source, text in texts:
        try:
            _read_file(inputs, source, text)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)
    if inputs.rule_files == 0:
        _take_preset(inputs)
    return inputs


def _take_preset(inputs: Inputs) -> None:
    """Take the rules that gpuscale serves by where nobody gives any; there may be others elsewhere."""
    preset = preset_config()
    inputs.has_all_rules = False
    inputs.rules = [PlacedRule(rule, None) for rule in preset.rules]
    inputs.external_rules = [PlacedRule(rule, None) for rule in preset.external_rules]


def _read_file(inputs: Inputs, source: str, text: str) -> None:
    documents = load_documents(text, source)
    if not documents:
        raise ConfigError(Problem(source, None, None, "an empty file", "rules or manifests"))
    if len(documents) == 1 and _is_rules(documents[0].data):
        _read_rules(inputs, documents[0], text)
        return
    problems: list[Problem] = []
    for document in documents:
        try:
            _read_document(inputs, document, text)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)


def _is_rules(data: object) -> bool:
    if isinstance(data, list):
        return True
    return isinstance(data, dict) and "kind" not in data and not _RULE_KEYS.isdisjoint(data)


# Rule files


def _read_rules(inputs: Inputs, document: Document, text: str) -> None:
    inputs.rule_files += 1
    unknown = dict(_unknown_resources(document))
    try:
        config = load_rules(text, document.source, KUBERNETES.extended(*unknown.values()))
    except ConfigError as error:
        inputs.has_all_rules = False
        for problem in error.problems:
            inputs.findings.append(
                _refused("refused-rules", problem, "prometheus-adapter would refuse the whole file")
            )
        return
    inputs.findings.extend(_warnings(config, document))
    inputs.findings.extend(
        _custom_resource(document, path, type_) for path, type_ in unknown.items()
    )
    paths = _RulePaths(document)
    inputs.rules.extend(paths.placed(rule) for rule in config.rules)
    inputs.external_rules.extend(paths.placed(rule) for rule in config.external_rules)


def _unknown_resources(document: Document) -> Iterator[tuple[Path, ResourceType]]:
    """Return what overrides name that is no resource of Kubernetes' own, each as if the cluster had it.

    A name that is nearly one of Kubernetes' is left to be refused.
    """
    for path, _ in _rule_paths(document.data):
        overrides = _at(document.data, (*path, "resources", "overrides"))
        for label, wanted in overrides.items() if isinstance(overrides, dict) else ():
            name, group = _resource_and_group(wanted)
            if not name or _is_known(name, group):
                continue
            if group or closest(name, _KUBERNETES_NAMES, cutoff=0.6) is None:
                kind = name[:1].upper() + name[1:]
                place = (*path, "resources", "overrides", label, "resource")
                yield place, ResourceType(name.lower(), name.lower(), kind, group.lower())


def _resource_and_group(wanted: object) -> tuple[str, str]:
    if not isinstance(wanted, dict):
        return "", ""
    name, group = wanted.get("resource"), wanted.get("group", "")
    return (name, group) if isinstance(name, str) and isinstance(group, str) else ("", "")


def _is_known(name: str, group: str) -> bool:
    try:
        KUBERNETES.find(name, group)
    except UnknownResourceError:
        return False
    return True


def _custom_resource(document: Document, path: Path, type_: ResourceType) -> Finding:
    return Finding(
        CHECKS["custom-resource"],
        Place(document.source, document.line(path), dotted(path)),
        f"Kubernetes has no resource {type_.name} of its own: the cluster has to have it.",
        "prometheus-adapter does not start with a resource that it can't find.",
        "See that its CustomResourceDefinition is installed first.",
    )


class _RulePaths:
    """Where the rules of a document stand; two of them may stand on one line."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._paths: dict[tuple[str, bool], list[Path]] = {}
        for path, external in _rule_paths(document.data):
            origin = f"{document.source}:{document.line(path)}"
            self._paths.setdefault((origin, external), []).append(path)

    def placed(self, rule: Rule) -> PlacedRule:
        """Return a rule with its place; rules come in the order of the file."""
        paths = self._paths.get((rule.origin, rule.external))
        return PlacedRule(rule, self._document, paths.pop(0)) if paths else PlacedRule(rule, None)


def _rule_paths(data: object) -> Iterator[tuple[Path, bool]]:
    bases: tuple[tuple[Path, bool], ...] = (
        ((), False),
        (("rules",), False),
        (("rules", "custom"), False),
        (("externalRules",), True),
        (("rules", "external"), True),
    )
    for base, external in bases:
        listed = _at(data, base)
        if isinstance(listed, list):
            yield from (((*base, index), external) for index in range(len(listed)))


def _at(data: object, path: Path) -> object:
    for key in path:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int):
            data = data[key]
        else:
            return None
    return data


def _warnings(config: AdapterConfig, document: Document) -> Iterator[Finding]:
    """Return what reading the rules warned of; one check each, told by the field it is about."""
    given = {dotted(path) for path in document.lines}
    for problem in config.warnings:
        check, fix = _check_of_warning(problem.field or "", given)
        found = f"found {problem.found}; " if problem.found else ""
        what = _sentence(f"{found}{problem.expected}")
        yield Finding(CHECKS[check], _place(problem), what, "", problem.fix or fix)


def _check_of_warning(field: str, given: set[str]) -> tuple[str, str]:
    if field.endswith(".name.as"):
        return "empty-group", "Put the number of the group into braces."
    if ".overrides." in field:
        return "second-label", "Leave one of the labels out, or write a rule for each."
    if field.endswith(".metricsQuery") and field in given:
        return "query-not-promql", "Correct the query, or the template around it."
    if field.endswith(".metricsQuery"):
        fix = "Write one, such as avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)."
        return "no-query", fix
    return "not-read", "Leave it out, if nothing else reads the file."


def _refused(check: str, problem: Problem, who: str) -> Finding:
    found = f"found {problem.found}, expected {problem.expected}"
    what = _sentence(found if problem.found else problem.expected)
    fix = _sentence(problem.fix) if problem.fix else f"Correct it; {who}."
    return Finding(CHECKS[check], _place(problem), what, "", fix)


def _place(problem: Problem) -> Place:
    return Place(problem.source, problem.line, problem.field)


def _sentence(text: str) -> str:
    end = "" if text.endswith((".", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


# Manifests


def _read_document(inputs: Inputs, document: Document, text: str) -> None:
    data = document.data
    if not isinstance(data, dict) or not ("kind" in data or "groups" in data):
        expected = "a manifest with apiVersion and kind; rules stand alone in their file"
        raise ConfigError(document.problem((), expected, found=shown(data)))
    kind = str(data.get("kind"))
    if isinstance(data.get("items"), list) and kind.endswith("List"):
        for item in _items(document, data["items"]):
            _read_document(inputs, item, text)
    elif str(data.get("apiVersion")).rpartition("/")[0] == _GROUPS.get(kind):
        _read_object(inputs, document)
    elif kind == "ConfigMap":
        _read_config_map(inputs, document, text)
    else:
        _read_beside(inputs, document, kind)


def _items(document: Document, items: list[object]) -> Iterator[Document]:
    """Return the items of a List as documents of their own."""
    lines: dict[int, dict[Path, int]] = {}
    for path, line in document.lines.items():
        match path:
            case ("items", int() as index, *rest):
                lines.setdefault(index, {})[tuple(rest)] = line
    for index, item in enumerate(items):
        yield Document(document.source, document.index, item, lines.get(index, {}))


def _read_object(inputs: Inputs, document: Document) -> None:
    try:
        found = read_manifest(document)
    except ConfigError as error:
        for problem in error.problems:
            inputs.findings.append(
                _refused("refused-manifest", problem, "the API server would refuse the object")
            )
        return
    if isinstance(found, HorizontalPodAutoscaler):
        inputs.hpas.append(PlacedHpa(found, document))
    elif isinstance(found, Deployment):
        inputs.deployments.append(found)


def _read_config_map(inputs: Inputs, document: Document, text: str) -> None:
    """Read the rule files that a ConfigMap holds, as prometheus-adapter's does."""
    found = False
    for name, value in Fields(document, document.data).child("data").data.items():
        if not isinstance(value, str) or not name.endswith((".yaml", ".yml")):
            continue
        line = document.line(("data", name)) or 0
        padded = "\n" * line + value if _is_block(text, line, value) else value
        inside = load_documents(padded, document.source)
        if len(inside) == 1 and _is_rules(inside[0].data):
            found = True
            _read_rules(inputs, inside[0], padded)
    if not found:
        inputs.passed_over.append(_passed(document))


def _is_block(text: str, line: int, value: str) -> bool:
    """Return whether a text stands below its key line by line, so that its lines can be told."""
    below = text.split("\n", line + 1)[line : line + 1]
    return bool(below) and below[0].strip() == value.split("\n", 1)[0].strip()


def _read_beside(inputs: Inputs, document: Document, kind: str) -> None:
    data = document.data if isinstance(document.data, dict) else {}
    spec = data.get("spec", data) if kind == "PrometheusRule" or "groups" in data else {}
    recorded = set(_recorded(spec))
    inputs.recorded |= recorded
    if kind in _MONITORS:
        inputs.honors_labels |= _honors_labels(data.get("spec"))
    elif not recorded:
        inputs.passed_over.append(_passed(document))


def _recorded(spec: object) -> Iterator[str]:
    for group in _dicts(spec, "groups"):
        for rule in _dicts(group, "rules"):
            if isinstance(rule.get("record"), str):
                yield str(rule["record"])


def _honors_labels(spec: object) -> bool:
    ends = (*_dicts(spec, "endpoints"), *_dicts(spec, "podMetricsEndpoints"))
    return any(each.get("honorLabels") is True for each in ends)


def _dicts(data: object, key: str) -> Iterator[Mapping[str, object]]:
    listed = data.get(key) if isinstance(data, dict) else None
    if isinstance(listed, list):
        yield from (each for each in listed if isinstance(each, dict))


def _passed(document: Document) -> PassedOver:
    data = document.data if isinstance(document.data, dict) else {}
    kind = f"{data.get('apiVersion', '')} {data.get('kind', '')}".strip()
    return PassedOver(Place(document.source, document.line(), None), kind)
