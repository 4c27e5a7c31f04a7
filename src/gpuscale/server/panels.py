"""The sections of a server's settings, and prometheus-adapter's flags that change nothing here.

Source: prometheus-adapter v0.12.0 cmd/adapter (adapter.go); custom-metrics-apiserver v1.30.0 pkg/cmd;
k8s.io/apiserver v0.30.0 pkg/server/options.
"""

from gpuscale.base.flags import FILE_FLAG, Flag
from gpuscale.base.settings import Panel

METRICS = Panel("Metrics")
PROMETHEUS = Panel("Prometheus")
STREAMS = Panel("Streams", is_ours=True)
CLUSTER = Panel("Cluster")
FEDERATION = Panel("Federation", is_ours=True)
SERVING = Panel("Serving")
AUTHENTICATION = Panel("Authentication")
AUTHORIZATION = Panel("Authorization")
LOGGING = Panel("Logging")
AUDIT = Panel("Audit")
_ACCEPTED = Panel("Accepted, without effect")

SETTINGS_FILE = METRICS.flag(
    FILE_FLAG,
    "YAML file with settings, by the keys of these tables; flags win over it.",
    is_ours=True,
)

_NO_THROTTLE = "objects come from watches, so that requests cost the API server nothing"
_ONE_PROTOCOL = "only HTTP/1.1 is served"
_PLAIN_LOG = "each message is written at once, and all modules log at one level"
_NO_AUDIT = (
    "the audit log has one form here, see --audit-log-path; the API server in front writes one too"
)
_NO_PROFILE = "there are no Go profiles to serve"


def _switch(name: str, help_: str, default: str = "false", no_effect: str = "") -> Flag:
    return _ACCEPTED.flag(name, help_, "bool", default, no_effect=no_effect)


WITHOUT_EFFECT = (
    CLUSTER.flag(
        "client-qps", "Requests per second to the API server.", default="5", no_effect=_NO_THROTTLE
    ),
    CLUSTER.flag(
        "client-burst", "Requests at once to the API server.", default="10", no_effect=_NO_THROTTLE
    ),
    SERVING.flag("disable-http2", "Serve HTTP/1.1 only.", "bool", "false", no_effect=_ONE_PROTOCOL),
    SERVING.flag(
        "http2-max-streams-per-connection",
        "Streams of one HTTP/2 connection.",
        "int",
        "0",
        no_effect=_ONE_PROTOCOL,
    ),
    LOGGING.flag("vmodule", "Level by module.", no_effect=_PLAIN_LOG),
    LOGGING.flag(
        "log-flush-frequency",
        "How often the log is written.",
        "duration",
        "5s",
        no_effect=_PLAIN_LOG,
    ),
    _switch("profiling", "Serve profiles.", "true", _NO_PROFILE),
    _switch("contention-profiling", "Profile locks.", no_effect=_NO_PROFILE),
    _ACCEPTED.flag("debug-socket-path", "Socket that serves profiles.", no_effect=_NO_PROFILE),
    _switch(
        "enable-priority-and-fairness",
        "Queue requests by their kind.",
        no_effect="400 requests are answered at a time, and more are turned away",
    ),
    *(
        _ACCEPTED.flag(f"audit-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
        for name, default in (
            ("policy-file", ""),
            ("log-maxage", "0"),
            ("log-format", "json"),
            ("log-version", "audit.k8s.io/v1"),
            ("log-mode", "blocking"),
            ("webhook-config-file", ""),
            ("webhook-initial-backoff", "10s"),
            ("webhook-mode", "batch"),
            ("webhook-version", "audit.k8s.io/v1"),
        )
    ),
    _switch("audit-log-compress", "Audit log.", no_effect=_NO_AUDIT),
    *(
        _ACCEPTED.flag(
            f"audit-{kind}-batch-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT
        )
        for kind, sizes in (("log", ("1", "0s", "0", "0")), ("webhook", ("400", "30s", "10", "15")))
        for name, default in zip(
            ("buffer-size", "max-size", "max-wait", "throttle-qps", "throttle-burst"),
            ("10000", *sizes),
            strict=True,
        )
    ),
    _switch("audit-log-batch-throttle-enable", "Audit log.", no_effect=_NO_AUDIT),
    _switch("audit-webhook-batch-throttle-enable", "Audit log.", "true", _NO_AUDIT),
    *(
        _ACCEPTED.flag(
            f"audit-{kind}-truncate-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT
        )
        for kind in ("log", "webhook")
        for name, default in (("max-batch-size", "10485760"), ("max-event-size", "102400"))
    ),
    _switch("audit-log-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
    _switch("audit-webhook-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
)
