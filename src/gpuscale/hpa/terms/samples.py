"""Whether the values of a metric are readings of pods: codes for "no value", and one number for all pods.

Source: NVIDIA DCGM 4, dcgmlib/dcgm_structs.h (DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK and the
    three above each); NVML 13.0, nvml.h (NVML_VALUE_NOT_AVAILABLE, which is -1, read without its sign).
"""

from collections.abc import Sequence

from gpuscale.signals import facts_of

_CODES = (
    (0x7FFFFFF0, 0x7FFFFFFF),
    (0xFFFFFFFF, 0xFFFFFFFF),
    # As floats, which hold 53 bits.
    (float(0x7FFFFFFFFFFFFFF0), float(0x7FFFFFFFFFFFFFFF)),
    (float(2**64 - 1), float(2**64 - 1)),
    (140_737_488_355_328.0, 140_737_488_355_331.0),
)
_FULL = (1.0, 100.0)
_CHANCE = 10
"""Below it, pods may well have the same number of requests."""


def is_code(value: float) -> bool:
    """Return whether a value is a code of DCGM or NVML for "no value", and no reading."""
    return any(low <= value <= high for low, high in _CODES)


def is_one_number(metric: str, values_milli: Sequence[int]) -> bool:
    """Return whether pods all report one number that is hardly each one's own, such as a queue's length.

    Args:
        metric: its name; pods that are all at its highest value are just busy.
        values_milli: of each pod.
    """
    if len(values_milli) < 2 or len(set(values_milli)) > 1:
        return False
    value, facts = values_milli[0] / 1000, facts_of(metric)
    is_full = value in _FULL if facts is None or facts.highest is None else value >= facts.highest
    return value > _CHANCE and not is_full
