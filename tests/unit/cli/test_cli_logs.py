"""The log of commands."""

import json
import logging

import pytest

from gpuscale.cli.logs import PLAIN_LOG, JsonFormatter


def record(message):
    return logging.LogRecord("gpuscale", logging.INFO, __file__, 1, "%s", (message,), None)


@pytest.mark.parametrize(
    ("length", "end"), [(8_192, "aaa"), (100_176, "... (91984 characters more)")]
)
def test_a_line_is_bounded_whatever_others_wrote(length: int, end: str) -> None:
    line = PLAIN_LOG.format(record("a" * length))
    assert line.endswith(end)
    assert len(line) < 8_300
    text = json.loads(JsonFormatter().format(record("a" * length)))["msg"]
    assert text.endswith(end)
    assert len(text) < 8_300
