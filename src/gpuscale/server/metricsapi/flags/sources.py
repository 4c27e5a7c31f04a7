"""Flags of the places that values come from: a Prometheus, or streams and scrapes without one."""

from gpuscale.base.flags import Flag
from gpuscale.server.metricsapi.flags.serving import switch

PROMETHEUS = (
    Flag("prometheus-url", "Address of Prometheus.", default="https://localhost"),
    Flag(
        "prometheus-verb",
        "GET or POST; many pods don't fit into the address of a GET.",
        default="POST",
    ),
    switch("prometheus-auth-incluster", "Go to Prometheus with the pod's service account."),
    Flag("prometheus-auth-config", "Kubeconfig whose user goes to Prometheus."),
    Flag("prometheus-ca-file", "CAs that Prometheus' certificate is held against."),
    Flag("prometheus-client-tls-cert-file", "Client certificate to go to Prometheus with."),
    Flag("prometheus-client-tls-key-file", "Key of that certificate."),
    Flag(
        "prometheus-token-file", "Bearer token to go to Prometheus with; renewed tokens are used."
    ),
    Flag(
        "prometheus-identity",
        "Identity to go to an Azure Monitor workspace with: azure-workload or azure-managed, and :CLIENT_ID "
        "for another than the pod's own.",
        is_ours=True,
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
STREAMS = (
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
        "agent-server-name",
        "Name that the agents' certificates are checked against; the address's host if empty.",
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
    Flag(
        "agent-pages",
        "Paths that are scraped of each node agent beside its stream, such as /metrics/azure.",
        "list",
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
        "scrape-selected-pods",
        "Scrape pods without an annotation: NAMESPACE/LABELS:PORT, such as ml/app=vllm:8000, or with "
        "SCHEME:PORT/PATH; NAMESPACE and LABELS may be *, PORT the name of a port.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "exporter-pods",
        "Scraped pods whose series may name other pods: NAMESPACE or NAMESPACE/LABEL=VALUE, "
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
        "receive-otlp",
        "Take OTLP metrics that are pushed to /otlp/v1/metrics, where RBAC allows that path.",
        "bool",
        "false",
        is_ours=True,
    ),
    Flag(
        "otlp-promote",
        "Attributes of OTLP resources that are labels of all their series, separated by commas.",
        "list",
        "k8s.namespace.name,k8s.pod.name,k8s.deployment.name,k8s.statefulset.name,k8s.node.name",
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
