"""The sections of the node agent's settings, and dcgm-exporter's flags that change nothing here.

Names, variables and defaults of all flags without `is_ours` are dcgm-exporter's.

Source: NVIDIA dcgm-exporter 4.8.2 and later, pkg/cmd/app.go.
"""

import re

from gpuscale.base.flags import FILE_FLAG, FlagReader
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.settings import Panel, Reading, converted

READINGS = Panel("Readings")
SERIES = Panel("Series")
KUBERNETES = Panel("Kubernetes")
SERVING = Panel("Serving")
LOGGING = Panel("Logging")

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
"""Between collects."""
MAX_WINDOW_MS = 24 * MAX_INTERVAL_MS
HOSTNAME = "HOSTNAME"
"""Variable with the name of the machine."""


def milliseconds(at_least: int, at_most: int) -> Reading[int]:
    """Return a reading of a duration within bounds; a bare number is milliseconds, as upstream."""

    def parsed(text: str) -> int:
        stripped = text.strip()
        if re.fullmatch(r"[0-9]{1,12}", stripped):
            found = int(stripped)
        else:
            try:
                found = parse_duration_ms(stripped)
            except ValueError:
                raise ValueError(
                    f"found {text!r}, expected milliseconds or a duration such as 1s or 500ms"
                ) from None
        if not at_least <= found <= at_most:
            raise ValueError(f"found {text!r}, expected {at_least} to {at_most} milliseconds")
        return found

    return converted(parsed, at_least, "duration")


INTERVAL_MS = milliseconds(MIN_INTERVAL_MS, MAX_INTERVAL_MS)
WINDOW_MS = milliseconds(1, MAX_WINDOW_MS)


def node_name(flags: FlagReader) -> str:
    """Return the name of this node: the machine's, or with pods that of NODE_NAME."""
    name = flags.variable("NODE_NAME") if flags.boolean("kubernetes") else ""
    return name or flags.variable(HOSTNAME)


SETTINGS_FILE = READINGS.flag(
    FILE_FLAG,
    "YAML file with settings, by the keys of these tables; flags and variables win over it.",
    env="GPUSCALE_EXPORTER_SETTINGS",
    is_ours=True,
)
CONFIG_FILE = READINGS.flag(
    "config-file",
    "YAML configuration of dcgm-exporter 4.8.3 and later, read at the start: metrics and interval.",
    env="DCGM_EXPORTER_CONFIG_FILE",
)

_NO_SWITCHES = "NVSwitches and CPUs are not read, only GPUs"
_NO_TIMEOUTS = "answers are ready before they are asked for"
_NO_DCGM = "there is no DCGM behind this exporter"
_NO_WATCH = "GPUs that come and go are always followed"
_NO_DUMPS = "there are no DCGM objects to dump; --record keeps every reading"

WITHOUT_EFFECT = (
    READINGS.flag(
        "switch-devices",
        "NVSwitches to read.",
        default="f",
        alias="s",
        env="DCGM_EXPORTER_OTHER_DEVICES_STR",
        no_effect=_NO_SWITCHES,
    ),
    READINGS.flag(
        "cpu-devices",
        "CPUs to read.",
        default="f",
        alias="p",
        env="DCGM_EXPORTER_CPU_DEVICES_STR",
        no_effect=_NO_SWITCHES,
    ),
    KUBERNETES.flag(
        "kubernetes-gpu-id-type",
        "How device plugins name GPUs.",
        "choice",
        "uid",
        choices=("uid", "device-name"),
        env="DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",
        no_effect="every form of device id is understood",
    ),
    KUBERNETES.flag(
        "container-labels",
        "Labels of containers from a Docker-compatible API.",
        env="DCGM_EXPORTER_CONTAINER_LABELS",
        no_effect="container runtimes are not asked; pod labels come from the API server",
    ),
    KUBERNETES.flag(
        "container-runtime-socket",
        "Socket of that API.",
        env="DCGM_CONTAINER_RUNTIME_SOCKET",
        no_effect="container runtimes are not asked",
    ),
    SERVING.flag(
        "web-read-timeout",
        "Longest time to read a request.",
        "duration",
        "10s",
        env="DCGM_EXPORTER_WEB_READ_TIMEOUT",
        no_effect=_NO_TIMEOUTS,
    ),
    SERVING.flag(
        "web-write-timeout",
        "Longest time to write an answer.",
        "duration",
        "10s",
        env="DCGM_EXPORTER_WEB_WRITE_TIMEOUT",
        no_effect=_NO_TIMEOUTS,
    ),
    SERVING.flag(
        "enable-exporter-metrics",
        "Metrics about the exporter.",
        "bool",
        "false",
        env="DCGM_EXPORTER_ENABLE_EXPORTER_METRICS",
        no_effect="they are always served, as gpuscale_exporter_*",
    ),
    SERVING.flag(
        "enable-pprof",
        "Go's profiler.",
        "bool",
        "false",
        env="DCGM_EXPORTER_ENABLE_PPROF",
        no_effect="this is no Go program",
    ),
    LOGGING.flag(
        "enable-dcgm-log",
        "DCGM's own log.",
        "bool",
        "false",
        env="DCGM_EXPORTER_ENABLE_DCGM_LOG",
        no_effect=_NO_DCGM,
    ),
    LOGGING.flag(
        "dcgm-log-level",
        "Level of that log.",
        "choice",
        "NONE",
        choices=("NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"),
        env="DCGM_EXPORTER_DCGM_LOG_LEVEL",
        no_effect=_NO_DCGM,
    ),
    READINGS.flag(
        "disable-startup-validate",
        "Start without checking DCGM.",
        "bool",
        "false",
        env="DISABLE_STARTUP_VALIDATE",
        no_effect=_NO_DCGM,
    ),
    READINGS.flag(
        "enable-gpu-bind-unbind-watch",
        "Follow GPUs that come and go.",
        "bool",
        "false",
        env="DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
        no_effect=_NO_WATCH,
    ),
    READINGS.flag(
        "gpu-bind-unbind-poll-interval",
        "How often to look for them.",
        "duration",
        "1s",
        env="DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
        no_effect=_NO_WATCH,
    ),
    LOGGING.flag(
        "dump-enabled",
        "Debug dumps.",
        "bool",
        "false",
        env="DCGM_EXPORTER_DUMP_ENABLED",
        no_effect=_NO_DUMPS,
    ),
    LOGGING.flag(
        "dump-directory",
        "Folder of the dumps.",
        default="/tmp/dcgm-exporter-debug",  # noqa: S108 - upstream's default, never written to
        env="DCGM_EXPORTER_DUMP_DIRECTORY",
        no_effect=_NO_DUMPS,
    ),
    LOGGING.flag(
        "dump-retention",
        "Hours to keep dumps.",
        default="24",
        env="DCGM_EXPORTER_DUMP_RETENTION",
        no_effect=_NO_DUMPS,
    ),
    LOGGING.flag(
        "dump-compression",
        "Pack the dumps.",
        "bool",
        "true",
        env="DCGM_EXPORTER_DUMP_COMPRESSION",
        no_effect=_NO_DUMPS,
    ),
)
