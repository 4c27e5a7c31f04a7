"""The saved state of a search: its replays, so that a stopped search can continue.

A search takes the same steps again and finds their outcomes in the file, so its answer is the same as without
a stop.
"""

import hashlib
import time
from pathlib import Path

import msgspec

import gpuscale
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.whole_files import write_file
from gpuscale.lab.plan.tuning.contender import Searched
from gpuscale.lab.plan.tuning.outcomes import Known, Row, known_of, rows_of
from gpuscale.lab.plan.tuning.search import ReplayCase

_MAX_BYTES = 1 << 30
_EVERY_S = 5.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    """Names the demand, the service, what is promised and the release of gpuscale."""
    outcomes: dict[str, list[Row]]
    """Of each contender, by the name of what it is."""


class TuningState:
    """The replays so far, and the file they are saved in.

    Args:
        path: of the file; None keeps it in memory only.
        question: that is searched.

    Raises:
        ConfigError: the file is there and is no state, or that of another search.
    """

    def __init__(self, path: str | None, question: ReplayCase) -> None:
        self._path = path
        self._question = _digest(
            gpuscale.__version__,
            question.demand.tobytes(),
            repr((question.service, question.requests)),
            # How much may be missed is not in the outcomes: a stricter search can go on with them.
            repr([(each.measure, each.limit_s) for each in question.promise.terms]),
        )
        self._known: dict[str, Known] = {}
        self._rows: dict[str, list[Row]] = {}
        self._saved_s = time.monotonic()
        if path is not None and Path(path).exists():
            self._rows = self._read(path)

    def known(self, contender: Searched) -> Known:
        """Return a contender's outcomes, to which the search adds."""
        name = _digest(*contender.identity)
        if name not in self._known:
            self._known[name] = known_of(self._rows.pop(name, []))
        return self._known[name]

    def save(self, *, now: bool = False) -> None:
        """Save the file atomically, if the last save was a while ago.

        Raises:
            UsageError: it can't be written.
        """
        if self._path is None or (not now and time.monotonic() < self._saved_s + _EVERY_S):
            return
        rows = {name: rows_of(each) for name, each in self._known.items()}
        text = msgspec.json.encode(_File(self._question, self._rows | rows)).decode()
        write_file(Path(self._path), text + "\n", "--state")
        self._saved_s = time.monotonic()

    def _read(self, path: str) -> dict[str, list[Row]]:
        expected = "the state of this search; remove it to start over"
        try:
            with Path(path).open("rb") as file:
                body = file.read(_MAX_BYTES + 1)
            if len(body) > _MAX_BYTES:
                raise ConfigError(
                    Problem(path, None, None, f"more than {_MAX_BYTES} bytes", expected)
                )
            found = msgspec.json.decode(body, type=_File)
        except OSError as error:
            raise ConfigError(Problem(path, None, None, error.strerror, expected)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(Problem(path, None, None, str(error), expected)) from None
        if found.question != self._question:
            found_other = "the state of another demand, service, promise or release of gpuscale"
            raise ConfigError(Problem(path, None, None, found_other, expected))
        return found.outcomes


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]
