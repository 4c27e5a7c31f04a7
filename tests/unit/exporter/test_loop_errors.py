"""The event loop's errors in the log: once a minute each, and counted."""

import asyncio
import logging

from gpuscale.agent.exporter.http.loop_errors import AGAIN_S, LoopErrors


def test_the_same_error_is_logged_once_a_minute_with_a_count(caplog) -> None:
    now_s = [0.0]
    errors = LoopErrors(lambda: now_s[0])
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.ERROR):
            for _ in range(1000):
                errors(loop, {"message": "out of files", "exception": OSError(24, "too many")})
            errors(loop, {"message": "something else"})
            now_s[0] += AGAIN_S
            errors(loop, {"message": "out of files", "exception": OSError(24, "too many")})
    finally:
        loop.close()
    first, other, again = caplog.messages
    assert first.startswith("out of files: ")
    assert other.startswith("something else")
    assert again.startswith("out of files (999 more like it)")
