"""A server's rules together: the preset, the rule files, and teams' ConfigMaps.

Where several give one name, files come before the preset, later files before earlier ones, and in its own
namespace a team before all of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuscale.server.metricsapi.rulebook.rule_file import RuleFiles, RuleState
from gpuscale.server.metricsapi.rulebook.team_rules import TeamRules
from gpuscale.server.rules.config import AdapterConfig, preset_config
from gpuscale.server.rules.resources import ResourceMapper


class RuleBook:
    """The current rules of one server.

    Args:
        paths: of rule files and folders with them.
        has_preset: whether the preset's rules are there too.
        mapper: the cluster's resources.
        now_ms: for the states.
        teams: rules from ConfigMaps; None reads none.

    Raises:
        ConfigError: a file can't be read, or has faults.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        mapper: ResourceMapper,
        now_ms: int,
        *,
        has_preset: bool = False,
        teams: TeamRules | None = None,
    ) -> None:
        self.mapper = mapper
        """What the rules were read with."""
        self._has_preset = has_preset
        self._files = RuleFiles(paths, mapper, now_ms)
        self._teams = teams

    @property
    def config(self) -> AdapterConfig:
        parts = [preset_config(self.mapper)] if self._has_preset else []
        parts.append(self._files.config)
        if self._teams is not None:
            parts.append(self._teams.config)
        return AdapterConfig.joined(*parts)

    @property
    def state(self) -> RuleState:
        """Return one state for all rule files; a fault of any of them is in it."""
        states = self._files.states.values()
        faults = [state.fault for state in states if state.fault is not None]
        good_ms = [state.good_ms for state in states if state.good_ms is not None]
        return RuleState(
            max(good_ms, default=None),
            "\n".join(faults) if faults else None,
            sum(state.reloads for state in states),
            sum(state.failures for state in states),
            tuple(text for state in states for text in state.disabled),
        )

    @property
    def team_states(self) -> Mapping[str, RuleState]:
        return {} if self._teams is None else self._teams.states

    def faults_in(self, namespace: str) -> tuple[str, ...]:
        """Return the faults of a team's ConfigMaps, shown to those who may read the namespace's metrics."""
        return () if self._teams is None else self._teams.faults_in(namespace)

    @property
    def states(self) -> Mapping[str, RuleState]:
        """Return the state of each file and each ConfigMap."""
        return {**self._files.states, **self.team_states}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return a remark for each fault of a file or ConfigMap."""
        faults = (state.fault for state in self.states.values())
        lines = [f"the last good rules stay: {fault}" for fault in faults if fault is not None]
        lines += [
            f"a rule is left out, the others are served: {text}"
            for state in self.states.values()
            for text in state.disabled
        ]
        if self._teams is not None and self._teams.error is not None:
            lines.append(f"the ConfigMaps are not followed: {self._teams.error}")
        return tuple(lines)

    def look(self, mapper: ResourceMapper, now_ms: int) -> AdapterConfig | None:
        """Return the new rules if any file or ConfigMap changed; a faulty one keeps its last good rules.

        Args:
            mapper: the cluster's resources as they are now.
            now_ms: for the states.
        """
        has_new_resources = mapper.types != self.mapper.types
        changed = self._files.look(mapper, now_ms)
        if self._teams is not None:
            changed |= self._teams.look(mapper, now_ms)
        self.mapper = mapper
        return self.config if changed or (has_new_resources and self._has_preset) else None
