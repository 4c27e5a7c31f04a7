"""Every flag of the metrics API server: prometheus-adapter's, and ours.

One table serves the command line, the messages about wrong values and the docs.

Source: prometheus-adapter v0.12.0 cmd/adapter (adapter.go); custom-metrics-apiserver v1.30.0 pkg/cmd;
k8s.io/apiserver v0.30.0 pkg/server/options.
"""

from types import MappingProxyType

from gpuscale.core.flags import Flag


def _bool(name: str, help_: str, default: str = "false", no_effect: str = "") -> Flag:
    return Flag(name, help_, "bool", default, no_effect=no_effect)


def _list(name: str, help_: str, default: str = "", no_effect: str = "") -> Flag:
    return Flag(name, help_, "list", default, repeats=True, no_effect=no_effect)


_ONE_PROTOCOL = "only HTTP/1.1 is served"
_NO_AUDIT = (
    "the audit log has one form here, see --audit-log-path; the API server in front writes one too"
)
_NO_PROFILE = "there are no Go profiles to serve"
_NO_THROTTLE = "objects come from watches, so that requests cost the API server nothing"
_PLAIN_LOG = "each message is written at once, and all modules log at one level"

_PROMETHEUS = (
    Flag("prometheus-url", "Address of Prometheus.", default="https://localhost"),
    Flag(
        "prometheus-verb",
        "GET or POST; many pods don't fit into the address of a GET.",
        default="POST",
    ),
    _bool("prometheus-auth-incluster", "Go to Prometheus with the pod's service account."),
    Flag("prometheus-auth-config", "Kubeconfig whose user goes to Prometheus."),
    Flag("prometheus-ca-file", "CAs that Prometheus' certificate is held against."),
    Flag("prometheus-client-tls-cert-file", "Client certificate to go to Prometheus with."),
    Flag("prometheus-client-tls-key-file", "Key of that certificate."),
    Flag(
        "prometheus-token-file", "Bearer token to go to Prometheus with; renewed tokens are used."
    ),
    Flag("prometheus-header", "NAME=VALUE to send to Prometheus.", repeats=True),
    Flag("prometheus-username", "User of basic authentication at Prometheus.", is_ours=True),
    Flag(
        "prometheus-password-file",
        "Password of that user; renewed passwords are used.",
        is_ours=True,
    ),
    Flag(
        "prometheus-timeout",
        "How long Prometheus may take for an answer.",
        "duration",
        "30s",
        is_ours=True,
    ),
    Flag(
        "prometheus-max-query-length",
        "Characters of a query, with GET of the encoded one; more objects are asked for in parts. "
        "0 is 16000, with GET 7000.",
        "int",
        "0",
        is_ours=True,
    ),
)
_STREAMS = (
    Flag(
        "agent-service",
        "Service of gpuscale's node agents, NAME or NAMESPACE/NAME; its EndpointSlices name them.",
        default="gpuscale-exporter",
        is_ours=True,
    ),
    Flag(
        "agent-selector",
        "Labels of the agents' EndpointSlices, in place of a Service's name.",
        is_ours=True,
    ),
    Flag(
        "agent-port",
        "Name of the agents' port; metrics, or else the first, if empty.",
        is_ours=True,
    ),
    Flag(
        "agent",
        "Address of a node agent, as 127.0.0.1:9400 or as a URL.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "agent-ca-file",
        "CAs of the agents' certificates; agents are then reached by HTTPS.",
        is_ours=True,
    ),
    Flag(
        "agent-client-tls-cert-file", "Client certificate to go to the agents with.", is_ours=True
    ),
    Flag("agent-client-tls-key-file", "Key of that certificate.", is_ours=True),
    Flag("agent-username", "User of basic authentication at the agents.", is_ours=True),
    Flag("agent-password-file", "Password of that user; renewed passwords are used.", is_ours=True),
    Flag("agent-token-file", "Bearer token for the agents; renewed tokens are used.", is_ours=True),
    Flag(
        "peers",
        "Addresses of all replicas that share the agents, as https://gpuscale-0:6443, separated by commas; "
        "one of them may be this replica's own.",
        "list",
        is_ours=True,
    ),
    Flag(
        "peers-service",
        "Service in front of the replicas that share the agents, NAMESPACE/NAME; its EndpointSlices list "
        "them, in place of --peers.",
        is_ours=True,
    ),
    Flag("peers-ca-file", "CAs of the replicas' certificates.", is_ours=True),
    Flag(
        "peers-token-file",
        "Bearer token for the other replicas; renewed tokens are used.",
        is_ours=True,
    ),
    Flag(
        "peers-server-name",
        "Name that the replicas' certificates are checked against; if empty, the host of the address, or "
        "NAME.NAMESPACE.svc of --peers-service.",
        is_ours=True,
    ),
    Flag("scrape", "URL of something else to scrape.", repeats=True, is_ours=True),
    Flag(
        "scrape-annotated-pods",
        "Scrape pods with the annotation prometheus.io/scrape.",
        "bool",
        "true",
        is_ours=True,
    ),
    Flag(
        "exporter-pods",
        "Annotated pods whose series may name other pods: NAMESPACE or NAMESPACE/LABEL=VALUE, "
        "separated by commas.",
        "list",
        "kube-system,gpu-operator,kube-amd-gpu,gke-managed-system,monitoring",
        is_ours=True,
    ),
    Flag("scrape-interval", "From one scrape to the next.", "duration", "5s", is_ours=True),
    Flag(
        "scrape-sample-limit",
        "A scrape of more samples, or a stream of more series, fails; 0 is no limit.",
        "int",
        "100000",
        is_ours=True,
    ),
    Flag(
        "scrape-series-limit",
        "Series that are kept of one target at most; 0 is its share of the store.",
        "int",
        "0",
        is_ours=True,
    ),
    Flag(
        "scrape-label-limit",
        "A scrape with more labels on a series fails; 0 is no limit.",
        "int",
        "128",
        is_ours=True,
    ),
    Flag(
        "scrape-label-name-length-limit",
        "A scrape with a longer name of a label fails; 0 is no limit.",
        "int",
        "512",
        is_ours=True,
    ),
    Flag(
        "scrape-label-value-length-limit",
        "A scrape with a longer value of a label fails; 0 is no limit.",
        "int",
        "4096",
        is_ours=True,
    ),
    Flag(
        "scrape-body-size-limit",
        "A scrape of more bytes fails; 0 is 64 MiB.",
        "int",
        str(32 * 1024 * 1024),
        is_ours=True,
    ),
    Flag(
        "honor-labels",
        "An exposed label wins over the target's of the same name; otherwise it becomes exported_<name>.",
        "bool",
        "true",
        is_ours=True,
    ),
    Flag(
        "serve-prometheus-api",
        "Serve the Prometheus HTTP API over the series, below /prometheus, where RBAC allows these paths.",
        "bool",
        "true",
        is_ours=True,
    ),
    Flag(
        "keep-all-series",
        "Keep series that no rule can ask for too, for queries of people.",
        "bool",
        "false",
        is_ours=True,
    ),
    Flag("store-retention", "How long samples are kept.", "duration", "15m", is_ours=True),
    Flag("store-max-series", "Series that are kept at most.", "int", "200000", is_ours=True),
    Flag(
        "store-max-samples",
        "Samples that are kept at most; beyond that, the oldest make room.",
        "int",
        "20000000",
        is_ours=True,
    ),
    Flag(
        "store-directory",
        "Directory that the samples are saved in, so that a restart keeps them; none are if empty.",
        is_ours=True,
    ),
    Flag(
        "store-directory-size-limit",
        "Bytes of the files there, such as 512Mi; beyond that, the oldest go.",
        default="1Gi",
        is_ours=True,
    ),
    Flag(
        "remote-write-url",
        "Address that all samples are sent to by Prometheus' remote write.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "remote-write-config",
        "File with remote_write as in Prometheus' configuration, for credentials, relabelling and the like; "
        "or folder that may have one as remote-write.yaml.",
        is_ours=True,
    ),
    Flag(
        "remote-write-label",
        "NAME=VALUE that every series gets on the way there, unless it has a label of that name.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "stream-resolution",
        "Of agents' streams, the newest value of each such step of time is kept.",
        "duration",
        "1s",
        is_ours=True,
    ),
    Flag(
        "prometheus-rules",
        "Prometheus rule file with recording and alerting rules, or folder with such files; read again "
        "when they change. May be given several times.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "evaluation-interval",
        "How often groups of Prometheus rules without an interval are evaluated.",
        "duration",
        "15s",
        is_ours=True,
    ),
    Flag(
        "alertmanager",
        "Address of an Alertmanager, such as http://alertmanager:9093, that alerts of Prometheus rules are "
        "sent to. Several are separated by commas, or given each by a flag.",
        repeats=True,
        is_ours=True,
    ),
    Flag("alertmanager-ca-file", "CAs of the Alertmanagers' certificates.", is_ours=True),
    Flag(
        "alertmanager-client-tls-cert-file",
        "Client certificate to go to the Alertmanagers with.",
        is_ours=True,
    ),
    Flag("alertmanager-client-tls-key-file", "Key of that certificate.", is_ours=True),
    Flag(
        "alertmanager-username", "User of basic authentication at the Alertmanagers.", is_ours=True
    ),
    Flag(
        "alertmanager-password-file",
        "Password of that user; renewed passwords are used.",
        is_ours=True,
    ),
    Flag(
        "alertmanager-token-file",
        "Bearer token for the Alertmanagers; renewed tokens are used.",
        is_ours=True,
    ),
    Flag(
        "external-url",
        "Address of the Prometheus API as users see it, for links and $externalURL of alerts.",
        is_ours=True,
    ),
)
_METRICS = (
    Flag(
        "config",
        "Rule file, or folder with rule files; read again when they change. May be given several times.",
        repeats=True,
    ),
    Flag(
        "preset",
        "Whether the rules for GPUs and model servers are there too: on, off, or auto, "
        "which is where there is no --config.",
        default="auto",
        is_ours=True,
    ),
    Flag(
        "print-preset",
        "Print these rules, and end.",
        "bool",
        "false",
        is_ours=True,
    ),
    Flag(
        "rules-configmaps",
        "Label selector of ConfigMaps with rules of teams, such as gpuscale.dev/rules=true; "
        "none are read if empty.",
        is_ours=True,
    ),
    Flag(
        "rules-namespace-labels",
        "Labels of series, one of which teams' rules are bound to their namespace by.",
        "list",
        "namespace",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "rules-namespaces",
        "Label selector of the namespaces whose ConfigMaps count, such as gpuscale.dev/rules=allowed; "
        "all if empty.",
        is_ours=True,
    ),
    Flag(
        "rules-max-per-namespace",
        "Rules that the ConfigMaps of a namespace may have together.",
        "int",
        "200",
        is_ours=True,
    ),
    Flag(
        "rules-max-range",
        "How far back the queries of teams' rules may look, with ranges, subqueries and offsets.",
        "duration",
        "1h",
        is_ours=True,
    ),
    Flag(
        "source",
        "Where values come from: prometheus, or streams of node agents and scrapes without a Prometheus.",
        default="prometheus",
        is_ours=True,
    ),
    Flag(
        "value-freshness",
        "How old an answer of the source may be when it serves another request; 0 asks for each. Unless"
        " given, more where samples come seldom.",
        "duration",
        "1s",
        is_ours=True,
    ),
    Flag(
        "value-freshness-max",
        "The most that --value-freshness becomes, unless that is given: a fifth of the time between two"
        " samples.",
        "duration",
        "3s",
        is_ours=True,
    ),
    Flag(
        "widen-queries",
        "Ask for the objects of several requests in one query, where that gives the same.",
        "bool",
        "true",
        is_ours=True,
    ),
    Flag(
        "value-max-age",
        "A value that was measured longer ago is absent; 0 is no limit.",
        "duration",
        "2m",
        is_ours=True,
    ),
    Flag(
        "metrics-relist-interval",
        "From one discovery of metrics to the next.",
        "duration",
        "10m",
    ),
    Flag(
        "metrics-max-age",
        "How old a series may be for its metrics to be listed; 0 is the relist interval.",
        "duration",
        "0s",
    ),
    Flag(
        "hop-lag-interval",
        "How often Prometheus is asked how late values come, with two queries per metric in use; 0 is never.",
        "duration",
        "30s",
        is_ours=True,
    ),
)
_CLUSTER = (
    Flag(
        "lister-kubeconfig",
        "Kubeconfig to look up objects with, also as --kubeconfig; the pod's service account if empty.",
    ),
    Flag(
        "object-max-age",
        "How long the list of objects counts after the API server last confirmed it; after that, * is an "
        "error. 0 is no limit.",
        "duration",
        "60s",
        is_ours=True,
    ),
    Flag(
        "discovery-interval",
        "How often the cluster's resources are looked up; 0 is every minute.",
        "duration",
        "0s",
    ),
    Flag(
        "client-qps", "Requests per second to the API server.", default="5", no_effect=_NO_THROTTLE
    ),
    Flag(
        "client-burst", "Requests at once to the API server.", default="10", no_effect=_NO_THROTTLE
    ),
)
_SERVING = (
    Flag("bind-address", "Address to listen on.", default="0.0.0.0"),  # noqa: S104 - as upstream
    Flag("secure-port", "Port of HTTPS; 0 serves none.", "int", "6443"),
    Flag(
        "insecure-loopback-port",
        "Port of plain HTTP on 127.0.0.1, for any process on this machine; 0 serves none.",
        "int",
        "0",
        is_ours=True,
    ),
    Flag("tls-cert-file", "Serving certificate, with intermediates; renewed files are used."),
    Flag("tls-private-key-file", "Key of the serving certificate."),
    Flag(
        "cert-dir",
        "Folder with apiserver.crt and apiserver.key; made there, with a CA, where they are missing.",
        default="apiserver.local.config/certificates",
    ),
    Flag("ca-bundle-file", "File to write the CA to, when it is made here.", is_ours=True),
    Flag(
        "service-name",
        "Service in front of the server, for the names of a certificate that is made here.",
        default="gpuscale-metrics-api",
        is_ours=True,
    ),
    Flag(
        "service-namespace",
        "Namespace of that Service; the pod's own if empty.",
        is_ours=True,
    ),
    Flag("tls-min-version", "VersionTLS12 or VersionTLS13.", default="VersionTLS12"),
    _list("tls-cipher-suites", "Suites up to TLS 1.2, by Go's names; OpenSSL's choice if empty."),
    Flag(
        "tls-sni-cert-key",
        "CERT,KEY or CERT,KEY:NAME,*.DOMAIN: a pair for single names, those of the certificate if none "
        "are given; renewed files are used.",
        repeats=True,
    ),
    Flag(
        "shutdown-delay-duration",
        "How long HTTPS is still served after SIGTERM, with /readyz failing; a second signal, "
        "or SIGINT, ends it at once.",
        "duration",
        "10s",
        is_ours=True,
    ),
    Flag(
        "max-connections",
        "Connections over HTTPS, beside those of front proxies; beyond that, idle ones are closed.",
        "int",
        "2500",
        is_ours=True,
    ),
    Flag(
        "max-connections-per-address",
        "Of these, from one IP address.",
        "int",
        "1000",
        is_ours=True,
    ),
    _bool("permit-port-sharing", "Listen with SO_REUSEPORT."),
    _bool("permit-address-sharing", "Listen with SO_REUSEADDR."),
    _bool("disable-http2", "Serve HTTP/1.1 only.", no_effect=_ONE_PROTOCOL),
    Flag(
        "http2-max-streams-per-connection",
        "Streams of one HTTP/2 connection.",
        "int",
        "0",
        no_effect=_ONE_PROTOCOL,
    ),
)
_AUTHENTICATION = (
    Flag(
        "authentication-kubeconfig",
        "Kubeconfig to have tokens reviewed with; that of --lister-kubeconfig if empty.",
    ),
    Flag(
        "authentication-token-webhook-cache-ttl",
        "How long a reviewed token is remembered.",
        "duration",
        "10s",
    ),
    _bool(
        "authentication-skip-lookup",
        "Take no CAs from the cluster's ConfigMap, only those of the flags.",
    ),
    _bool(
        "authentication-tolerate-lookup-failure",
        "Start without that ConfigMap; until it is there no client certificate is accepted.",
    ),
    Flag("client-ca-file", "CAs of client certificates, instead of the cluster's."),
    Flag("requestheader-client-ca-file", "CAs of front proxies, instead of the cluster's."),
    _list("requestheader-allowed-names", "Common names of front proxies; any if empty."),
    _list("requestheader-username-headers", "Headers with the user's name.", "x-remote-user"),
    _list("requestheader-group-headers", "Headers with the user's groups.", "x-remote-group"),
    _list(
        "requestheader-extra-headers-prefix",
        "How headers with further facts begin.",
        "x-remote-extra-",
    ),
)
_AUTHORIZATION = (
    Flag(
        "authorization-kubeconfig",
        "Kubeconfig to ask for permissions with; that of --lister-kubeconfig if empty.",
    ),
    Flag(
        "authorization-webhook-cache-authorized-ttl",
        "How long a permission is remembered.",
        "duration",
        "10s",
    ),
    Flag(
        "authorization-webhook-cache-unauthorized-ttl",
        "How long a refusal is remembered.",
        "duration",
        "10s",
    ),
    _list(
        "authorization-always-allow-paths",
        "Paths that need no permission; a * at the end matches any rest.",
        "/healthz,/readyz,/livez",
    ),
)
_LOGGING = (
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
_AUDIT = (
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
_ACCEPTED = (
    _bool("profiling", "Serve profiles.", "true", _NO_PROFILE),
    _bool("contention-profiling", "Profile locks.", no_effect=_NO_PROFILE),
    Flag("debug-socket-path", "Socket that serves profiles.", no_effect=_NO_PROFILE),
    _bool(
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
    _bool("audit-log-compress", "Audit log.", no_effect=_NO_AUDIT),
    *(
        Flag(f"audit-{kind}-batch-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
        for kind, sizes in (("log", ("1", "0s", "0", "0")), ("webhook", ("400", "30s", "10", "15")))
        for name, default in zip(
            ("buffer-size", "max-size", "max-wait", "throttle-qps", "throttle-burst"),
            ("10000", *sizes),
            strict=True,
        )
    ),
    _bool("audit-log-batch-throttle-enable", "Audit log.", no_effect=_NO_AUDIT),
    _bool("audit-webhook-batch-throttle-enable", "Audit log.", "true", _NO_AUDIT),
    *(
        Flag(f"audit-{kind}-truncate-{name}", "Audit log.", default=default, no_effect=_NO_AUDIT)
        for kind in ("log", "webhook")
        for name, default in (("max-batch-size", "10485760"), ("max-event-size", "102400"))
    ),
    _bool("audit-log-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
    _bool("audit-webhook-truncate-enabled", "Audit log.", no_effect=_NO_AUDIT),
)

GROUPS = MappingProxyType(
    {
        "Metrics": _METRICS,
        "Prometheus": _PROMETHEUS,
        "Streams": _STREAMS,
        "Cluster": _CLUSTER,
        "Serving": _SERVING,
        "Authentication": _AUTHENTICATION,
        "Authorization": _AUTHORIZATION,
        "Logging": _LOGGING,
        "Audit": _AUDIT,
        "Accepted, without effect": _ACCEPTED,
    }
)
COMMON = frozenset(
    {
        "config",
        "preset",
        "print-preset",
        "rules-configmaps",
        "source",
        "value-max-age",
        "metrics-relist-interval",
        "prometheus-url",
        "prometheus-ca-file",
        "prometheus-token-file",
        "prometheus-header",
        "prometheus-username",
        "prometheus-password-file",
        "agent-service",
        "agent",
        "scrape",
        "scrape-interval",
        "store-directory",
        "remote-write-url",
        "lister-kubeconfig",
        "secure-port",
        "insecure-loopback-port",
        "tls-cert-file",
        "tls-private-key-file",
        "cert-dir",
        "v",
    }
)
"""Flags that most users need; `--help` shows these."""

FLAGS = MappingProxyType({flag.name: flag for flags in GROUPS.values() for flag in flags})
"""By name, in the order of the groups."""
