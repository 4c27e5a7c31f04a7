"""Rules in teams' ConfigMaps; each ConfigMap's rules apply to its own namespace only.

A bad ConfigMap keeps its own last good rules, and affects no others. What a namespace may have is bounded
for all of its ConfigMaps together; those that go beyond, the last by name, don't count.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.clock import Clock
from gpuscale.base.errors import ConfigError, GpuscaleError, Problem
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector
from gpuscale.server.metricsapi.rulebook.rule_file import KeptRules, RuleState
from gpuscale.server.rules.budget import DEFAULT_BUDGET, RuleBudget
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.confine import confined_config
from gpuscale.server.rules.resources import ResourceMapper

_LOG = logging.getLogger(__name__)
_PATH = "/api/v1/configmaps"
_NAMESPACES_PATH = "/api/v1/namespaces"


@dataclass(frozen=True, slots=True)
class TeamFiles:
    """The rule files in one ConfigMap."""

    namespace: str
    name: str
    texts: tuple[tuple[str, str], ...]
    """Key and text of each file, sorted by key; none where all are too long to be kept."""
    text_bytes: int = 0

    @property
    def label(self) -> str:
        return f"configmap {self.namespace}/{self.name}"


class TeamRules:
    """The rules of all ConfigMaps that match a label selector, kept current by `run`.

    Args:
        connection: to the API server.
        settings: waits and sizes.
        selector: which ConfigMaps hold rules.
        namespace_labels: the labels that are trusted to distinguish namespaces.
        clock: times the waits.
        namespaces: label selector of the namespaces whose ConfigMaps count; empty for all.
        budget: of each namespace.
    """

    def __init__(
        self,
        connection: KubeClient,
        settings: KubeSettings,
        selector: str,
        namespace_labels: Sequence[str],
        clock: Clock,
        namespaces: str = "",
        budget: RuleBudget = DEFAULT_BUDGET,
    ) -> None:
        self._labels = tuple(namespace_labels)
        self._budget = budget
        self._over: dict[str, str] = {}
        """Why a ConfigMap does not count, by the reflector's key."""
        self._namespaces: Reflector[str] | None = None
        if namespaces:
            self._namespaces = Reflector(
                connection,
                settings,
                _NAMESPACES_PATH,
                {"labelSelector": namespaces},
                _name,
                clock,
                lambda: None,
            )
        self._kept: dict[str, KeptRules[TeamFiles]] = {}
        self._reflector: Reflector[TeamFiles] = Reflector(
            connection,
            settings,
            _PATH,
            {"labelSelector": selector},
            lambda body: read_config_map(body, budget.text_bytes),
            clock,
            lambda: None,
        )

    async def run(self) -> None:
        """Watch the ConfigMaps, and the namespaces if these are selected too, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            if self._namespaces is not None:
                group.create_task(self._namespaces.run())

    @property
    def config(self) -> AdapterConfig:
        """Return all rules; where two ConfigMaps of a namespace define one metric, the last by name wins."""
        counted = (key for key in sorted(self._kept) if key not in self._over)
        return AdapterConfig.joined(*(self._kept[key].config for key in counted))

    @property
    def states(self) -> Mapping[str, RuleState]:
        """Return the state of each ConfigMap, keyed by the name that messages use."""
        found: dict[str, RuleState] = {}
        for key in sorted(self._kept):
            state = self._kept[key].state
            if key in self._over:
                state = replace(state, good_ms=None, fault=self._over[key])
            found[self._kept[key].name] = state
        return found

    def faults_in(self, namespace: str) -> tuple[str, ...]:
        """Return the faults of a namespace's ConfigMaps, shown to those who may read its metrics."""
        place = f"configmap {namespace}/"
        states = self.states.items()
        own = [state for name, state in states if name.startswith(place)]
        return tuple(text for state in own for text in (state.fault, *state.disabled) if text)

    @property
    def error(self) -> GpuscaleError | None:
        """Return why the watch of ConfigMaps fails; None while it works."""
        states = [self._reflector.state]
        if self._namespaces is not None:
            states.append(self._namespaces.state)
        return next((state.error for state in states if state.error is not None), None)

    def look(self, mapper: ResourceMapper, now_ms: int) -> bool:
        """Reload the ConfigMaps; return whether the rules changed."""
        items = self._chosen()
        before = dict(self._over)
        gone = [key for key in self._kept if key not in items]
        changed = False
        for key in gone:
            changed |= self._kept.pop(key).state.good_ms is not None
        self._over = {}
        spent: dict[str, _Spent] = {}
        for key, files in sorted(items.items()):
            if key not in self._kept:
                self._kept[key] = KeptRules(files.label, self._load)
            place = spent.setdefault(files.namespace, _Spent())
            fault = place.before(files, self._budget)
            if fault is None:
                changed |= self._kept[key].take(files, mapper, now_ms)
                fault = place.after(self._kept[key].config, self._budget)
            if fault is not None:
                self._over[key] = f"{files.label}: {fault}"
                if key not in before:
                    _LOG.warning("%s", self._over[key])
        return changed or before.keys() != self._over.keys()

    def _chosen(self) -> Mapping[str, TeamFiles]:
        items = self._reflector.items
        if self._namespaces is None:
            return items
        names = set(self._namespaces.items.values())
        return {key: files for key, files in items.items() if files.namespace in names}

    def _load(self, files: TeamFiles, mapper: ResourceMapper) -> AdapterConfig:
        problems: list[Problem] = []
        configs: list[AdapterConfig] = []
        for key, text in files.texts:
            source = f"{files.label}/{key}"
            try:
                config = load_rules(text, source, mapper, disables=True)
                longest_ms = self._budget.longest_range_ms
                place = (files.namespace, self._labels, source, longest_ms)
                configs.append(confined_config(config, *place))
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        return AdapterConfig.joined(*configs)


@dataclass(slots=True)
class _Spent:
    """The part of a namespace's budget that its first ConfigMaps have used."""

    config_maps: int = 0
    text_bytes: int = 0
    rules: int = 0

    def before(self, files: TeamFiles, budget: RuleBudget) -> str | None:
        """Return why the budget has no room to read one more ConfigMap; None if it has."""
        if self.config_maps >= budget.config_maps:
            return f"found more than {budget.config_maps} ConfigMaps with rules in the namespace"
        if self.text_bytes + files.text_bytes > budget.text_bytes:
            return (
                f"found more than {budget.text_bytes} bytes of rules in the namespace, "
                f"{files.text_bytes} of them in this ConfigMap"
            )
        self.config_maps += 1
        self.text_bytes += files.text_bytes
        return None

    def after(self, config: AdapterConfig, budget: RuleBudget) -> str | None:
        """Return why the budget has no room for a ConfigMap's rules; None if it has."""
        count = len(config.rules) + len(config.external_rules)
        if self.rules + count > budget.rules:
            return f"found {self.rules + count} rules in the namespace, expected at most {budget.rules}"
        self.rules += count
        return None


def _name(body: JsonObject) -> str | None:
    return text_of(mapping_of(body.get("metadata")).get("name")) or None


def read_config_map(
    body: JsonObject, most_bytes: int = DEFAULT_BUDGET.text_bytes
) -> TeamFiles | None:
    """Return a ConfigMap's files; a file above the size limit comes without its text.

    None is one without a name or namespace.
    """
    metadata = mapping_of(body.get("metadata"))
    namespace, name = text_of(metadata.get("namespace")), text_of(metadata.get("name"))
    if not namespace or not name:
        return None
    data = mapping_of(body.get("data"))
    texts = sorted((str(key), text) for key, text in data.items() if isinstance(text, str))
    size = sum(len(key) + len(text.encode("utf-8", "replace")) for key, text in texts)
    return TeamFiles(namespace, name, tuple(texts) if size <= most_bytes else (), size)
