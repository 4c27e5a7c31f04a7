"""Prometheus rule files that are reloaded: a faulty file keeps its last good rules."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.series.rules import RuleGroups, joined, load_rule_groups
from gpuscale.server.sources.listed_files import ListedFiles, read_text

_LOG = logging.getLogger(__name__)
NO_GROUPS = RuleGroups()


@dataclass(slots=True)
class _File:
    """A file's last good groups, and its text when last read."""

    groups: RuleGroups
    text: str | None
    fault: str | None = None


class PrometheusRuleFiles:
    """The rule groups of files given by name and by folder.

    Args:
        paths: files, and folders with files.
        must_be_good: whether a bad file is an error, rather than one without rules yet.
        beside: groups that are there whatever the files have.

    Raises:
        ConfigError: a file or folder can't be read, or has faults, and must be good; all are named.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        must_be_good: bool = True,
        beside: RuleGroups = NO_GROUPS,
    ) -> None:
        self._beside = beside
        self._listed = ListedFiles(paths)
        self._files: dict[Path, _File] = {}
        self.reloads = 0
        """Times that changed rules were taken."""
        self.failures = 0
        """Times that a change was not taken."""
        if not must_be_good:
            self._files = {path: self._seen(path) for path in self._listed.list([])}
            return
        problems: list[Problem] = []
        for path in self._listed.list(problems):
            try:
                text = read_text(path)
                self._files[path] = _File(load_rule_groups(text, str(path)), text)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)

    @property
    def groups(self) -> RuleGroups:
        return joined([self._beside, *(each.groups for each in self._files.values())])

    @property
    def faults(self) -> list[str]:
        """Return why current files are not used."""
        return [each.fault for each in self._files.values() if each.fault is not None]

    def look(self) -> RuleGroups | None:
        """Return the groups if they changed; may be called in a thread."""
        found = {path: self._seen(path) for path in self._listed.list([])}
        before = [id(each.groups) for each in self._files.values()]
        self._files = found
        if [id(each.groups) for each in found.values()] == before:
            return None
        self.reloads += 1
        _LOG.info("Prometheus rules were read again")
        return self.groups

    def _seen(self, path: Path) -> _File:
        known = self._files.get(path, _File(NO_GROUPS, None))
        text: str | None = None
        try:
            text = read_text(path)
            if text == known.text:
                return known
            return _File(load_rule_groups(text, str(path)), text)
        except ConfigError as error:
            fault = str(error)
        if fault != known.fault:
            self.failures += 1
            _LOG.warning("the last good Prometheus rules stay:\n%s", fault)
        return _File(known.groups, text, fault)
