"""The HPA controller's arithmetic as numbers alone: no objects, no words, no I/O.

Every function takes and returns whole numbers, floats and tuples of them, so that numba compiles it as it
stands.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.kernel.memory import (
        DISABLED,
        MAX,
        MIN,
        PERCENT,
        PODS,
        Limits,
        Rules,
        cells_of,
    )
    from gpuscale.hpa.kernel.numbers import MAX_INT32, MAX_INT64, ceil_int32
    from gpuscale.hpa.kernel.pods import PodTotals
    from gpuscale.hpa.kernel.proposals import (
        NO_CHOICE,
        NOT_FETCHED,
        Proposal,
        Tolerances,
        average_proposal,
        chosen,
        failure,
        share_proposal,
        value_proposal,
    )
    from gpuscale.hpa.kernel.syncing import sync
else:
    __getattr__ = door(__name__)

__all__ = [
    "DISABLED",
    "MAX",
    "MAX_INT32",
    "MAX_INT64",
    "MIN",
    "NOT_FETCHED",
    "NO_CHOICE",
    "PERCENT",
    "PODS",
    "Limits",
    "PodTotals",
    "Proposal",
    "Rules",
    "Tolerances",
    "average_proposal",
    "ceil_int32",
    "cells_of",
    "chosen",
    "failure",
    "share_proposal",
    "sync",
    "value_proposal",
]
