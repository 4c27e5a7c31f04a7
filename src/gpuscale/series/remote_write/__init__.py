"""Samples as messages of Prometheus' remote write protocol, with relabelling."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.remote_write.azure_metrics import (
        MAX_AGE_S,
        MAX_CHARS,
        MAX_DIMENSIONS,
        AzureEncoder,
    )
    from gpuscale.series.remote_write.message import LabelEncoder, WriteMessage, pieces, value_rows
    from gpuscale.series.remote_write.relabelling import Action, RelabelRule
else:
    __getattr__ = door(__name__)

__all__ = [
    "MAX_AGE_S",
    "MAX_CHARS",
    "MAX_DIMENSIONS",
    "Action",
    "AzureEncoder",
    "LabelEncoder",
    "RelabelRule",
    "WriteMessage",
    "pieces",
    "value_rows",
]
