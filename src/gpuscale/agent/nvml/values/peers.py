"""Whether the GPUs of a node reach each other by NVLink.

Source: NVIDIA nvml.h 13.0 (`nvmlGpuP2PStatus_t`); NVIDIA dcgm-exporter 4.8.2, internal/pkg/collector
    (p2p_status_collector.go: names and labels).
"""

from gpuscale.agent.gpu.readings import EventCount
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import CallFailedError
from gpuscale.agent.nvml.library import Handle
from gpuscale.agent.nvml.values.sources import PeriodicTurn, Retry

P2P_FIELD = "DCGM_EXP_P2P_STATUS"
_STATES = (
    "OK",
    "ChipsetNotSupported",
    "GPUNotSupported",
    "TopologyNotSupported",
    "DisabledByRegKey",
    "NotSupported",
    "Unknown",
)


class Peers:
    """Reads the NVLink state between a GPU and each other one.

    Args:
        caller: of the GPU.
        gpu: its handle.
        index: its number.
        period_ms: from one asking to the next.
        retry_ms: when to ask again where it is not supported.
    """

    def __init__(
        self, caller: Caller, gpu: Handle, index: int, period_ms: int, retry_ms: int
    ) -> None:
        self._caller = caller
        self._gpu = gpu
        self._index = index
        self._turns = PeriodicTurn(period_ms)
        self._retry = Retry(retry_ms)
        self._events: tuple[EventCount, ...] = ()

    def events(self, now_ms: int) -> tuple[EventCount, ...]:
        """Return a sample for each other GPU; none if the driver doesn't report it.

        Raises:
            GpuLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        if self._retry.reason(now_ms) is not None:
            return ()
        if self._turns.is_due(now_ms):
            try:
                self._events = self._asked()
            except CallFailedError as failure:
                self._retry.note(failure, now_ms)
                self._events = ()
            self._turns.take(now_ms)
        return self._events

    def _asked(self) -> tuple[EventCount, ...]:
        count = int(self._caller.call("p2p", "nvmlDeviceGetCount"))
        kind = self._caller.constant("NVML_P2P_CAPS_INDEX_NVLINK")
        found = []
        for peer in range(count):
            if peer == self._index:
                continue
            other = self._caller.call("p2p", "nvmlDeviceGetHandleByIndex", peer)
            answer = self._caller.call("p2p", "nvmlDeviceGetP2PStatus", self._gpu, other, kind)
            state = int(answer)
            name = _STATES[state] if 0 <= state < len(_STATES) else _STATES[-1]
            found.append(
                EventCount(P2P_FIELD, (("link_status", name), ("peer_gpu", str(peer))), state)
            )
        return tuple(found)
