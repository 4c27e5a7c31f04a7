# mypy: disable-error-code="attr-defined"
"""The flags: prometheus-adapter's are all taken, and a value that can't be is told."""

from pathlib import Path

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.cli.servers.serving import given_texts, plain_arguments
from gpuscale.server.metricsapi.security.audit import AuditSettings
from gpuscale.server.metricsapi.settings import FLAGS, NamedPair, read_settings
from gpuscale.server.sources.feeds.annotated_pods import DEFAULT_EXPORTERS

# Every flag that `adapter --help` of prometheus-adapter v0.12.0 lists, but --help itself.
UPSTREAM = """
prometheus-url prometheus-verb prometheus-auth-incluster prometheus-auth-config prometheus-ca-file
prometheus-client-tls-cert-file prometheus-client-tls-key-file prometheus-token-file prometheus-header config
metrics-relist-interval metrics-max-age disable-http2 lister-kubeconfig discovery-interval client-qps
client-burst v vmodule log-flush-frequency bind-address secure-port cert-dir tls-cert-file
tls-private-key-file tls-sni-cert-key tls-cipher-suites tls-min-version http2-max-streams-per-connection
permit-port-sharing permit-address-sharing authentication-kubeconfig authentication-token-webhook-cache-ttl
authentication-skip-lookup authentication-tolerate-lookup-failure client-ca-file
requestheader-client-ca-file requestheader-allowed-names requestheader-username-headers
requestheader-group-headers requestheader-extra-headers-prefix authorization-kubeconfig
authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
authorization-always-allow-paths profiling contention-profiling debug-socket-path
enable-priority-and-fairness audit-policy-file audit-log-path audit-log-maxage audit-log-maxbackup
audit-log-maxsize audit-log-format audit-log-compress audit-log-version audit-log-mode
audit-webhook-config-file audit-webhook-initial-backoff audit-webhook-mode audit-webhook-version
audit-log-batch-buffer-size audit-log-batch-max-size audit-log-batch-max-wait
audit-log-batch-throttle-enable audit-log-batch-throttle-qps audit-log-batch-throttle-burst
audit-webhook-batch-buffer-size audit-webhook-batch-max-size audit-webhook-batch-max-wait
audit-webhook-batch-throttle-enable audit-webhook-batch-throttle-qps audit-webhook-batch-throttle-burst
audit-log-truncate-enabled audit-log-truncate-max-batch-size audit-log-truncate-max-event-size
audit-webhook-truncate-enabled audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size
"""
CONFIG = {"config": ["rules.yaml"]}


def test_all_upstream_flags_are_taken_and_ours_are_marked() -> None:
    assert {name for name, flag in FLAGS.items() if not flag.is_ours} == set(UPSTREAM.split())


def test_defaults_are_upstreams_but_for_the_port_and_the_verb() -> None:
    settings = read_settings(CONFIG)
    assert (settings.relist_interval_s, settings.max_age_s) == (600.0, None)
    assert (settings.source.url, settings.source.verb) == ("https://localhost", "POST")
    assert (settings.serving.host, settings.serving.secure_port) == ("0.0.0.0", 6443)
    assert settings.serving.certificate_folder == Path("apiserver.local.config/certificates")
    auth = settings.auth
    assert (auth.token_ttl_s, auth.allowed_ttl_s, auth.denied_ttl_s) == (10.0, 10.0, 10.0)
    assert auth.always_allowed == ("/healthz", "/readyz", "/livez")
    assert (auth.username_headers, auth.group_headers) == (("x-remote-user",), ("x-remote-group",))
    assert settings.notes == ()


def test_what_has_no_effect_is_explained() -> None:
    settings = read_settings({**CONFIG, "client-qps": ["50"], "v": ["6"]})
    assert settings.notes == (
        "--client-qps changes nothing: objects come from watches, so that requests cost the API "
        "server nothing",
    )
    assert settings.verbosity == 6


def test_every_flag_without_effect_says_why() -> None:
    silent = {
        name for name, flag in FLAGS.items() if name.startswith("audit") and not flag.no_effect
    }
    assert silent == {"audit-log-path", "audit-log-maxsize", "audit-log-maxbackup"}


def test_the_audit_log_is_bounded_unless_told_how() -> None:
    assert read_settings(CONFIG).audit is None
    assert read_settings({**CONFIG, "audit-log-path": ["-"]}).audit == AuditSettings("-", 100, 10)
    flags = {"audit-log-path": ["a"], "audit-log-maxsize": ["5"], "audit-log-maxbackup": ["2"]}
    assert read_settings({**CONFIG, **flags}).audit == AuditSettings("a", 5, 2)
    alone = {"secure-port": ["0"], "insecure-loopback-port": ["1"]}
    with pytest.raises(UsageError, match="--audit-log-path: found it with --secure-port=0"):
        read_settings({**CONFIG, **flags, **alone})


def test_headers_and_lists_add_up() -> None:
    settings = read_settings(
        {
            **CONFIG,
            "prometheus-header": ["X-Scope-OrgID=a", "X-Scope-OrgID=b=c", "X-Empty"],
            "requestheader-allowed-names": ["a,b", "c"],
        }
    )
    assert settings.source.headers == (
        ("X-Scope-OrgID", "a"),
        ("X-Scope-OrgID", "b=c"),
        ("X-Empty", ""),
    )
    assert settings.auth.proxy_names == ("a", "b", "c")


def test_the_listers_kubeconfig_serves_for_questions_too() -> None:
    auth = read_settings({**CONFIG, "lister-kubeconfig": ["k"]}).auth
    assert (auth.authentication_kubeconfig, auth.authorization_kubeconfig) == (Path("k"), Path("k"))


def test_without_a_prometheus_there_are_feeds() -> None:
    assert read_settings(CONFIG).feeds is None
    given = {
        "source": ["streams"],
        "agent": ["127.0.0.1:9400", "https://gpu-1:9400"],
        "scrape": ["http://127.0.0.1:8000"],
        "agent-service": ["gpu/agents"],
        "agent-ca-file": ["ca.crt"],
        "agent-server-name": ["agents.gpu.svc"],
        "honor-labels": ["false"],
        "store-retention": ["1h"],
    }
    feeds = read_settings({**CONFIG, **given}).feeds
    assert [target.url for target in feeds.static] == [
        "http://127.0.0.1:9400/stream",
        "https://gpu-1:9400/stream",
        "http://127.0.0.1:8000/metrics",
    ]
    assert (feeds.agents.namespace, feeds.agents.service) == ("gpu", "agents")
    assert feeds.exporters == DEFAULT_EXPORTERS
    assert (feeds.agents.scheme, feeds.honor_labels, feeds.agents.honor_labels) == (
        "https",
        False,
        False,
    )
    assert (feeds.agent_ca_file, feeds.agent_server_name) == (Path("ca.crt"), "agents.gpu.svc")
    assert (feeds.retention_ms, feeds.max_series) == (3_600_000, 200_000)


def test_values_are_shared_for_a_second_and_absent_after_two_minutes() -> None:
    settings = read_settings(CONFIG)
    assert (settings.freshness_ms, settings.max_value_age_s) == (1000, 120.0)
    assert settings.widens_queries
    given = {"value-freshness": ["0"], "value-max-age": ["0s"], "widen-queries": ["false"]}
    settings = read_settings({**CONFIG, **given})
    assert (settings.freshness_ms, settings.max_value_age_s) == (0, None)
    assert not settings.widens_queries


@pytest.mark.parametrize(
    ("given", "most_ms"),
    [
        ({}, 3000),
        ({"value-freshness-max": ["2s"]}, 2000),
        ({"value-freshness": ["1s"]}, 0),
        ({"value-freshness": ["0"], "value-freshness-max": ["2s"]}, 0),
        ({"source": ["streams"]}, 0),
    ],
)
def test_freshness_is_learned_from_a_prometheus_unless_it_is_given(given, most_ms: int) -> None:
    assert read_settings({**CONFIG, **given}).most_freshness_ms == most_ms


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("source", "files", "--source: found 'files', expected prometheus or streams"),
        ("agent", "ftp://x", "--agent: found 'ftp://x', expected an address such as"),
        ("scrape", "http://", "--scrape: found 'http://', expected an address such as"),
    ],
)
def test_sources_that_cant_be_are_reported(flag: str, value: str, message: str) -> None:
    given = {"source": ["streams"], flag: [value]}
    with pytest.raises(UsageError, match=message):
        read_settings({**CONFIG, **given})


def test_a_ca_file_for_prometheus_overrules_other_ways_as_upstream() -> None:
    source = read_settings(
        {**CONFIG, "prometheus-ca-file": ["ca"], "prometheus-auth-incluster": ["true"]}
    ).source
    assert (source.ca_file, source.in_cluster) == (Path("ca"), False)


def test_cipher_suites_get_openssls_names() -> None:
    suites = [
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_AES_128_GCM_SHA256",
    ]
    settings = read_settings({**CONFIG, "tls-cipher-suites": suites})
    assert settings.serving.ciphers == (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "AES256-GCM-SHA384",
        "ECDHE-RSA-AES128-SHA256",
    )


def test_pairs_for_single_names_keep_their_order() -> None:
    given = ["a.crt,a.key", "b.crt, b.key: *.example.com,b.example.org"]
    serving = read_settings({**CONFIG, "tls-sni-cert-key": given}).serving
    assert serving.named_certificates == (
        NamedPair(Path("a.crt"), Path("a.key"), ()),
        NamedPair(Path("b.crt"), Path("b.key"), ("*.example.com", "b.example.org")),
    )


@pytest.mark.parametrize("text", ["a.crt", "a.crt,", "a,b,c", "a,b:", "a,b:x,", ":x", ""])
def test_a_pair_for_single_names_that_cant_be_is_reported(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({**CONFIG, "tls-sni-cert-key": [text]})
    assert str(caught.value) == (
        f"--tls-sni-cert-key: found {text!r}, expected CERT,KEY or CERT,KEY:NAME,*.DOMAIN"
    )


@pytest.mark.parametrize(
    ("flags", "paths", "has_preset"),
    [
        ({}, (), True),
        ({"preset": ["off"], "rules-configmaps": ["a=b"]}, (), False),
        ({"config": ["a", "b"]}, (Path("a"), Path("b")), False),
        ({"config": ["a"], "preset": ["on"]}, (Path("a"),), True),
    ],
)
def test_the_preset_is_there_where_no_rules_are_given_or_where_it_is_wanted(
    flags, paths, has_preset: bool
) -> None:
    rules = read_settings(flags).rules
    assert (rules.paths, rules.has_preset) == (paths, has_preset)
    assert rules.namespace_labels == ("namespace",)
    assert (rules.budget.rules, rules.budget.longest_range_ms) == (200, 3_600_000)


def test_teams_have_a_budget_of_their_own() -> None:
    flags = {
        "rules-max-per-namespace": ["7"],
        "rules-max-range": ["10m"],
        "rules-namespaces": ["rules=allowed"],
    }
    rules = read_settings(flags).rules
    assert (rules.budget.rules, rules.budget.longest_range_ms) == (7, 600_000)
    assert rules.namespaces == "rules=allowed"
    with pytest.raises(UsageError, match=r"^--rules-namespaces: unable to parse requirement"):
        read_settings({"rules-namespaces": ["=a"]})


def test_no_rules_at_all_are_reported() -> None:
    with pytest.raises(UsageError, match=r"^--config: found nothing, expected a rule file$"):
        read_settings({"preset": ["off"]})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"config": [""]}, "--config: found nothing, expected a rule file"),
        ({"prometheus-verb": ["PUT"]}, "--prometheus-verb: found 'PUT', expected GET or POST"),
        ({"secure-port": ["-1"]}, "--secure-port: found '-1', expected a port from 0 to 65535"),
        (
            {"secure-port": ["65536"]},
            "--secure-port: found '65536', expected a port from 0 to 65535",
        ),
        (
            {"secure-port": ["0"]},
            "--secure-port: found 0, expected a port, or --insecure-loopback-port beside it",
        ),
        (
            {"metrics-max-age": ["soon"]},
            "--metrics-max-age: found 'soon', expected a duration such as 30s or 10m",
        ),
        (
            {"permit-port-sharing": ["yes"]},
            "--permit-port-sharing: found 'yes', expected true or false",
        ),
        (
            {"tls-min-version": ["VersionTLS10"]},
            "--tls-min-version: found 'VersionTLS10', expected VersionTLS12 or VersionTLS13",
        ),
        (
            {"tls-cert-file": ["a"]},
            "--tls-cert-file: found it alone, expected --tls-private-key-file beside it",
        ),
        (
            {"tls-private-key-file": ["a"]},
            "--tls-private-key-file: found it alone, expected --tls-cert-file beside it",
        ),
        (
            {"tls-cipher-suites": ["AES"]},
            "--tls-cipher-suites: found 'AES', expected names such as "
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
        (
            {"requestheader-username-headers": [" "]},
            "--requestheader-username-headers: found ' ', expected names of headers",
        ),
        (
            {"prometheus-auth-incluster": ["true"], "prometheus-auth-config": ["k"]},
            "--prometheus-auth-incluster and --prometheus-auth-config: found both, expected one",
        ),
        ({"v": ["x"]}, "--v: found 'x', expected a whole number"),
        ({"preset": ["maybe"]}, "--preset: found 'maybe', expected auto or on or off"),
        (
            {"rules-configmaps": ["a="], "config": ["x", ""]},
            "--config: found nothing, expected a rule file",
        ),
        (
            {"rules-configmaps": ["=a"]},
            "--rules-configmaps: unable to parse requirement: found '=a'",
        ),
    ],
)
def test_values_that_cant_be_are_reported(flags, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({**CONFIG, **flags})
    assert str(caught.value) == message


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({**CONFIG, "secure-port": ["abc"], "v": ["xyz"], "alertmanager": ["ftp:x"]})
    faults = sorted(str(caught.value).splitlines())
    assert [fault.partition(":")[0] for fault in faults[:2]] == ["--alertmanager"] * 2
    assert faults[2:] == [
        "--secure-port: found 'abc', expected a port from 0 to 65535",
        "--v: found 'xyz', expected a whole number",
    ]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (["--secure-port=6443", "--config", "r"], ["--secure-port", "6443", "--config", "r"]),
        (["--profiling"], ["--profiling", "true"]),
        (["--profiling=false", "--v=6"], ["--profiling", "false", "--v", "6"]),
        (["-v=6"], ["--v", "6"]),
        (["-v", "6"], ["--v", "6"]),
        (["--prometheus-header=a=b"], ["--prometheus-header", "a=b"]),
        (["--unknown=1", "-config"], ["--unknown=1", "-config"]),
    ],
)
def test_arguments_are_taken_as_go_programs_take_them(given: list[str], plain: list[str]) -> None:
    assert plain_arguments(given) == plain


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ([], {}),
        (["--secure-port=1", "--secure-port", "2"], {"secure-port": ["2"]}),
        (["--kubeconfig=k", "-v=6"], {"lister-kubeconfig": ["k"], "v": ["6"]}),
        (
            ["--prometheus-header=a=b", "--prometheus-header", "c=d"],
            {"prometheus-header": ["a=b", "c=d"]},
        ),
        (["--help"], None),
        (["why", "--kubeconfig", "k"], None),
        (["--config"], None),
        (["--no-such-flag=1"], None),
        (["--config=a", "word"], None),
    ],
)
def test_flags_alone_are_read_without_the_command_line(arguments, texts) -> None:
    assert given_texts(arguments) == texts
