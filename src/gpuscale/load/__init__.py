"""`gpuscale load`: bounded test load, with results second by second."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load import shapes
    from gpuscale.load.limits import MAX_GPU_PROCESSES, MAX_JOBS, USUAL_JOBS
    from gpuscale.load.plan import MAX_DURATION_S, LoadPlan, LoadRequest, RunLimits, Slo
    from gpuscale.load.recording import RunSecond
    from gpuscale.load.result import load_document, load_text, load_timeline, load_totals
    from gpuscale.load.run import new_runner, run_load
    from gpuscale.load.shapes import PERCENT, RATES, LoadUnit
    from gpuscale.load.tokens import (
        Lengths,
        TokenBodies,
        has_places,
        openai_template,
        parse_lengths,
        read_lengths,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "MAX_DURATION_S",
    "MAX_GPU_PROCESSES",
    "MAX_JOBS",
    "PERCENT",
    "RATES",
    "USUAL_JOBS",
    "Lengths",
    "LoadPlan",
    "LoadRequest",
    "LoadUnit",
    "RunLimits",
    "RunSecond",
    "Slo",
    "TokenBodies",
    "has_places",
    "load_document",
    "load_text",
    "load_timeline",
    "load_totals",
    "new_runner",
    "openai_template",
    "parse_lengths",
    "read_lengths",
    "run_load",
    "shapes",
]
