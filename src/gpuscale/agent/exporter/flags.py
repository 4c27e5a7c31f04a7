"""Every flag of the node agent: dcgm-exporter's, with their environment variables and defaults, and ours.

One table serves the command line, the environment, the messages about wrong values and the docs.

Source: NVIDIA dcgm-exporter 4.8.2 and later, pkg/cmd/app.go.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gpuscale.base.flags import Flag

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
"""Between collects."""


def _bool(name: str, env: str, help_: str, alias: str = "", no_effect: str = "") -> Flag:
    return Flag(name, help_, "bool", "false", alias=alias, no_effect=no_effect, env=env)


def _choice(name: str, env: str, help_: str, default: str, *choices: str) -> Flag:
    return Flag(name, help_, "choice", default, env=env, choices=choices)


_NO_DCGM = "there is no DCGM behind this exporter"
_NO_DUMPS = "there are no DCGM objects to dump; --record keeps every reading"
_NO_SWITCHES = "NVSwitches and CPUs are not read, only GPUs"

_WHAT = (
    Flag(
        "collectors",
        "Counters file (CSV). Where dcgm-exporter's image has one at that path, a missing file is that list.",
        default="/etc/dcgm-exporter/default-counters.csv",
        alias="f",
        env="DCGM_EXPORTER_COLLECTORS",
    ),
    _choice(
        "counters-mode",
        "GPUSCALE_EXPORTER_COUNTERS_MODE",
        "Whether a counters file replaces the built-in list or adds to it.",
        "replace",
        "replace",
        "add",
    ),
    Flag(
        "configmap-data",
        "NAMESPACE:NAME of a ConfigMap whose key metrics holds counters; asks the API server, every 30 s.",
        default="none",
        alias="m",
        env="DCGM_EXPORTER_CONFIGMAP_DATA",
    ),
    Flag(
        "gpu",
        "Where readings come from: nvml, amd, simulated[:MODEL[:COUNT]] or replay:FILE.",
        default="nvml",
        env="GPUSCALE_EXPORTER_GPU",
    ),
    Flag(
        "devices",
        "f: each GPU and its MIG instances; g[:0,1,3-5]: GPUs; i[:0,2]: instances; g…+i….",
        default="f",
        alias="d",
        env="DCGM_EXPORTER_DEVICES_STR",
    ),
    Flag(
        "switch-devices",
        "NVSwitches to read.",
        default="f",
        alias="s",
        no_effect=_NO_SWITCHES,
        env="DCGM_EXPORTER_OTHER_DEVICES_STR",
    ),
    Flag(
        "cpu-devices",
        "CPUs to read.",
        default="f",
        alias="p",
        no_effect=_NO_SWITCHES,
        env="DCGM_EXPORTER_CPU_DEVICES_STR",
    ),
    Flag(
        "collect-interval",
        "Time between collects: milliseconds, or a duration such as 1s.",
        "duration",
        "30000",
        alias="c",
        env="DCGM_EXPORTER_INTERVAL",
    ),
    Flag(
        "stream-interval",
        "Time between collects while the stream has subscribers; from 100 (ms) on.",
        "duration",
        env="GPUSCALE_EXPORTER_STREAM_INTERVAL",
    ),
    Flag(
        "profiling-interval",
        "Time between readings of NVIDIA's profiling counters; 0: at every collect. Without it the graphics "
        "engine's activity, the costly one, is read once in as many seconds as the node has GPUs, and the "
        "others at every collect.",
        "duration",
        env="GPUSCALE_EXPORTER_PROFILING_INTERVAL",
    ),
    Flag(
        "record",
        "Write every reading to this file, for --gpu replay:FILE.",
        env="GPUSCALE_EXPORTER_RECORD",
    ),
    _bool(
        "fake-gpus", "DCGM_EXPORTER_USE_FAKE_GPUS", "Simulated GPUs, the same as --gpu simulated."
    ),
    Flag(
        "remote-hostengine-info",
        "HOST[:PORT] or unix:///PATH of a DCGM host engine, for profiling counters that NVML does not have.",
        alias="r",
        env="DCGM_REMOTE_HOSTENGINE_INFO",
    ),
    Flag(
        "config-file",
        "YAML configuration of dcgm-exporter 4.8.3 and later, read at the start: metrics and interval.",
        env="DCGM_EXPORTER_CONFIG_FILE",
    ),
)

_HOW = (
    _choice(
        "names",
        "GPUSCALE_EXPORTER_NAMES",
        "Names and units of dcgm-exporter up to 4.8, of 4.9, or both side by side.",
        "4.8",
        "4.8",
        "4.9",
        "both",
    ),
    Flag(
        "style",
        "Series of dcgm-exporter (dcgm), of Alibaba's ACK (ack), or both (dcgm,ack).",
        "choice",
        "dcgm",
        choices=("dcgm", "ack", "both"),
        several=True,
        env="GPUSCALE_EXPORTER_STYLE",
    ),
    Flag(
        "hostname-label",
        "Spelling of that label: Hostname, hostname or both; that of --names unless given.",
        "choice",
        choices=("Hostname", "hostname", "both"),
        env="GPUSCALE_EXPORTER_HOSTNAME_LABEL",
    ),
    _bool("no-hostname", "DCGM_EXPORTER_NO_HOSTNAME", "Leave the host's name out.", "n"),
    _bool(
        "use-old-namespace",
        "DCGM_EXPORTER_USE_OLD_NAMESPACE",
        "Say uuid, pod_name, pod_namespace and container_name.",
        "o",
    ),
    _bool(
        "replace-blanks-in-model-name",
        "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
        "Write blanks in modelName as one dash.",
        "rbmn",
    ),
    Flag(
        "xid-count-window-size",
        "Window of DCGM_EXP_XID_ERRORS_COUNT.",
        "duration",
        "300000",
        alias="x",
        env="DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE",
    ),
    Flag(
        "clock-events-count-window-size",
        "Window of DCGM_EXP_CLOCK_EVENTS_COUNT.",
        "duration",
        "300000",
        env="DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
    ),
    Flag("node-pool", "Value of ACK's label NodePoolId.", env="GPUSCALE_EXPORTER_NODE_POOL"),
    Flag(
        "azure-cluster-id",
        "Resource id of the cluster in Azure, for /metrics/azure.",
        env="GPUSCALE_EXPORTER_AZURE_CLUSTER_ID",
    ),
    Flag(
        "azure-cluster-name",
        "Name of the cluster in Azure, for /metrics/azure.",
        env="GPUSCALE_EXPORTER_AZURE_CLUSTER_NAME",
    ),
)

_PODS = (
    _bool("kubernetes", "DCGM_EXPORTER_KUBERNETES", "Tie GPUs to pods.", "k"),
    Flag(
        "kubernetes-gpu-id-type",
        "How device plugins name GPUs.",
        "choice",
        "uid",
        choices=("uid", "device-name"),
        no_effect="every form of device id is understood",
        env="DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",
    ),
    _bool(
        "kubernetes-enable-pod-labels",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS",
        "Add the labels of pods; asks the API server.",
    ),
    _bool(
        "kubernetes-enable-pod-uid",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID",
        "Add the label pod_uid; asks the API server.",
    ),
    Flag(
        "kubernetes-pod-label-allowlist-regex",
        "Only pod labels that one of these matches, with commas between.",
        "list",
        env="DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
    ),
    _bool(
        "kubernetes-virtual-gpus",
        "KUBERNETES_VIRTUAL_GPUS",
        "Repeat the series of a shared GPU for each of its pods, with labels vgpu and pod_uid; "
        "GPU_UTIL and FB_USED with what the pod uses.",
    ),
    _bool(
        "kubernetes-enable-dra",
        "KUBERNETES_ENABLE_DRA",
        "Add the labels dra_claim_name, dra_driver_name and so on to GPUs from resource claims.",
    ),
    Flag(
        "kubeconfig",
        "Kubeconfig to ask the API server with; the pod's service account if empty.",
        env="GPUSCALE_EXPORTER_KUBECONFIG",
    ),
    Flag(
        "nvidia-resource-names",
        "More resources that are GPUs, with commas between.",
        "list",
        env="NVIDIA_RESOURCE_NAMES",
    ),
    Flag(
        "pod-resources-kubelet-socket",
        "Socket of the kubelet's pod-resources API.",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        env="DCGM_POD_RESOURCES_KUBELET_SOCKET",
    ),
    Flag(
        "proc-root",
        "Where the host's processes are seen.",
        default="/proc",
        env="GPUSCALE_EXPORTER_PROC_ROOT",
    ),
    Flag(
        "container-labels",
        "Labels of containers from a Docker-compatible API.",
        no_effect="container runtimes are not asked; pod labels come from the API server",
        env="DCGM_EXPORTER_CONTAINER_LABELS",
    ),
    Flag(
        "container-runtime-socket",
        "Socket of that API.",
        no_effect="container runtimes are not asked",
        env="DCGM_CONTAINER_RUNTIME_SOCKET",
    ),
    Flag(
        "hpc-job-mapping-dir",
        "Folder with one file of job ids per GPU, for the label hpc_job.",
        env="DCGM_HPC_JOB_MAPPING_DIR",
    ),
)

_SERVER = (
    Flag(
        "address",
        "[HOST]:PORT to listen on.",
        default=":9400",
        alias="a",
        env="DCGM_EXPORTER_LISTEN",
    ),
    Flag(
        "web-config-file",
        "TLS and basic authentication, in the form of Prometheus' exporters.",
        env="DCGM_EXPORTER_WEB_CONFIG_FILE",
    ),
    Flag(
        "web-users-folder",
        "Folder with a file for each user of basic authentication: its name is the user's, its content a "
        "bcrypt hash; read again when it changes.",
        env="GPUSCALE_EXPORTER_WEB_USERS_FOLDER",
    ),
    _bool(
        "web-open-probes",
        "GPUSCALE_EXPORTER_WEB_OPEN_PROBES",
        "Answer /health and /readyz without a password, for probes.",
    ),
    _bool(
        "web-systemd-socket",
        "DCGM_EXPORTER_SYSTEMD_SOCKET",
        "Listen on the sockets that systemd hands over.",
    ),
    Flag(
        "web-read-timeout",
        "Longest time to read a request.",
        "duration",
        "10s",
        no_effect="answers are ready before they are asked for",
        env="DCGM_EXPORTER_WEB_READ_TIMEOUT",
    ),
    Flag(
        "web-write-timeout",
        "Longest time to write an answer.",
        "duration",
        "10s",
        no_effect="answers are ready before they are asked for",
        env="DCGM_EXPORTER_WEB_WRITE_TIMEOUT",
    ),
    _bool(
        "enable-exporter-metrics",
        "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS",
        "Metrics about the exporter.",
        no_effect="they are always served, as gpuscale_exporter_*",
    ),
    _bool(
        "enable-pprof",
        "DCGM_EXPORTER_ENABLE_PPROF",
        "Go's profiler.",
        no_effect="this is no Go program",
    ),
    _bool("debug", "DCGM_EXPORTER_DEBUG", "Log more."),
    _choice("log-format", "DCGM_EXPORTER_LOG_FORMAT", "Form of the log.", "text", "text", "json"),
    _bool(
        "enable-dcgm-log", "DCGM_EXPORTER_ENABLE_DCGM_LOG", "DCGM's own log.", no_effect=_NO_DCGM
    ),
    Flag(
        "dcgm-log-level",
        "Level of that log.",
        "choice",
        "NONE",
        choices=("NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"),
        no_effect=_NO_DCGM,
        env="DCGM_EXPORTER_DCGM_LOG_LEVEL",
    ),
    _bool(
        "disable-startup-validate",
        "DISABLE_STARTUP_VALIDATE",
        "Start without checking DCGM.",
        no_effect=_NO_DCGM,
    ),
    _bool(
        "enable-gpu-bind-unbind-watch",
        "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
        "Follow GPUs that come and go.",
        no_effect="GPUs that come and go are always followed",
    ),
    Flag(
        "gpu-bind-unbind-poll-interval",
        "How often to look for them.",
        "duration",
        "1s",
        no_effect="GPUs that come and go are always followed",
        env="DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
    ),
    _bool("dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", "Debug dumps.", no_effect=_NO_DUMPS),
    Flag(
        "dump-directory",
        "Folder of the dumps.",
        default="/tmp/dcgm-exporter-debug",  # noqa: S108 - upstream's default, never written to
        no_effect=_NO_DUMPS,
        env="DCGM_EXPORTER_DUMP_DIRECTORY",
    ),
    Flag(
        "dump-retention",
        "Hours to keep dumps.",
        default="24",
        no_effect=_NO_DUMPS,
        env="DCGM_EXPORTER_DUMP_RETENTION",
    ),
    Flag(
        "dump-compression",
        "Pack the dumps.",
        "bool",
        "true",
        no_effect=_NO_DUMPS,
        env="DCGM_EXPORTER_DUMP_COMPRESSION",
    ),
)

GROUPS: Mapping[str, tuple[Flag, ...]] = MappingProxyType(
    {
        "What to read": _WHAT,
        "How to report it": _HOW,
        "Whose it is": _PODS,
        "Server": _SERVER,
    }
)
"""Every flag, as help and docs group them."""

COMMON = frozenset(
    {
        "collectors",
        "gpu",
        "devices",
        "remote-hostengine-info",
        "collect-interval",
        "stream-interval",
        "record",
        "names",
        "hostname-label",
        "node-pool",
        "kubernetes",
        "kubernetes-enable-pod-labels",
        "pod-resources-kubelet-socket",
        "address",
        "web-config-file",
        "debug",
        "log-format",
    }
)
"""Flags that most users need; `--help` shows these."""

FLAGS: Mapping[str, Flag] = MappingProxyType(
    {flag.name: flag for flags in GROUPS.values() for flag in flags}
)
"""Every flag by name."""
