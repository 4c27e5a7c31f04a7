"""The log of a command, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime

_MOST_CHARS = 8192
"""Of a message: some hold what users or other servers wrote. A CA bundle, which must stay whole, has less."""


class _PlainFormatter(logging.Formatter):
    """Lines to read."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _bounded(record.message)
        return super().formatMessage(record)


PLAIN_LOG = _PlainFormatter("%(asctime)s %(levelname)s %(message)s")


def _bounded(text: str) -> str:
    left = len(text) - _MOST_CHARS
    return text if left <= 0 else f"{text[:_MOST_CHARS]}... ({left} characters more)"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record, with its trace where it has one."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname.lower(), "msg": _bounded(record.getMessage())}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_log(level: int, formatter: logging.Formatter = PLAIN_LOG) -> None:
    """Write gpuscale's log from a level on, and the warnings of libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("gpuscale").setLevel(level)
