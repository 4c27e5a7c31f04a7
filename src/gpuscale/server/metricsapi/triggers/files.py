"""Trigger files that are reloaded: a faulty file keeps its last good triggers."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.server.metricsapi.rulebook.rule_file import RuleState
from gpuscale.server.sources.listed_files import ListedFiles, read_text
from gpuscale.triggers import Trigger, read_triggers
from gpuscale.triggers.policies import policy_faults

_LOG = logging.getLogger(__name__)
Name = tuple[str, str]
"""Namespace and metric."""


class _File:
    """The last good triggers of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.triggers: tuple[Trigger, ...] = ()
        self.state = RuleState()
        self._text: str | None = None

    def look(self, now_ms: int) -> None:
        """Reload the text.

        Raises:
            ConfigError: it can't be read or has faults, which is logged once; the last good triggers stay.
        """
        before = self.state
        try:
            text = read_text(self.path)
            if text == self._text and before.fault is None:
                return
            triggers = read_triggers(text, str(self.path), policy_faults)
        except ConfigError as error:
            if str(error) != before.fault:
                failures = before.failures + 1
                self.state = RuleState(before.good_ms, str(error), before.reloads, failures)
                if before.good_ms is not None:
                    _LOG.warning("the last good triggers stay:\n%s", error)
            raise
        reloads = before.reloads + (before.good_ms is not None)
        self._text, self.triggers = text, triggers
        self.state = RuleState(now_ms, None, reloads, before.failures)


class TriggerFiles:
    """The triggers of files given by name and by folder.

    Args:
        paths: files, and folders with files.
        now_ms: for the states.

    Raises:
        ConfigError: a file or folder can't be read, or has faults; all are reported.
    """

    def __init__(self, paths: Sequence[Path], now_ms: int) -> None:
        self._listed = ListedFiles(paths)
        self._files: dict[Path, _File] = {}
        self._by_name: Mapping[Name, Trigger] = {}
        problems: list[Problem] = []
        for path in self._listed.list(problems):
            file = self._files[path] = _File(path)
            try:
                file.look(now_ms)
            except ConfigError as error:
                problems += error.problems
        self._index(problems)
        if problems:
            raise ConfigError(*problems)

    @property
    def by_name(self) -> Mapping[Name, Trigger]:
        """Return the triggers by namespace and metric; the first file wins."""
        return self._by_name

    @property
    def state(self) -> RuleState:
        """Return one state for all files."""
        states = [file.state for file in self._files.values()]
        faults = [state.fault for state in states if state.fault is not None]
        good_ms = [state.good_ms for state in states if state.good_ms is not None]
        return RuleState(
            max(good_ms, default=None),
            "\n".join(faults) if faults else None,
            sum(state.reloads for state in states),
            sum(state.failures for state in states),
        )

    def look(self, now_ms: int) -> bool:
        """Reload the files; return whether the triggers changed."""
        before = self._by_name
        found: dict[Path, _File] = {}
        for path in self._listed.list([]):
            file = found[path] = self._files.get(path) or _File(path)
            try:
                file.look(now_ms)
            except ConfigError as error:
                _LOG.debug("%s", error)
        self._files = found
        self._index([])
        return self._by_name != before

    def _index(self, problems: list[Problem]) -> None:
        by_name: dict[Name, Trigger] = {}
        origins: dict[Name, Path] = {}
        for path, file in self._files.items():
            for trigger in file.triggers:
                key = (trigger.namespace, trigger.name)
                if key in by_name:
                    expected = (
                        f"a name of its own; {trigger.name} of {trigger.namespace} is also in"
                    )
                    problems.append(
                        Problem(str(path), None, None, None, f"{expected} {origins[key]}")
                    )
                    continue
                by_name[key], origins[key] = trigger, path
        self._by_name = by_name
