"""Signals to scale on, and facts about series: names, units, possible values.

Signals of model servers, gateways, queues and GPUs, with the query of each:

    >>> from gpuscale.signals import SIGNALS
    >>> SIGNALS["vllm-waiting"].series
    'vllm:num_requests_waiting'

and what is known of a series by its name:

    >>> from gpuscale.signals import range_of
    >>> str(range_of("DCGM_FI_DEV_GPU_UTIL"))
    '0 to 100'

The tables of AMD's tools are in `signals.amd`, for the agent alone.
"""

from gpuscale.signals.catalogue import SIGNALS, by_family
from gpuscale.signals.counters import (
    DEFAULT_COUNTERS,
    MAX_TEXT_BYTES,
    Counter,
    CountersRead,
    list_of_image,
    load_counters,
    read_counters,
)
from gpuscale.signals.fields import FIELDS, NVLINK_LINKS, Field, ValueKind
from gpuscale.signals.former import former_label, former_series
from gpuscale.signals.gpus import GPU_SIGNALS, pod_labels
from gpuscale.signals.known_fields import field_named, why_not_read
from gpuscale.signals.names import NEW_NAMES, NEWER_NAMES, Names, NewName, new_name
from gpuscale.signals.series_facts import (
    closest_series,
    facts_of,
    impossible,
    is_of_gpu,
    is_of_pods,
    is_unknown_gpu_name,
    known_prefixes,
    range_of,
    recorded_from,
)
from gpuscale.signals.signal import Signal, SignalFamily, filled_in, value_by

__all__ = [
    "DEFAULT_COUNTERS",
    "FIELDS",
    "GPU_SIGNALS",
    "MAX_TEXT_BYTES",
    "NEWER_NAMES",
    "NEW_NAMES",
    "NVLINK_LINKS",
    "SIGNALS",
    "Counter",
    "CountersRead",
    "Field",
    "Names",
    "NewName",
    "Signal",
    "SignalFamily",
    "ValueKind",
    "by_family",
    "closest_series",
    "facts_of",
    "field_named",
    "filled_in",
    "former_label",
    "former_series",
    "impossible",
    "is_of_gpu",
    "is_of_pods",
    "is_unknown_gpu_name",
    "known_prefixes",
    "list_of_image",
    "load_counters",
    "new_name",
    "pod_labels",
    "range_of",
    "read_counters",
    "recorded_from",
    "value_by",
    "why_not_read",
]
