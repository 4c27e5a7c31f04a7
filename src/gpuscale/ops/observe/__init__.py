"""A live HPA as its controller sees it: read from a cluster, saved as a Decision document."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.observe.discovery import Discovery
    from gpuscale.ops.observe.document import Sight
    from gpuscale.ops.observe.lookup import find_hpa, find_hpas, list_all, name_of
    from gpuscale.ops.observe.metrics import MetricReader
    from gpuscale.ops.observe.observer import Observer
    from gpuscale.ops.observe.reading import (
        HpaSelection,
        SeenHpa,
        read_hpas,
        read_request,
        saved_text,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "Discovery",
    "HpaSelection",
    "MetricReader",
    "Observer",
    "SeenHpa",
    "Sight",
    "find_hpa",
    "find_hpas",
    "list_all",
    "name_of",
    "read_hpas",
    "read_request",
    "saved_text",
]
