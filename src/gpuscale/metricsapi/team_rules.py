"""Rules in ConfigMaps of teams, each confined to the namespace that its ConfigMap is in.

A bad ConfigMap keeps its own last good rules, and touches nobody else's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.core.clock import Clock
from gpuscale.core.errors import ConfigError, GpuscaleError, Problem
from gpuscale.kube.connection import JsonObject, KubeConnection
from gpuscale.kube.json_values import mapping_of, text_of
from gpuscale.kube.reflect import Reflector
from gpuscale.kube.settings import KubeSettings
from gpuscale.metricsapi.rule_file import KeptRules, RuleState
from gpuscale.sources.confine import confined_config
from gpuscale.sources.resources import ResourceMapper
from gpuscale.sources.rules import AdapterConfig, load_rules

_PATH = "/api/v1/configmaps"
MAX_RULES = 200
"""Of one ConfigMap; each may be a query per discovery."""


@dataclass(frozen=True, slots=True)
class TeamFiles:
    """The content of one ConfigMap."""

    namespace: str
    name: str
    texts: tuple[tuple[str, str], ...]
    """Key and text of each file, sorted by key."""

    @property
    def label(self) -> str:
        """Return what messages call it."""
        return f"configmap {self.namespace}/{self.name}"


class TeamRules:
    """The ConfigMaps that a label selector selects, followed while `run` does.

    Args:
        connection: to the API server.
        settings: waits and sizes.
        selector: which ConfigMaps hold rules.
        namespace_labels: the labels that are trusted to tell namespaces apart.
        clock: of the waits.
    """

    def __init__(
        self,
        connection: KubeConnection,
        settings: KubeSettings,
        selector: str,
        namespace_labels: Sequence[str],
        clock: Clock,
    ) -> None:
        self._labels = tuple(namespace_labels)
        self._kept: dict[str, KeptRules[TeamFiles]] = {}
        self._reflector: Reflector[TeamFiles] = Reflector(
            connection,
            settings,
            _PATH,
            {"labelSelector": selector},
            read_config_map,
            clock,
            lambda: None,
        )

    async def run(self) -> None:
        """Follow the ConfigMaps until cancelled."""
        await self._reflector.run()

    @property
    def config(self) -> AdapterConfig:
        """Return all rules; of a namespace's ConfigMaps the last by name counts for a name."""
        return AdapterConfig.joined(*(self._kept[key].config for key in sorted(self._kept)))

    @property
    def states(self) -> Mapping[str, RuleState]:
        """Return the state of each ConfigMap by what messages call it."""
        return {self._kept[key].name: self._kept[key].state for key in sorted(self._kept)}

    @property
    def error(self) -> GpuscaleError | None:
        """Return why the ConfigMaps are not followed now; None while they are."""
        return self._reflector.state.error

    def look(self, mapper: ResourceMapper, now_ms: int) -> bool:
        """Return whether there are other rules than before."""
        items = self._reflector.items
        gone = [key for key in self._kept if key not in items]
        changed = False
        for key in gone:
            changed |= self._kept.pop(key).state.good_ms is not None
        for key, files in items.items():
            if key not in self._kept:
                self._kept[key] = KeptRules(files.label, self._load)
            changed |= self._kept[key].take(files, mapper, now_ms)
        return changed

    def _load(self, files: TeamFiles, mapper: ResourceMapper) -> AdapterConfig:
        problems: list[Problem] = []
        configs: list[AdapterConfig] = []
        for key, text in files.texts:
            source = f"{files.label}/{key}"
            try:
                config = load_rules(text, source, mapper)
                configs.append(confined_config(config, files.namespace, self._labels, source))
            except ConfigError as error:
                problems += error.problems
        joined = AdapterConfig.joined(*configs)
        count = len(joined.rules) + len(joined.external_rules)
        if count > MAX_RULES:
            expected = f"at most {MAX_RULES}"
            problems.append(Problem(files.label, None, None, f"{count} rules", expected))
        if problems:
            raise ConfigError(*problems)
        return joined


def read_config_map(body: JsonObject) -> TeamFiles | None:
    """Return the files of a ConfigMap; None for one without a name or namespace."""
    metadata = mapping_of(body.get("metadata"))
    namespace, name = text_of(metadata.get("namespace")), text_of(metadata.get("name"))
    if not namespace or not name:
        return None
    data = mapping_of(body.get("data"))
    texts = sorted((str(key), text) for key, text in data.items() if isinstance(text, str))
    return TeamFiles(namespace, name, tuple(texts))
