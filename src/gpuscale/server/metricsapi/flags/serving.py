"""Flags of the port that is served, and of who may ask there."""

from gpuscale.base.flags import Flag


def switch(name: str, help_: str, default: str = "false", no_effect: str = "") -> Flag:
    """Return a flag that is true or false."""
    return Flag(name, help_, "bool", default, no_effect=no_effect)


def flag_list(name: str, help_: str, default: str = "", no_effect: str = "") -> Flag:
    """Return a flag of several values, with commas between or given each."""
    return Flag(name, help_, "list", default, repeats=True, no_effect=no_effect)


_ONE_PROTOCOL = "only HTTP/1.1 is served"
SERVING = (
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
        "tls-secret",
        "NAMESPACE/NAME of a Secret: replicas share the certificate in it, fill it and renew it in time.",
        is_ours=True,
    ),
    Flag(
        "tls-secret-apiservices",
        "APIServices of this Service whose caBundle follows the CAs in the Secret.",
        "list",
        repeats=True,
        is_ours=True,
    ),
    Flag(
        "tls-secret-days",
        "Life of a certificate in the Secret; it is renewed when two thirds of it have passed.",
        "int",
        default="90",
        is_ours=True,
    ),
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
    flag_list(
        "tls-cipher-suites", "Suites up to TLS 1.2, by Go's names; OpenSSL's choice if empty."
    ),
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
    switch("permit-port-sharing", "Listen with SO_REUSEPORT."),
    switch("permit-address-sharing", "Listen with SO_REUSEADDR."),
    switch("disable-http2", "Serve HTTP/1.1 only.", no_effect=_ONE_PROTOCOL),
    Flag(
        "http2-max-streams-per-connection",
        "Streams of one HTTP/2 connection.",
        "int",
        "0",
        no_effect=_ONE_PROTOCOL,
    ),
)
AUTHENTICATION = (
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
    switch(
        "authentication-skip-lookup",
        "Take no CAs from the cluster's ConfigMap, only those of the flags.",
    ),
    switch(
        "authentication-tolerate-lookup-failure",
        "Start without that ConfigMap; until it is there no client certificate is accepted.",
    ),
    Flag("client-ca-file", "CAs of client certificates, instead of the cluster's."),
    Flag("requestheader-client-ca-file", "CAs of front proxies, instead of the cluster's."),
    flag_list("requestheader-allowed-names", "Common names of front proxies; any if empty."),
    flag_list("requestheader-username-headers", "Headers with the user's name.", "x-remote-user"),
    flag_list("requestheader-group-headers", "Headers with the user's groups.", "x-remote-group"),
    flag_list(
        "requestheader-extra-headers-prefix",
        "How headers with further facts begin.",
        "x-remote-extra-",
    ),
)
AUTHORIZATION = (
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
    flag_list(
        "authorization-always-allow-paths",
        "Paths that need no permission; a * at the end matches any rest.",
        "/healthz,/readyz,/livez",
    ),
)
