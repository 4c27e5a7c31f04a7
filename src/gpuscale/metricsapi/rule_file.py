"""The rule file, read again when it changes. A bad one leaves the last good rules in place.

Files of a ConfigMap change by a symbolic link that is turned, so the content is what is compared.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from gpuscale.core.errors import ConfigError, Problem
from gpuscale.sources.resources import ResourceMapper
from gpuscale.sources.rules import AdapterConfig, load_rules

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleState:
    """How the latest look at the file went."""

    good_ms: int
    """When the rules that are served were read."""
    fault: str | None = None
    """Why the file as it is now is not served; None where it is."""
    reloads: int = 0
    failures: int = 0


class RuleFile:
    """The rules of a file.

    Raises:
        ConfigError: the file can't be read, or has faults.
    """

    def __init__(self, path: Path, mapper: ResourceMapper, now_ms: int) -> None:
        self._path = path
        self._text = self._read()
        self.mapper = mapper
        """What the rules were read with."""
        self.config = load_rules(self._text, str(path), mapper)
        self.state = RuleState(now_ms)
        self._seen: tuple[str, ResourceMapper] | None = (self._text, mapper)
        """What was last made rules of, good or bad; None after a file that could not be read."""
        _warn(self.config)

    def look(self, mapper: ResourceMapper, now_ms: int) -> AdapterConfig | None:
        """Return new rules, where the file or the cluster's resources changed and the file is good.

        Args:
            mapper: the cluster's resources as they are now.
            now_ms: for the state.
        """
        try:
            text = self._read_again()
            if self._is_seen(text, mapper):
                return None
            self._seen = (text, mapper)
            config = load_rules(text, str(self._path), mapper)
        except ConfigError as error:
            self._note(str(error))
            return None
        self._text, self.mapper, self.config = text, mapper, config
        self.state = RuleState(now_ms, None, self.state.reloads + 1, self.state.failures)
        _LOG.info("%s was read again", self._path)
        _warn(config)
        return config

    def _is_seen(self, text: str, mapper: ResourceMapper) -> bool:
        return self._seen is not None and (text, mapper.types) == (
            self._seen[0],
            self._seen[1].types,
        )

    def _read_again(self) -> str:
        try:
            return self._read()
        except ConfigError:
            self._seen = None
            raise

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                Problem(str(self._path), None, None, None, f"can't be read: {reason}")
            ) from error

    def _note(self, fault: str) -> None:
        before = self.state
        if fault == before.fault:
            return
        self.state = RuleState(before.good_ms, fault, before.reloads, before.failures + 1)
        _LOG.warning("the last good rules stay:\n%s", fault)


def _warn(config: AdapterConfig) -> None:
    for problem in config.warnings:
        _LOG.warning("%s", problem)
