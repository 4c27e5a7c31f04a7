"""A stand-in for the module `pynvml`: its functions, structures and errors, over GPUs made of numbers.

    nvml = FakeNvml([FakeGpu(busy_percent=40)])
    reader = NvmlReader(library=nvml)
    nvml.lose(0)

Constants, structures and error classes are the installed module's own, and every function here has the
parameters of the one it replaces; a test holds the two against each other. Values may be functions of the
time in microseconds, so that loads can be scripted.

Source: NVIDIA nvml.h 13.0 and nvidia-ml-py 13; behaviour as measured on an H200 with driver 580.
"""

from gpuscale.testing.nvml.devices import DeviceCalls
from gpuscale.testing.nvml.gpus import FakeGpu, FakeInstance, FakeProcess
from gpuscale.testing.nvml.parts import PartCalls

__all__ = ["FakeGpu", "FakeInstance", "FakeNvml", "FakeProcess"]


class FakeNvml(DeviceCalls, PartCalls):
    """What `import pynvml` would give, for the GPUs that it is made with.

    Args:
        gpus: in index order.
        now_us: the driver's clock, in microseconds since the epoch.
        driver_version: what the driver calls itself.

    Raises:
        UnavailableError: nvidia-ml-py, whose constants and structures it takes, is not installed.
    """
