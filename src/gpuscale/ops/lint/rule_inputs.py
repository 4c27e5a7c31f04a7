"""Parses a rule file into rules with their places."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gpuscale.base.documents.documents import Document, Path, dotted, parts_of
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Check
from gpuscale.base.words import closest
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.problems import (
    CUSTOM_RESOURCE,
    EMPTY_GROUP,
    NO_QUERY,
    NOT_READ,
    QUERY_NOT_PROMQL,
    REFUSED_RULES,
    SECOND_LABEL,
    place_of,
    refused,
    sentence,
)
from gpuscale.server.rules import (
    KUBERNETES,
    AdapterConfig,
    AdapterRule,
    ResourceType,
    UnknownResourceError,
    load_rules,
    preset_config,
)

_KUBERNETES_NAMES = frozenset(
    name for known in KUBERNETES.types for name in (known.plural, known.singular)
)
_OF_A_RULE = frozenset({"seriesQuery", "seriesFilters", "metricsQuery"})
FOREIGN = re.compile(r"\{\{-?\s*(\.[A-Za-z]+)[^}]*\}\}")
"""A value of a template by the delimiters of Go, Helm and Grafana."""
_RULE_KEYS = frozenset({"rules", "externalRules", "resourceRules"})


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule with its place."""

    rule: AdapterRule
    document: Document | None
    """None for a rule of the chart or the preset, which stands in no file of the user's."""
    path: Path = ()

    def place(self, *path: str | int) -> Place:
        """Return the place of a field of the rule."""
        if self.document is None:
            return Place(self.rule.origin, None, None)
        whole = (*self.path, *path)
        return Place(self.document.source, self.document.line(whole), dotted(whole) or None)

    def text(self, *path: str) -> str:
        """Return a text field of the rule as written; empty if absent."""
        value: object = None if self.document is None else _at(self.document.data, self.path)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class RuleReading:
    """The content of a rule file."""

    rules: tuple[PlacedRule, ...] = ()
    external_rules: tuple[PlacedRule, ...] = ()
    findings: tuple[LintFinding, ...] = ()
    has_all: bool = True
    """False where the file can't be used, or names rules elsewhere, so that there may be others."""


def is_rules(data: object) -> bool:
    """Return whether a document is a rule file, in any of its forms."""
    if isinstance(data, list):
        # Tasks of Ansible and patches of kustomize are lists too.
        return not data or any(isinstance(each, dict) and _OF_A_RULE & each.keys() for each in data)
    return isinstance(data, dict) and "kind" not in data and not _RULE_KEYS.isdisjoint(data)


def read_rules(document: Document, text: str) -> RuleReading:
    """Return a file's rules, and the faults found while parsing.

    Args:
        document: the file's only one.
        text: of the file.
    """
    unknown = dict(_unknown_resources(document))
    mapper = KUBERNETES.extended(*unknown.values())
    try:
        config = load_rules(text, document.source, mapper)
    except ConfigError as error:
        who = "prometheus-adapter would refuse the whole file"
        with suppress(ConfigError):
            load_rules(text, document.source, mapper, disables=True)
            who = (
                "gpuscale metrics-api leaves the rule out, and prometheus-adapter refuses the file, or "
                "starts and fails what is asked of the rule"
            )
        refusals = (refused(REFUSED_RULES, problem, who) for problem in error.problems)
        return RuleReading(findings=tuple(refusals), has_all=False)
    custom = (_custom_resource(document, path, type_) for path, type_ in unknown.items())
    paths = _RulePaths(document)
    return RuleReading(
        tuple(paths.placed(rule) for rule in config.rules),
        tuple(paths.placed(rule) for rule in config.external_rules),
        (*_warnings(config, document), *custom),
        has_all=not _at(document.data, ("rules", "existing")),
    )


def read_preset() -> RuleReading:
    """Return gpuscale's default rules."""
    preset = preset_config()
    return RuleReading(
        tuple(PlacedRule(rule, None) for rule in preset.rules),
        tuple(PlacedRule(rule, None) for rule in preset.external_rules),
    )


def _unknown_resources(document: Document) -> Iterator[tuple[Path, ResourceType]]:
    """Return the resources in overrides that are not built in, each treated as if the cluster had it.

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


def _custom_resource(document: Document, path: Path, type_: ResourceType) -> LintFinding:
    return CUSTOM_RESOURCE.found(
        Place(document.source, document.line(path), dotted(path)),
        f"Kubernetes has no resource {type_.name} of its own: the cluster has to have it.",
        "prometheus-adapter does not start with a resource that it can't find.",
    )


class _RulePaths:
    """The places of a document's rules; two may be on one line."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._paths: dict[tuple[str, bool], list[Path]] = {}
        for path, external in _rule_paths(document.data):
            origin = f"{document.source}:{document.line(path)}"
            self._paths.setdefault((origin, external), []).append(path)

    def placed(self, rule: AdapterRule) -> PlacedRule:
        """Return a rule with its place; call in file order."""
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


def _warnings(config: AdapterConfig, document: Document) -> Iterator[LintFinding]:
    """Return the warnings from parsing the rules, each as a check's finding, by field."""
    given = {dotted(path) for path in document.lines}
    is_values = isinstance(_at(document.data, ("rules",)), dict)
    for problem in config.warnings:
        found = f"found {problem.found}; " if problem.found else ""
        what = sentence(f"{found}{problem.expected}")
        check = _check_of_warning(problem.field or "", given)
        if check is NOT_READ and is_values and not (problem.field or "").startswith("rules."):
            continue  # The chart reads it.
        if check is QUERY_NOT_PROMQL and FOREIGN.search(
            str(_at(document.data, parts_of(problem.field or "")))
        ):
            continue  # The delimiters are what is wrong with it, which a check of rules says.
        yield check.found(place_of(problem), what, "", problem.fix or None)


def _check_of_warning(field: str, given: set[str]) -> Check:
    if field.endswith(".name.as"):
        return EMPTY_GROUP
    if ".overrides." in field:
        return SECOND_LABEL
    if field.endswith((".metricsQuery", ".parts")):
        return QUERY_NOT_PROMQL if field in given else NO_QUERY
    return NOT_READ
