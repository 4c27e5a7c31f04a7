"""Reasons for a missing owner, short enough for a metric's label."""

from typing import Final

STARTING: Final = "starting"
"""The kubelet was not asked yet."""
SOCKET_MISSING: Final = "socket_missing"
SOCKET_UNREACHABLE: Final = "socket_unreachable"
"""The socket is there, but nothing answers on it, or this process may not use it."""
KUBELET_ERROR: Final = "kubelet_error"
"""The kubelet answered with an error, with nonsense, or not in time."""
UNKNOWN_DEVICE_ID: Final = "unknown_device_id"
"""A device was allocated by an id that is no GPU's that is read here."""
DEVICE_ALLOCATED_TWICE: Final = "device_allocated_twice"
"""One id is listed for two pods. The kubelet allocates an id once; one of the pods has ended."""
DRA_UNRESOLVED: Final = "dra_unresolved"
"""A resource claim's device could not be found among the GPUs."""
SHARE_UNRESOLVED: Final = "share_unresolved"
"""A pod has a part of a GPU, and it could not be found out of which."""
SHARE_UNREADABLE: Final = "share_unreadable"
"""A pod's annotation about its part of a GPU is not what its scheduler writes."""
HOST_PID_OFF: Final = "host_pid_off"
"""Processes of other containers can't be seen from here."""
PROCESS_UNREADABLE: Final = "process_unreadable"
"""The process is there, but its cgroup can't be read."""
PROCESS_NOT_IN_POD: Final = "process_not_in_pod"
NO_GPU_REQUEST: Final = "no_gpu_request"
"""A pod's process is on a GPU that no container asked for, and only the API server could name the pod."""
SEVERAL_PODS_ONE_GPU: Final = "several_pods_one_gpu"
"""Only the API server knows which of the pods on the GPU the process belongs to."""
CONTAINER_UNKNOWN: Final = "container_unknown"
"""The API server does not know the process' pod, or not yet."""
API_UNREACHABLE: Final = "api_unreachable"
API_FORBIDDEN: Final = "api_forbidden"
"""The service account may not read what is asked for."""

REASONS: Final = frozenset(
    {
        STARTING,
        SOCKET_MISSING,
        SOCKET_UNREACHABLE,
        KUBELET_ERROR,
        UNKNOWN_DEVICE_ID,
        DEVICE_ALLOCATED_TWICE,
        DRA_UNRESOLVED,
        SHARE_UNRESOLVED,
        SHARE_UNREADABLE,
        HOST_PID_OFF,
        PROCESS_UNREADABLE,
        PROCESS_NOT_IN_POD,
        NO_GPU_REQUEST,
        SEVERAL_PODS_ONE_GPU,
        CONTAINER_UNKNOWN,
        API_UNREACHABLE,
        API_FORBIDDEN,
    }
)
