"""A GPU's state in its NVLink fabric.

Source: NVIDIA nvml.h 13.0, nvmlGpuFabricInfo_v3_t and _v2_t; DCGM 4, dcgm_structs.h
    (`dcgmFabricManagerStatus_t`, the values of FABRIC_MANAGER_STATUS).
"""

from collections.abc import Callable

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import NOT_SUPPORTED, CallFailedError
from gpuscale.agent.nvml.library import Answer, Handle, fabric_info
from gpuscale.agent.nvml.values.sources import Findings, Retry, Value

_STATE = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"
_COMPLETED, _FAILED = 3, 4
"""`NVML_GPU_FABRIC_STATE_COMPLETED`, which DCGM tells apart by how it ended."""


def _state(info: Answer) -> int:
    is_failed = info.state == _COMPLETED and info.status != 0
    return _FAILED if is_failed else int(info.state)


def _uuid(number: bytes) -> str:
    digits = number.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


FABRIC: dict[str, Callable[[Answer], Value]] = {
    _STATE: _state,
    "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE": lambda info: int(info.status),
    "DCGM_FI_DEV_FABRIC_CLUSTER_UUID": lambda info: _uuid(bytes(info.clusterUuid)),
    "DCGM_FI_DEV_FABRIC_CLIQUE_ID": lambda info: int(info.cliqueId),
    "DCGM_FI_DEV_FABRIC_HEALTH_MASK": lambda info: int(info.healthMask),
    "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY": lambda info: int(info.healthSummary),
}
"""What the call's result says of each field."""
_SINCE_VERSION_3 = "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"


class Fabric:
    """Reads the fabric's state.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        fields: which of it.
        retry_ms: when to ask again where there is no fabric.
    """

    def __init__(
        self, caller: Caller, handle: Handle, fields: frozenset[str], retry_ms: int
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._retry = Retry(retry_ms)
        self.fields = fields & FABRIC.keys()

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field; without a fabric only the state, which says so."""
        found = Findings()
        reason = self._retry.reason(now_ms)
        if reason is not None:
            found.miss(self.fields, reason)
            return found
        try:
            info = self._info()
        except CallFailedError as failure:
            found.miss(self.fields, self._retry.note(failure, now_ms))
            return found
        for field in self.fields:
            is_there = field == _STATE or info.state != 0
            if is_there and (field != _SINCE_VERSION_3 or hasattr(info, "healthSummary")):
                found.values[field] = FABRIC[field](info)
            else:
                found.absent[field] = NOT_SUPPORTED
        return found

    def close(self) -> None:
        """Do nothing: the state holds no resources."""

    def _info(self) -> Answer:
        """Return the fabric information in the newest form of the driver."""
        try:
            return self._asked("c_nvmlGpuFabricInfo_v3_t")
        except CallFailedError:
            return self._asked("c_nvmlGpuFabricInfo_v2_t")

    def _asked(self, structure: str) -> Answer:
        caller = self._caller
        caller.constant(
            "nvmlDeviceGetGpuFabricInfoV"
        )  # missing in the oldest releases of the binding
        kind = caller.constant(structure)
        return caller.timed("fabric", fabric_info, caller.library, self._handle, kind)
