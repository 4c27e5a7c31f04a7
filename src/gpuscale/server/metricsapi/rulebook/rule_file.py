"""Rule texts that are reloaded: a faulty text keeps its last good rules.

Files of a ConfigMap change by a symbolic link that is turned, so the content is what is compared.
"""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.resources import ResourceMapper
from gpuscale.server.sources.listed_files import ListedFiles, read_text

_LOG = logging.getLogger(__name__)
_KEPT = "the last good rules stay"
Content = TypeVar("Content", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RuleState:
    """The result of the latest reload of a text."""

    good_ms: int | None = None
    """When the rules that are served were read; None where there were no good ones yet."""
    fault: str | None = None
    """Why the text as it is now is not served; None where it is."""
    reloads: int = 0
    failures: int = 0
    disabled: tuple[str, ...] = ()
    """Why rules are left out of those that are served, one text for each rule."""


class KeptRules(Generic[Content]):
    """The last good rules of one text, or of several texts that are only valid together.

    Args:
        name: for messages.
        load: makes rules of the content; raises ConfigError.
    """

    def __init__(self, name: str, load: Callable[[Content, ResourceMapper], AdapterConfig]) -> None:
        self.name = name
        self.config = AdapterConfig()
        self.state = RuleState()
        self._load = load
        self._seen: tuple[Content, ResourceMapper] | None = None
        """What was last made rules of, good or bad; None after content that could not be read."""

    def begin(self, content: Content, mapper: ResourceMapper, now_ms: int) -> None:
        """Load the first content.

        Raises:
            ConfigError: it has faults.
        """
        self._seen = (content, mapper)
        self._accept(self._load(content, mapper), now_ms)

    def take(self, content: Content, mapper: ResourceMapper, now_ms: int) -> bool:
        """Load changed content; return whether it gives new rules.

        Args:
            content: as it is now.
            mapper: the cluster's resources as they are now.
            now_ms: for the state.
        """
        if self._is_seen(content, mapper):
            return False
        self._seen = (content, mapper)
        try:
            config = self._load(content, mapper)
        except ConfigError as error:
            self.note(str(error))
            return False
        if worse := self._got_worse(config):
            self.note(worse)
            return False
        self._accept(config, now_ms)
        return True

    def _got_worse(self, config: AdapterConfig) -> str:
        """Return the rules that a change would lose by a mistake; empty if it loses none."""
        if self.state.good_ms is None:
            return ""
        known = {rule.series_query for rule in self.config.disabled}
        worse: list[object] = [r for r in config.disabled if r.series_query not in known]
        if self.config.has_rules and not config.has_rules:
            worse = worse or [*config.warnings] or [f"{self.name}: found no rules"]
        return "\n".join(map(str, worse))

    def lose(self, fault: str) -> None:
        """Record that the content can't be read."""
        self._seen = None
        self.note(fault)

    def note(self, fault: str) -> None:
        """Record why new content is not used; each reason is logged once."""
        before = self.state
        if fault == before.fault:
            return
        self.state = replace(before, fault=fault, failures=before.failures + 1)
        kept = "there are no good rules yet" if before.good_ms is None else _KEPT
        _LOG.warning("%s:\n%s", kept, fault)

    def _accept(self, config: AdapterConfig, now_ms: int) -> None:
        before = self.state
        is_again = before.good_ms is not None
        if is_again:
            _LOG.info("%s was read again", self.name)
        self.config = config
        disabled = tuple(map(str, config.disabled))
        self.state = RuleState(now_ms, None, before.reloads + is_again, before.failures, disabled)
        for problem in config.warnings:
            _LOG.warning("%s", problem)
        for text in disabled:
            _LOG.error("a rule is left out, the others are served:\n%s", text)

    def _is_seen(self, content: Content, mapper: ResourceMapper) -> bool:
        return self._seen is not None and (content, mapper.types) == (
            self._seen[0],
            self._seen[1].types,
        )


class RuleFile:
    """The rules of a file.

    Args:
        path: of the file.
        mapper: the cluster's resources.
        now_ms: for the state.
        must_be_good: whether a bad file is an error, rather than one without rules yet.

    Raises:
        ConfigError: the file can't be read, or has faults, and must be good.
    """

    def __init__(
        self, path: Path, mapper: ResourceMapper, now_ms: int, *, must_be_good: bool = True
    ) -> None:
        self._path = path
        self._kept: KeptRules[str] = KeptRules(
            str(path), lambda text, known: load_rules(text, str(path), known, disables=True)
        )
        if must_be_good:
            self._kept.begin(read_text(path), mapper, now_ms)
        else:
            self.look(mapper, now_ms)

    @property
    def config(self) -> AdapterConfig:
        return self._kept.config

    @property
    def state(self) -> RuleState:
        return self._kept.state

    def look(self, mapper: ResourceMapper, now_ms: int) -> AdapterConfig | None:
        """Return new rules if the file or the cluster's resources changed and the file is valid.

        Args:
            mapper: the cluster's resources as they are now.
            now_ms: for the state.
        """
        try:
            text = read_text(self._path)
        except ConfigError as error:
            self._kept.lose(str(error))
            return None
        return self._kept.config if self._kept.take(text, mapper, now_ms) else None


class RuleFiles:
    """Rule files given by name and by folder, in the flags' order.

    Files of a folder come sorted by name. Each keeps its own last good rules; one that leaves its folder
    takes its rules along with the second look that misses it, one that was named and is gone does not.

    Args:
        paths: files, and folders with files.
        mapper: the cluster's resources.
        now_ms: for the states.

    Raises:
        ConfigError: a file or folder can't be read, or has faults; all are reported.
    """

    def __init__(self, paths: Sequence[Path], mapper: ResourceMapper, now_ms: int) -> None:
        self._listed = ListedFiles(paths)
        self._files: dict[Path, RuleFile] = {}
        problems: list[Problem] = []
        for path in self._listed.list(problems):
            try:
                self._files[path] = RuleFile(path, mapper, now_ms)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)

    @property
    def config(self) -> AdapterConfig:
        """Return the rules of all files; where two define one metric, the later file wins."""
        return AdapterConfig.joined(*(each.config for each in self._files.values()))

    @property
    def states(self) -> Mapping[str, RuleState]:
        """Return the state of each file by its path."""
        return {str(path): each.state for path, each in self._files.items()}

    def look(self, mapper: ResourceMapper, now_ms: int) -> bool:
        """Reload the files; return whether the rules changed."""
        before = [(path, each.config) for path, each in self._files.items()]
        found: dict[Path, RuleFile] = {}
        for path in self._listed.list([]):
            known = self._files.get(path)
            if known is None:
                known = RuleFile(path, mapper, now_ms, must_be_good=False)
            else:
                known.look(mapper, now_ms)
            found[path] = known
        self._files = found
        return [(path, each.config) for path, each in found.items()] != before
