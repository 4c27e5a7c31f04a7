"""Errors of NVML calls, reduced to a few reasons that fit a label.

NVML's return codes fall into three kinds: the driver is gone, so that nothing can be read; one GPU is
gone; or one value is unavailable, and its reason is reported beside the other values.

Source: NVIDIA nvml.h 13.0, nvmlReturn_t (codes and meanings).
"""

from gpuscale.base.errors import UnavailableError

NOT_SUPPORTED = "not supported by this GPU or driver"
NO_PERMISSION = "no permission"
NO_DATA = "no data yet"
DRIVER_ERROR = "the driver reported an error"
IMPOSSIBLE = "the driver reported an impossible value"
NEEDS_GPM = "needs GPM (Hopper or newer)"
OTHER_PROFILED = "a profiling call of another GPU has not come back"
NOT_OFFERED = "NVML does not offer it"
SPLIT_GPU = "not measured on a GPU that is split with MIG"
BY_INSTANCE = "measured for each MIG instance"
WHOLE_GPU = "measured for the whole GPU"
GPU_LOST = "the GPU is lost"
RESET_REQUIRED = "the GPU needs a reset"
GPU_GONE = "the GPU is no longer on this node"
NO_ANSWER = "the driver does not answer for this GPU"
READER_FAULT = "a fault in the reader"

REASONS = frozenset(
    {
        NOT_SUPPORTED,
        NO_PERMISSION,
        NO_DATA,
        DRIVER_ERROR,
        IMPOSSIBLE,
        NEEDS_GPM,
        OTHER_PROFILED,
        NOT_OFFERED,
        SPLIT_GPU,
        BY_INSTANCE,
        WHOLE_GPU,
        GPU_LOST,
        RESET_REQUIRED,
        GPU_GONE,
        NO_ANSWER,
        READER_FAULT,
    }
)
"""Every reason that a reading can give for a field without a value."""

LIBRARY_NOT_FOUND = 12
_VERSION_MISMATCH = 18
_DRIVER_GONE = {
    1: "NVML was shut down",
    9: "the NVIDIA driver is not loaded",
    LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; install NVIDIA's driver, or in Kubernetes run the pod with "
        "NVIDIA's container runtime"
    ),
    _VERSION_MISMATCH: (
        "the driver was replaced and no longer fits the NVML library in use; restart the exporter"
    ),
}
_GPU_GONE = {15: GPU_LOST, 16: RESET_REQUIRED, 28: GPU_LOST}
_REASONS = {
    2: NOT_SUPPORTED,  # the driver's answer for field ids newer than itself
    3: NOT_SUPPORTED,
    4: NO_PERMISSION,
    6: NO_DATA,
    13: NOT_SUPPORTED,
    21: NO_DATA,
    25: NOT_SUPPORTED,
    26: NOT_SUPPORTED,
    27: NO_DATA,
}
_LASTING = frozenset({NOT_SUPPORTED, NO_PERMISSION})


class DriverGoneError(UnavailableError):
    """No GPU can be read until NVML is reopened."""


class GpuLostError(UnavailableError):
    """One GPU can't be read any more; `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class CallFailedError(UnavailableError):
    """One call gave no value; `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    @property
    def is_lasting(self) -> bool:
        """Return whether the next call will probably fail the same way."""
        return self.reason in _LASTING


def fault(code: int) -> UnavailableError:
    """Return what a return code other than success means."""
    if code in _DRIVER_GONE:
        return DriverGoneError(_DRIVER_GONE[code])
    if code in _GPU_GONE:
        return GpuLostError(_GPU_GONE[code])
    return CallFailedError(field_reason(code))


def field_reason(code: int) -> str:
    """Return why one value of a batch is missing."""
    return _REASONS.get(code, DRIVER_ERROR)


def is_gpu_loss(code: int) -> bool:
    """Return whether a code says that the GPU itself is gone."""
    return code in _GPU_GONE
