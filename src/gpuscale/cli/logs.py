"""The log of a command, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime

PLAIN_LOG = logging.Formatter("%(asctime)s %(levelname)s %(message)s")


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record, with its trace where it has one."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname.lower(), "msg": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_log(level: int, formatter: logging.Formatter = PLAIN_LOG) -> None:
    """Write gpuscale's log from a level on, and the warnings of libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("gpuscale").setLevel(level)
