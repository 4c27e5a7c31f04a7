"""Alerts about GPUs and the node agents that read them."""

from gpuscale.install.alerts.alert import Alert, AlertSettings
from gpuscale.install.series_names import GPU_RESOURCES

_MINUTE_MS = 60_000
_BUSY_BELOW = "1"
"""Percent; readings are whole numbers."""
_STALE_S = 120
"""The metrics API's own limit: older values are absent for an autoscaler."""
_GPU = "Hostname, gpu, UUID"
_BROKEN_XIDS = "48|62|64|74|79|92|95|109|119|120|136|140|143|155|157|158|161|167|171|172"
"""XIDs that the GPU, its memory or its links raise, and that a program can't. Source: NVIDIA's XID list."""
_LASTING_REASONS = (
    "unknown_device_id|device_allocated_twice|dra_unresolved|api_unreachable|api_forbidden"
)
"""Reasons of `gpuscale_exporter_unattributed` that are faults and not simply processes outside every pod."""
_UNCORRECTABLE = ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_SHARE = "gpuscale_container_gpu_utilization_percent"


def gpu_alerts(settings: AlertSettings) -> tuple[Alert, ...]:
    """Return the alerts about GPUs, most severe first within each concern."""
    return (
        *_reading_alerts(settings),
        *_owner_alerts(settings),
        *_fault_alerts(),
    )


def _reading_alerts(settings: AlertSettings) -> tuple[Alert, ...]:
    job = f'job="{settings.names.agent_job}"'
    newest = "gpuscale_exporter_newest_reading_timestamp_seconds"
    return (
        Alert(
            "GpuNodeAgentDown",
            "critical",
            ("node agent",),
            f"up{{{job}}} == 0",
            5 * _MINUTE_MS,
            "Node agent {{ $labels.instance }} can't be scraped",
            "The GPUs of its node have no values. HPAs take their pods for on target or for idle, and may "
            "not scale as they should.",
            "See whether the pod runs (kubectl get pods -l app.kubernetes.io/component=node-agent -o "
            "wide), its log, and whether a NetworkPolicy keeps Prometheus from port 9400.",
        ),
        Alert(
            "GpuNodeAgentsAbsent",
            "critical",
            ("node agent",),
            f"absent(up{{{job}}}) and on () (sum(kube_node_status_allocatable{{{GPU_RESOURCES}}}) > 0 "
            "or absent(kube_node_status_allocatable))",
            10 * _MINUTE_MS,
            "Prometheus has no target in the job {{ $labels.job }}",
            "There are GPU nodes, and no GPU has a value. Without kube-state-metrics it is not known whether "
            "there are any: then the alert also fires while a pool of GPU nodes is at zero.",
            "Look for the DaemonSet's pods, and at Prometheus' page /targets: the ServiceMonitor must be "
            "selected by Prometheus (label release), or the scrape job be in its configuration.",
        ),
        Alert(
            "GpuReadingsStale",
            "critical",
            ("node agent",),
            f"time() - {newest}{{{job}}} > {_STALE_S}",
            2 * _MINUTE_MS,
            "Newest GPU reading of {{ $labels.instance }} is {{ $value | humanizeDuration }} old",
            "The agent answers, but what it serves is old: the driver hangs, or reading fails.",
            "Run nvidia-smi on the node. If it hangs, drain and reboot the node; the agent's log names the"
            " call.",
        ),
        Alert(
            "GpuReadingsFailing",
            "critical",
            ("node agent",),
            f"gpuscale_exporter_collect_up{{{job}}} == 0",
            5 * _MINUTE_MS,
            "Node agent {{ $labels.instance }} can read no GPU",
            "The driver is not there, or refuses. No GPU of the node has values.",
            "See the agent's log for the reason. Often the driver's installation has not ended, or the "
            "agent's pod runs without NVIDIA's runtime (agent.runtimeClass, agent.deviceAccess).",
        ),
        Alert(
            "GpuUnreadable",
            "critical",
            ("node agent",),
            "gpuscale_exporter_gpu_up == 0",
            5 * _MINUTE_MS,
            "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of {{ $labels.instance }} can't be read",
            "One GPU is lost while others of the node answer. Pods on it fail or hang.",
            "Look for XIDs in the node's kernel log (dmesg | grep -i xid). Drain the node and reset or "
            "replace the GPU.",
        ),
    )


def _owner_alerts(settings: AlertSettings) -> tuple[Alert, ...]:
    names = settings.names
    job = f'job="{names.agent_job}"'
    owned = f'{names.pod}!=""'
    recent = names.as_pods(
        " or ".join(
            (
                f"max_over_time({_UTILIZATION}{{{owned}}}[5m])",
                f'100 * max_over_time({_ENGINE}{{{owned},GPU_I_ID!=""}}[5m])',
                f"max_over_time({_SHARE}{{{owned}}}[5m])",
            )
        )
    )
    known = names.as_pods(
        f"{_UTILIZATION}{{{owned}}} or {_ENGINE}{{{owned}}} or {_SHARE}{{{owned}}}"
    )
    requesting = (
        f"max by (namespace, pod) (kube_pod_container_resource_requests{{{GPU_RESOURCES}}} > 0)"
    )
    return (
        Alert(
            "GpuAttributionLost",
            "critical",
            ("node agent",),
            f"gpuscale_exporter_attribution_up{{{job}}} == 0",
            5 * _MINUTE_MS,
            "Node agent {{ $labels.instance }} does not know which pods its GPUs belong to",
            "GPUs have values, but without pods: no HPA gets one.",
            "The agent's log and gpuscale_exporter_unattributed tell why. Usually it can't reach the "
            "kubelet's socket: check agent.podResourcesPath and that the pod runs as root's user id.",
        ),
        Alert(
            "GpuUnattributed",
            "warning",
            ("node agent",),
            f'gpuscale_exporter_unattributed{{{job},reason=~"{_LASTING_REASONS}"}} > 0',
            15 * _MINUTE_MS,
            "{{ $value }} devices or processes of {{ $labels.instance }} have no pod: {{ $labels.reason }}",
            "Some GPUs have values without a pod, so that scaling sees less than there is.",
            "docs/node-agent.md lists what each reason means. unknown_device_id: the device plugin names "
            "GPUs in a way that is not known; api_forbidden: the agent lacks a right.",
        ),
        Alert(
            "GpuPodWithoutReading",
            "warning",
            ("node agent", "kube-state-metrics"),
            f'({requesting} and on (namespace, pod) (kube_pod_status_phase{{phase="Running"}} == 1)) '
            f"unless on (namespace, pod) {known} and on () (gpuscale_exporter_attribution_up == 1)",
            10 * _MINUTE_MS,
            "Pod {{ $labels.namespace }}/{{ $labels.pod }} runs with a GPU, and no reading names it",
            "The metric that an HPA would scale it by is absent. The node has no agent, labels are lost on"
            " the way (exported_pod), or its GPU is shared and only part of the pods can be told apart.",
            "gpuscale metrics-api why pods/NAMESPACE/POD DCGM_FI_DEV_GPU_UTIL names the hop at which it is"
            " lost.",
        ),
        Alert(
            "GpuIdleWhileRequested",
            "warning",
            ("node agent",),
            f"{recent} < {_BUSY_BELOW}",
            settings.idle_ms,
            "Pod {{ $labels.namespace }}/{{ $labels.pod }} has a GPU and does not use it",
            "The GPU is paid for, and other pods can't have it.",
            "Scale the workload in (minReplicas), let several pods share a GPU (time-slicing, MIG), or end"
            " what was forgotten. Look whether the pod waits for something, such as a model to load.",
        ),
    )


def _fault_alerts() -> tuple[Alert, ...]:
    xid = "DCGM_FI_DEV_XID_ERRORS"
    return (
        Alert(
            "GpuXidBroken",
            "critical",
            ("node agent",),
            _new_xid(f'{xid}{{err_code=~"{_BROKEN_XIDS}"}}'),
            0,
            "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}: XID {{ $labels.err_code }}, {{ "
            "$labels.err_msg }}",
            "The GPU, its memory or a link failed, in the last hour. What runs on it is broken or soon "
            "will be.",
            "Cordon and drain the node, then reset the GPU (nvidia-smi --gpu-reset) or reboot. If it comes"
            " back, have the GPU replaced.",
        ),
        Alert(
            "GpuXid",
            "warning",
            ("node agent",),
            _new_xid(f'{xid}{{err_code!~"{_BROKEN_XIDS}"}}'),
            0,
            "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}: XID {{ $labels.err_code }}, {{ "
            "$labels.err_msg }}",
            "The driver reported a fault in the last hour, most often of a program: 13, 31, 43 and 45 are "
            "bad memory accesses and their aftermath.",
            "Read the log of the pod on that GPU. If different programs get it on one GPU only, treat it "
            "as broken hardware.",
        ),
        Alert(
            "GpuEccUncorrectable",
            "critical",
            ("node agent",),
            " or ".join(map(_grown, _UNCORRECTABLE)),
            0,
            "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} had {{ $value }} uncorrectable memory errors "
            "in an hour",
            "Memory was lost or wrong: programs that used it were ended by the driver, or should be.",
            "Drain the node and reset the GPU, which puts remapped rows into effect. Have it replaced if "
            "it goes on.",
        ),
        Alert(
            "GpuRowRemapFailed",
            "critical",
            ("node agent",),
            f"max by ({_GPU}) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0",
            0,
            "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has no spare memory rows left",
            "A bad row could not be replaced by a spare one. Errors will come again.",
            "Drain the node and have the GPU replaced: NVIDIA takes this for a reason.",
        ),
    )


def _new_xid(selector: str) -> str:
    """Return an expression for XIDs that were not the latest one an hour ago.

    The gauge keeps the latest XID until the driver or the agent starts again, and has it among its labels.
    """
    labels = f"{_GPU}, err_code, err_msg"
    return f"max by ({labels}) ({selector} > 0) unless max by ({labels}) ({selector} offset 1h > 0)"


def _grown(counter: str) -> str:
    """Return an expression for what a GPU's counter grew by within the hour, whichever pod had it then."""
    summed = f"max by ({_GPU}) ({counter})"
    return f"({summed} - min_over_time({summed}[1h:1m])) > 0"
