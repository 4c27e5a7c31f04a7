"""NVLink counters of Hopper and later: packets, bytes and errors, summed over a GPU's links.

Hopper's driver has no value for the older fields by link, such as `NVLINK_CRC_FLIT_ERROR_COUNT_L0`.

Source: NVIDIA nvml.h 13.0, `NVML_FI_DEV_NVLINK_COUNT_*` and `NVML_FI_DEV_NVLINK_ERROR_DL_*`, whose scope
    is the link.
"""

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import CallFailedError, field_reason
from gpuscale.agent.nvml.library import Answer, Handle, union_value
from gpuscale.agent.nvml.values.batches import ask
from gpuscale.agent.nvml.values.sources import Findings, Retry
from gpuscale.signals import NVLINK_LINKS

_NAMES = {
    "ERROR_DL_CRC": "ERROR_DL_CRC",
    "ERROR_DL_RECOVERY": "ERROR_DL_RECOVERY",
    "ERROR_DL_REPLAY": "ERROR_DL_REPLAY",
    "COUNT_TX_PACKETS": "COUNT_XMIT_PACKETS",
    "COUNT_TX_BYTES": "COUNT_XMIT_BYTES",
    "COUNT_TX_DISCARDS": "COUNT_XMIT_DISCARDS",
    "COUNT_RX_PACKETS": "COUNT_RCV_PACKETS",
    "COUNT_RX_BYTES": "COUNT_RCV_BYTES",
    "COUNT_RX_ERRORS": "COUNT_RCV_ERRORS",
    "COUNT_RX_REMOTE_ERRORS": "COUNT_RCV_REMOTE_ERRORS",
    "COUNT_RX_GENERAL_ERRORS": "COUNT_RCV_GENERAL_ERRORS",
    "COUNT_RX_SYMBOL_ERRORS": "COUNT_SYMBOL_ERRORS",
    "COUNT_RX_MALFORMED_PACKET_ERRORS": "COUNT_MALFORMED_PACKET_ERRORS",
    "COUNT_RX_BUFFER_OVERRUN_ERRORS": "COUNT_BUFFER_OVERRUN_ERRORS",
    "COUNT_LOCAL_LINK_INTEGRITY_ERRORS": "COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "COUNT_EFFECTIVE_ERRORS": "COUNT_EFFECTIVE_ERRORS",
    "COUNT_LINK_RECOVERY_EVENTS": "COUNT_LINK_RECOVERY_EVENTS",
    "COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": "COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
    "COUNT_LINK_RECOVERY_FAILED_EVENTS": "COUNT_LINK_RECOVERY_FAILED_EVENTS",
}
LINK_COUNTS = {
    f"DCGM_FI_DEV_NVLINK_{ours}": f"NVML_FI_DEV_NVLINK_{theirs}" for ours, theirs in _NAMES.items()
}
"""DCGM's field to NVML's."""


class LinkCounts:
    """Reads the counters of all links, one call for each field.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        fields: which counts.
        retry_ms: when to ask again for what no link supports.
    """

    def __init__(
        self, caller: Caller, handle: Handle, fields: frozenset[str], retry_ms: int
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._retries = {field: Retry(retry_ms) for field in LINK_COUNTS if field in fields}
        self.fields = frozenset(self._retries)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = Findings()
        for field, retry in self._retries.items():
            reason = retry.reason(now_ms)
            if reason is not None:
                found.absent[field] = reason
                continue
            try:
                found.values[field] = self._sum(field)
            except CallFailedError as failure:
                found.absent[field] = retry.note(failure, now_ms)
        return found

    def close(self) -> None:
        """Do nothing: counters hold no resources."""

    def _sum(self, field: str) -> int:
        """Return the sum over the links that have the counter.

        Raises:
            CallFailedError: none has.
        """
        number = self._caller.constant(LINK_COUNTS[field])
        pairs = [(number, link) for link in range(NVLINK_LINKS)]
        answers = ask(self._caller, "nvlink_counts", self._handle, pairs)
        counts = [count for each in answers if (count := _count(each)) is not None]
        if not counts:
            raise CallFailedError(field_reason(answers[0].nvmlReturn))
        return sum(counts)


def _count(answer: Answer) -> int | None:
    if answer.nvmlReturn != 0:
        return None
    value = union_value(answer.valueType, answer.value)
    return None if value is None else int(value)
