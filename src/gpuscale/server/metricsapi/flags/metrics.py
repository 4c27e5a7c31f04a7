"""Flags of the metrics that are served, and of the cluster whose objects they belong to."""

from gpuscale.base.flags import Flag

_NO_THROTTLE = "objects come from watches, so that requests cost the API server nothing"
METRICS = (
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
        "triggers",
        "Trigger file, or folder with trigger files, whose triggers are served as external metrics; read "
        "again when they change. May be given several times.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "held-file",
        "File that the last decisions of triggers are kept in, for a start while a source is away.",
        is_ours=True,
    ),
    Flag(
        "held-configmap",
        "ConfigMap that replicas keep them in together, NAMESPACE/NAME.",
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
        "A value that was measured longer ago, or over 10 s in the future, is absent; 0 is no limit.",
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
CLUSTER = (
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
FEDERATION = (
    Flag(
        "federate",
        "Another metrics API that answers what is not ours: NAME or NAME=TARGET, with options behind commas, "
        "such as keda,caFile=/etc/keda/ca.crt. May be given several times.",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "federation",
        "File with such metrics APIs, as `members`.",
        is_ours=True,
    ),
)
