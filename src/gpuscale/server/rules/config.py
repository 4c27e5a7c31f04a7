"""prometheus-adapter's rule files, read whole or not at all.

Three forms are read: the adapter's own file (`rules`, `externalRules`, `resourceRules`); the values of its
Helm chart (`rules: {default, custom, external}`, where the chart's rules come first and `default` is
true unless it says otherwise, as in the chart); and a bare list of rules, as documentation often shows them.

Source: prometheus-adapter v0.12.0 pkg/config (loader.go), pkg/naming (metric_namer.go). Upstream stops at
the first fault; here all are reported at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.documents.shapes import read_shape, schema_of
from gpuscale.base.documents.validation import validation_problems
from gpuscale.base.errors import ConfigError, Problem, QueryError
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.golang.template import Template, TemplateError, parse_template
from gpuscale.base.regex import Pattern, compile_re2
from gpuscale.series import Scalar, Value, Vector
from gpuscale.series.promql import (
    BadQueryError,
    metric_names,
    parse_matchers,
    parse_query,
)
from gpuscale.server.rules.combined import MAX_PARTS, Part, combined_query, read_threshold
from gpuscale.server.rules.expand import Naming, SeriesFilter, compile_expansion, default_expansion
from gpuscale.server.rules.models import (
    AdapterFileModel,
    HelmValuesModel,
    NameModel,
    PartModel,
    ResourceRuleModel,
    ResourceRulesModel,
    ResourcesModel,
    RuleModel,
)
from gpuscale.server.rules.query import FIELDS
from gpuscale.server.rules.resource_labels import LabelTemplate, NoLabelError, ResourceLabels
from gpuscale.server.rules.resource_rules import ResourceRule, ResourceRules
from gpuscale.server.rules.resources import (
    KUBERNETES,
    NAMESPACES,
    NODES,
    PODS,
    ResourceMapper,
    ResourceType,
    UnknownResourceError,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class AdapterRule:
    """A compiled rule."""

    origin: str
    """File and line, for messages."""
    series_query: str
    """Selector of the series the rule is about, as the file has it."""
    filters: tuple[SeriesFilter, ...]
    naming: Naming
    labels: ResourceLabels
    metrics_query: Template
    namespaced: bool = True
    """Whether an external query asks for the namespace too."""
    external: bool = False
    only_in: str = ""
    """The only namespace whose objects it serves; empty for a rule of the whole cluster."""
    nan_is_zero: bool = False
    """Whether a row that is NaN has the value 0, as in prometheus-adapter, and is not left out."""
    parts: tuple[Part, ...] = ()
    """Of a combined metric, whose query is made of them."""

    def read(self, value: Value) -> Value:
        """Return a query's result, with NaN as 0 if the rule says so."""
        if not self.nan_is_zero:
            return value
        if isinstance(value, Scalar):
            return Scalar(0.0) if math.isnan(value.value) else value
        if isinstance(value, Vector) and any(math.isnan(row.value) for row in value.samples):
            rows = (
                replace(row, value=0.0) if math.isnan(row.value) else row for row in value.samples
            )
            return Vector(tuple(rows))
        return value

    def api_name(self, series: str) -> str | None:
        """Return the API name of a series' metric; None if the rule excludes the series."""
        if all(condition.takes(series) for condition in self.filters):
            return self.naming.api_name(series)
        return None

    def example(self, series: str) -> str:
        """Return the rule's query for made-up objects, to check it.

        Raises:
            TemplateError: the template fails on any request.
        """
        group_by = () if self.external else ("pod",)
        values = dict.fromkeys(("namespace", "pod", *self.labels.overrides), "x")
        return self.metrics_query.render(
            {
                "Series": series,
                "LabelMatchers": 'namespace="x",pod="x"',
                "LabelValuesByName": values,
                "GroupBy": ",".join(group_by),
                "GroupBySlice": group_by,
            }
        )


@dataclass(frozen=True, slots=True)
class DisabledRule:
    """A rule that can give no metric, and is skipped while the others are served."""

    series_query: str
    problems: tuple[Problem, ...]
    external: bool
    naming: Naming | None
    """None where that is what is wrong."""
    only_in: str = ""
    """See `AdapterRule`."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    def would_give(self, metric: str) -> bool | None:
        """Return whether the rule was meant for this metric; None if its text doesn't tell."""
        try:
            names = metric_names(parse_query(self.series_query))
        except QueryError:
            names = None
        if names is None or self.naming is None:
            return None
        return any(self.naming.api_name(name) == metric for name in names)


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """All rules of a file, in its order."""

    rules: tuple[AdapterRule, ...] = ()
    external_rules: tuple[AdapterRule, ...] = ()
    resource_rules: ResourceRules | None = None
    """None where `metrics.k8s.io` is not served."""
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    """What is accepted but does not do what it may look like."""
    disabled: tuple[DisabledRule, ...] = ()
    """What is left out of the rules."""

    @staticmethod
    def joined(*configs: "AdapterConfig") -> "AdapterConfig":
        """Return the rules of several files, in order; of their resource rules, the last ones win."""
        resource = [each.resource_rules for each in configs if each.resource_rules is not None]
        return AdapterConfig(
            tuple(rule for each in configs for rule in each.rules),
            tuple(rule for each in configs for rule in each.external_rules),
            resource[-1] if resource else None,
            tuple(warning for each in configs for warning in each.warnings),
            tuple(rule for each in configs for rule in each.disabled),
        )

    @property
    def has_rules(self) -> bool:
        return bool(self.rules or self.external_rules or self.resource_rules)

    def rules_in(self, namespace: str, *, external: bool) -> tuple[AdapterRule, ...]:
        """Return the custom or external rules of a namespace: the cluster's and its own team's."""
        rules = self.external_rules if external else self.rules
        return tuple(rule for rule in rules if rule.only_in in {"", namespace})

    def series_queries(self) -> tuple[str, ...]:
        """Return the distinct series queries; rules with equal queries share one."""
        every = (*self.rules, *self.external_rules)
        return tuple(dict.fromkeys(rule.series_query for rule in every))


def load_rules(
    text: str, source: str, mapper: ResourceMapper = KUBERNETES, *, disables: bool = False
) -> AdapterConfig:
    """Return the rules of a file.

    Args:
        text: of the file.
        source: its name, for messages.
        mapper: the resources that there are.
        disables: whether faults of one rule leave out that rule, as a server has it. prometheus-adapter
            starts with some of them (a field that templates don't have, a series query that is none) and
            fails when it queries, and refuses the file for others.

    Raises:
        ConfigError: with every fault of the file: unknown or repeated keys, wrong types, and, unless those
            are disabled, templates, expressions, series queries and resources of single rules.
    """
    document, warnings = _only_document(text, source, takes_any_number=disables)
    data = document.data
    compiler = _Compiler(document, mapper, disables=disables)
    compiler.warnings += warnings
    if isinstance(data, list):
        rules = compiler.rules(_validated(document, list[RuleModel]), ())
        return compiler.finish(rules, ())
    if isinstance(data, dict) and isinstance(data.get("rules"), dict):
        return _from_helm_values(compiler, data)
    return _from_adapter_file(compiler)


@lru_cache(maxsize=4)
def default_config(mapper: ResourceMapper = KUBERNETES) -> AdapterConfig:
    """Return the rules that the Helm chart adds by default."""
    text = files("gpuscale.server.rules").joinpath("default_rules.yaml").read_text(encoding="utf-8")
    return load_rules(text, "<the chart's default rules>", mapper)


def _only_document(
    text: str, source: str, *, takes_any_number: bool
) -> tuple[Document, list[Problem]]:
    """Return a file's only YAML document; notes a fault if there are several."""
    documents = load_documents(text, source)
    if len(documents) == 1:
        return documents[0], []
    found = f"{len(documents)} documents" if documents else "an empty file"
    problem = Problem(source, None, None, found, "one YAML document with rules")
    if not takes_any_number:
        raise ConfigError(problem)
    # As in prometheus-adapter: the first document counts, and without one there are no rules.
    empty = load_documents("{rules: []}", source)
    return (documents or empty)[0], [problem]


def _from_adapter_file(compiler: "_Compiler") -> AdapterConfig:
    model = _validated(compiler.document, AdapterFileModel)
    rules = compiler.rules(model.rules, ("rules",))
    external = compiler.rules(model.external_rules, ("externalRules",), external=True)
    resource = compiler.resource_rules(model.resource_rules, ("resourceRules",))
    return compiler.finish(rules, external, resource)


def _from_helm_values(compiler: "_Compiler", data: Mapping[str, object]) -> AdapterConfig:
    model = _validated(compiler.document, HelmValuesModel)
    for key, value in data.items():
        if key != "rules" and value is not None:
            compiler.warn((key,), "not read: of the chart's values only `rules` is")
    if model.rules.existing is not None:
        compiler.warn(("rules", "existing"), "not read: give the content of that ConfigMap instead")
    custom = compiler.rules(model.rules.custom, ("rules", "custom"))
    external = compiler.rules(model.rules.external, ("rules", "external"), external=True)
    # The chart renders no resourceRules for its default, an empty mapping.
    given = model.rules.resource if model.rules.resource != ResourceRulesModel() else None
    resource = compiler.resource_rules(given, ("rules", "resource"))
    # The chart puts its own rules first, so that a user's rule of the same name wins.
    before = default_config(compiler.mapper).rules if model.rules.default else ()
    return compiler.finish((*before, *custom), external, resource)


def _validated(document: Document, shape: type[T]) -> T:
    found, faults = read_shape(shape, document.data)
    if found is None:
        raise ConfigError(*validation_problems(document, faults, lambda: schema_of(shape)))
    return found


class _Compiler:
    """Compiles the rules of one document and collects all their faults."""

    def __init__(self, document: Document, mapper: ResourceMapper, *, disables: bool) -> None:
        self.document = document
        self.mapper = mapper
        self.disables = disables
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.disabled: list[DisabledRule] = []

    def finish(
        self,
        rules: tuple[AdapterRule, ...],
        external: tuple[AdapterRule, ...],
        resource: ResourceRules | None = None,
    ) -> AdapterConfig:
        """Return the configuration, or raise the collected faults."""
        if self.problems:
            raise ConfigError(*sorted(self.problems, key=lambda problem: problem.line or 0))
        return AdapterConfig(rules, external, resource, tuple(self.warnings), tuple(self.disabled))

    def note(self, path: Path, expected: str, found: str | None = None) -> None:
        self.problems.append(self.document.problem(path, expected, found=found))

    def warn(self, path: Path, text: str) -> None:
        """Add a warning about something valid that may surprise."""
        self.warnings.append(self.document.problem(path, text))

    def rules(
        self, models: list[RuleModel], base: Path, *, external: bool = False
    ) -> tuple[AdapterRule, ...]:
        compiled = (
            self._rule(model, (*base, index), external=external)
            for index, model in enumerate(models)
        )
        return tuple(rule for rule in compiled if rule is not None)

    def _rule(self, model: RuleModel, path: Path, *, external: bool) -> AdapterRule | None:
        """Return a rule; None if it has faults, which are collected, or is disabled."""
        faults = len(self.problems)
        series_query, place = model.series_query, (*path, "seriesQuery")
        if series_query.strip():
            try:
                parse_matchers(series_query)
            except QueryError as error:
                self.note(place, f"a series selector in PromQL: {error}", repr(series_query))
        else:
            expected = "a series selector such as DCGM_FI_DEV_GPU_UTIL{}"
            self.note(place, expected, repr(series_query))
        filters = []
        for index, condition in enumerate(model.series_filters):
            key = "is" if condition.matching else "isNot"
            pattern = self._pattern(
                condition.matching or condition.not_matching, (*path, "seriesFilters", index, key)
            )
            if pattern is not None:
                filters.append(SeriesFilter(pattern, matches=key == "is"))
        naming = self._naming(model.name, (*path, "name"))
        labels = self._labels(model.resources, (*path, "resources"))
        parts = self._parts(model.parts, (*path, "parts"))
        text, place = model.metrics_query, (*path, "metricsQuery")
        if parts:
            named = zip(model.parts, parts, strict=False)
            text = combined_query([(each.query, part.threshold) for each, part in named])
            place = (*path, "parts")
        if not text:
            self.warn(
                place, "no query: the metrics of this rule are listed, but can't be asked for"
            )
        # A query that is made of faulty parts would only repeat their faults.
        is_whole = len(self.problems) == faults or not parts
        query = self._template(text, place) if is_whole else None
        if len(self.problems) == faults and naming is not None and query is not None:
            rule = AdapterRule(
                origin=f"{self.document.source}:{self.document.line(path)}",
                series_query=model.series_query,
                filters=tuple(filters),
                naming=naming,
                labels=labels,
                metrics_query=query,
                namespaced=model.resources.namespaced,
                external=external,
                nan_is_zero=model.nan == "zero",
                parts=parts,
            )
            self._check_example(rule, text, place)
            if len(self.problems) == faults:
                return rule
        if self.disables:
            own = tuple(self.problems[faults:])
            del self.problems[faults:]
            self.disabled.append(DisabledRule(model.series_query, own, external, naming))
        return None

    def _parts(self, models: list[PartModel], path: Path) -> tuple[Part, ...]:
        """Return the parts of a combined metric, without those that have faults."""
        if len(models) > MAX_PARTS:
            self.note(path, f"at most {MAX_PARTS} parts", f"{len(models)} parts")
        names = [model.name or f"part {i}" for i, model in enumerate(models, start=1)]
        found = []
        for index, (model, name) in enumerate(zip(models, names, strict=True)):
            place: Path = (*path, index)
            if names.count(name) > 1:
                self.note((*place, "name"), "a name of its own for each part", repr(name))
            if not model.query.strip():
                self.note((*place, "query"), "a query template such as metricsQuery has", "none")
                continue
            query = self._template(model.query, (*place, "query"))
            try:
                threshold = read_threshold(model.threshold)
            except ValueError:
                expected = "a number above 0, such as 5, 0.8 or 800m"
                self.note((*place, "threshold"), expected, repr(model.threshold))
                continue
            if query is not None:
                found.append(Part(name, query, threshold))
        return tuple(found)

    def resource_rules(self, model: ResourceRulesModel | None, path: Path) -> ResourceRules | None:
        """Return the rules for CPU and memory; None if there are none, or they have faults."""
        if model is None:
            return None
        faults = len(self.problems)
        cpu = self._resource_rule(model.cpu, (*path, "cpu"))
        memory = self._resource_rule(model.memory, (*path, "memory"))
        window_ms = 0
        try:
            window_ms = parse_duration_ms(model.window)
        except ValueError:
            self.note((*path, "window"), "a duration such as 5m or 1h30m", repr(model.window))
        if len(self.problems) == faults and cpu is not None and memory is not None:
            return ResourceRules(cpu, memory, window_ms)
        if self.disables:
            own = tuple(self.problems[faults:])
            del self.problems[faults:]
            self.disabled.append(DisabledRule("", own, external=False, naming=None))
        return None

    def _resource_rule(self, model: ResourceRuleModel, path: Path) -> ResourceRule | None:
        labels = self._labels(model.resources, (*path, "resources"))
        queries = []
        for key, text in (
            ("containerQuery", model.container_query),
            ("nodeQuery", model.node_query),
        ):
            if not text:
                self.warn((*path, key), "no query: nothing can be answered with it")
            queries.append(self._template(text, (*path, key)))
        for resource in (NAMESPACES, PODS, NODES):
            try:
                labels.label_for(resource)
            except NoLabelError:
                self.warn(
                    (*path, "resources"),
                    f"no label names {resource.name}: their usage can't be asked for",
                )
        if not model.container_label:
            self.warn(
                (*path, "containerLabel"),
                "not given: the containers of a pod count as one without a name",
            )
        container, node = queries
        if container is None or node is None:
            return None
        return ResourceRule(container, node, labels, model.container_label)

    def _pattern(self, text: str, path: Path) -> Pattern | None:
        try:
            return compile_re2(text)
        except ValueError as error:
            reason = str(error).removeprefix("not a regular expression of RE2: ")
            self.note(path, f"a regular expression of RE2: {reason}", repr(text))
            return None

    def _naming(self, model: NameModel, path: Path) -> Naming | None:
        pattern = self._pattern(model.matches or ".*", (*path, "matches"))
        if pattern is None:
            return None
        text = model.expansion or default_expansion(pattern)
        if text is None:
            self.note(
                (*path, "matches"),
                "at most one group, or an `as` that says what to make of them",
                f"{pattern.groups} groups in {model.matches!r}",
            )
            return None
        expansion = compile_expansion(text, pattern)
        for name in expansion.unknown:
            self.warn(
                (*path, "as"),
                f"{name!r} is no group of `matches` and means nothing; "
                "a number that is followed by letters needs braces, as in ${1}_rate",
            )
        return Naming(pattern, expansion)

    def _labels(self, model: ResourcesModel, path: Path) -> ResourceLabels:
        overrides: dict[str, ResourceType] = {}
        for label, wanted in model.overrides.items():
            place: Path = (*path, "overrides", label)
            try:
                resource = self.mapper.find(wanted.resource, wanted.group)
            except UnknownResourceError as error:
                self.note((*place, "resource"), "a resource of the cluster", str(error))
                continue
            if resource in overrides.values():
                first = next(name for name, known in overrides.items() if known == resource)
                self.warn(
                    place, f"queries ask for the label {first!r}, the first for {resource.name}"
                )
            overrides[label] = resource
        template: LabelTemplate | None = None
        if text := model.template:
            try:
                template = LabelTemplate(text)
            except (TemplateError, ValueError) as error:
                expected = f"a label template such as <<.Resource>>: {error}"
                self.note((*path, "template"), expected, repr(text))
        return ResourceLabels(overrides, template, self.mapper)

    def _template(self, text: str, path: Path) -> Template | None:
        try:
            return parse_template(text, FIELDS)
        except TemplateError as error:
            self.note(path, f"a query template: {error}", repr(text))
            return None

    def _check_example(self, rule: AdapterRule, query: str, path: Path) -> None:
        """Warn about a query that can hardly work, although a request's values may still make it valid."""
        try:
            text = rule.example("series_of_the_rule")
        except TemplateError as error:
            self.note(path, f"a query template that a request can fill: {error}", repr(query))
            return
        try:
            if text:
                parse_query(text)
        except BadQueryError as error:
            # A position in the filled-in text would mislead, as the user knows the template.
            self.warn(path, f"does not look like PromQL once it is filled in: {error.reason}")


def preset_text() -> str:
    """Return the preset as a rule file."""
    return files("gpuscale.server.rules").joinpath("preset.yaml").read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def preset_config(mapper: ResourceMapper = KUBERNETES) -> AdapterConfig:
    """Return the preset's rules; a kind that the cluster doesn't know gets its usual scope."""
    return load_rules(preset_text(), "<preset>", mapper.extended(*KUBERNETES.types))
