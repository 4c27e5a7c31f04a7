"""Runs `gpuscale calibrate`: greets, measures and analyses the replica in one event loop."""

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.base.errors import UsageError

if TYPE_CHECKING:
    from gpuscale.load import LoadRequest
    from gpuscale.load.calibrate import Analysis, Measurements
    from gpuscale.load.calibrate.measuring import PredictionCheck, SessionSettings, SignalReader


class CalibrationRun(NamedTuple):
    """The results of a calibration."""

    measured: "Measurements"
    analysis: "Analysis"
    check: "PredictionCheck | str"
    """Or why there is none."""
    doubts: tuple[str, ...]
    """About the service and the signals, in words."""


def run_calibration(
    request: "LoadRequest",
    settings: "SessionSettings",
    opened: "Callable[[], SignalReader | None]",
) -> CalibrationRun:
    """Run a calibration, and return its results.

    Args:
        request: what is sent.
        settings: how.
        opened: opens the way to the signals' values, inside the event loop.

    Raises:
        UsageError: the service can't be calibrated, or the signals can't be read.
        UnavailableError: the service does not answer.
    """
    from gpuscale.cli.exits import stop_event
    from gpuscale.load import new_runner
    from gpuscale.load.calibrate.measuring import Loader, Session, greet
    from gpuscale.load.http import resolve

    logging.getLogger("gpuscale.load").setLevel(logging.ERROR)  # levels that are cut leave requests
    target = resolve(request)

    async def run() -> CalibrationRun:
        stop = stop_event()
        doubts = await greet(target, request.url, request.timeout_s)
        reader = opened()
        try:
            if reader is not None and not await reader.read() and reader.problem:
                raise UsageError(f"signals: {reader.problem}")
            loader = Loader(
                request, target, settings.ramp.objective, reader.read if reader else None, stop
            )
            loader.every_s = min(1.0, max(0.2, settings.ramp.hold_s / 40))
            found = await Session(loader, settings, say).run()
            if reader is not None and reader.problem:
                doubts = (*doubts, f"signals: {reader.problem}")
            return CalibrationRun(*found, doubts)
        finally:
            if reader is not None:
                await reader.close()

    with new_runner() as runner:
        return runner.run(run())


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"gpuscale: {text}", file=sys.stderr, flush=True)
