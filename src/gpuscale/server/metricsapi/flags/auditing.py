"""Flags of the log and the audit log, and those of prometheus-adapter that have no effect."""

from gpuscale.base.flags import Flag
from gpuscale.server.metricsapi.flags.serving import switch

_NO_AUDIT = (
    "the audit log has one form here, see --audit-log-path; the API server in front writes one too"
)
_NO_PROFILE = "there are no Go profiles to serve"
_PLAIN_LOG = "each message is written at once, and all modules log at one level"
LOGGING = (
    Flag(
        "v",
        "From 4 on, every query is logged too, and why objects have no value.",
        "int",
        "0",
        alias="v",
    ),
    Flag("vmodule", "Level by module.", no_effect=_PLAIN_LOG),
    Flag(
        "log-flush-frequency",
        "How often the log is written.",
        "duration",
        "5s",
        no_effect=_PLAIN_LOG,
    ),
)
AUDIT = (
    Flag(
        "audit-log-path",
        "File for one JSON line per request, as audit.k8s.io/v1 of the level Metadata; - is standard output.",
    ),
    Flag(
        "audit-log-maxsize",
        "Megabytes of that file before another one is begun; 0 is 100.",
        "int",
        "0",
    ),
    Flag("audit-log-maxbackup", "Old files to keep; 0 is 10.", "int", "0"),
)
ACCEPTED = (
    switch("profiling", "Serve profiles.", "true", _NO_PROFILE),
    switch("contention-profiling", "Profile locks.", no_effect=_NO_PROFILE),
    Flag("debug-socket-path", "Socket that serves profiles.", no_effect=_NO_PROFILE),
    switch(
        "enable-priority-and-fairness",
        "Queue requests by their kind.",
        no_effect="400 requests are answered at a time, and more are turned away",
    ),
    *(
        Flag(f"audit-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
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
    switch("audit-log-compress", "Audit log.", no_effect=_NO_AUDIT),
    *(
        Flag(f"audit-{kind}-batch-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
        for kind, sizes in (("log", ("1", "0s", "0", "0")), ("webhook", ("400", "30s", "10", "15")))
        for name, default in zip(
            ("buffer-size", "max-size", "max-wait", "throttle-qps", "throttle-burst"),
            ("10000", *sizes),
            strict=True,
        )
    ),
    switch("audit-log-batch-throttle-enable", "Audit log.", no_effect=_NO_AUDIT),
    switch("audit-webhook-batch-throttle-enable", "Audit log.", "true", _NO_AUDIT),
    *(
        Flag(f"audit-{kind}-truncate-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
        for kind in ("log", "webhook")
        for name, default in (("max-batch-size", "10485760"), ("max-event-size", "102400"))
    ),
    switch("audit-log-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
    switch("audit-webhook-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
)
