"""Flags and files that name other metrics APIs."""

from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.server.metricsapi.federation.settings import (
    KEDA_LABEL,
    member_of_flag,
    members_of_file,
)
from gpuscale.server.metricsapi.settings import read_settings

EXTERNAL, CUSTOM = "external.metrics.k8s.io", "custom.metrics.k8s.io"


def test_keda_is_known_by_name() -> None:
    found = member_of_flag("keda,caFile=/ca.crt")
    assert found.url == "https://keda-operator-metrics-apiserver.keda.svc:443"
    # The name that the API server's aggregator checks a Service's certificate against.
    assert found.server_name == "keda-operator-metrics-apiserver.keda.svc"
    assert (found.groups, found.metrics, found.selectors) == ((EXTERNAL,), (), (KEDA_LABEL,))
    assert found.ca_file == Path("/ca.crt")


def test_a_known_name_may_be_elsewhere_and_own_something_else() -> None:
    found = member_of_flag(
        "keda=tools/keda-metrics-apiserver:443,insecure,metrics=s0-*,metrics=s1-*,timeout=2s"
    )
    assert found.url == "https://keda-metrics-apiserver.tools.svc:443"
    assert (found.metrics, found.selectors) == (("s0-*", "s1-*"), ())
    assert (found.insecure, found.timeout_s) == (True, 2.0)


def test_an_address_outside_is_checked_by_the_systems_cas() -> None:
    found = member_of_flag("old=https://metrics.example.com")
    assert (found.url, found.ca_file, found.insecure) == (
        "https://metrics.example.com",
        None,
        False,
    )
    assert found.groups == (CUSTOM, EXTERNAL)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kda,insecure", "found 'kda' without an address, expected keda"),
        ("keda", "found keda without a CA, expected caFile=FILE"),
        ("keda,caFile=/a,insecure", "found caFile and insecure, expected one of them"),
        ("old=http://old:80", "found the address 'http://old:80', expected NAMESPACE/SERVICE:PORT"),
        ("old=https://user:pass@old", "found the address"),
        ("old=monitoring/old", "found the address"),
        ("old=monitoring/old:70000", "found the address"),
        ("keda,cafile=/a", "found the option 'cafile', expected caFile"),
        ("keda,insecure=yes", "found 'insecure=yes', expected insecure"),
        ("keda,insecure,timeout=10s", "expected more than 0s, at most 5s"),
        ("keda,insecure,certFile=/a", "found one of certFile and keyFile, expected both"),
        ("keda,insecure,groups=metrics", "found the group 'metrics', expected custom or external"),
        ("K=a/b:1,insecure", "found the name 'K'"),
        ("keda,insecure,metrics=a b", "found the metric 'a b'"),
    ],
)
def test_what_can_not_be_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="found") as raised:
        member_of_flag(text)
    assert reason in str(raised.value)


def test_a_file_names_them_with_the_same_words(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(
        "members:\n"
        "- {name: keda, caFile: /keda/ca.crt}\n"
        "- {name: old, target: monitoring/old:443, insecure: true, groups: [custom], metrics: [http_*]}\n"
    )
    keda, old = members_of_file(path)
    assert keda == member_of_flag("keda,caFile=/keda/ca.crt")
    assert old == member_of_flag("old=monitoring/old:443,insecure,groups=custom,metrics=http_*")


def test_faults_of_a_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(
        "members:\n- name: keda\n  insecur: true\n- name: old\n  target: nowhere\n  insecure: true\n"
    )
    with pytest.raises(ConfigError) as raised:
        members_of_file(path)
    text = str(raised.value)
    assert ":3:" in text
    assert "insecure" in text
    assert "NAMESPACE/SERVICE:PORT" in text
    with pytest.raises(UsageError, match="can't be read"):
        members_of_file(tmp_path / "none")


def test_members_do_not_share_a_name_or_a_pattern() -> None:
    flags = ["datadog,insecure", "prometheus-adapter,insecure", "datadog=a/b:1,insecure"]
    with pytest.raises(UsageError) as raised:
        read_settings({"federate": flags})
    text = str(raised.value)
    assert "found datadog twice" in text
    assert f"found * of {EXTERNAL} for datadog and prometheus-adapter, expected one owner" in text


def test_nothing_is_passed_on_without_https() -> None:
    flags = {
        "secure-port": ["0"],
        "insecure-loopback-port": ["8080"],
        "federate": ["keda,insecure"],
    }
    with pytest.raises(UsageError, match="expected HTTPS"):
        read_settings(flags)
