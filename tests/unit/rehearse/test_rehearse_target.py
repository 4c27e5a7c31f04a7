"""Which cluster may be used."""

from pathlib import Path

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.lab.rehearse.target import check_named, check_reachable, is_loopback, make_target

FILE = Path("kubeconfig")
REMOTE = "https://192.0.2.1:6443"


def target(context=None, namespace="ns", address=None, *, named=True, yes=False):
    cluster = KubeSettings(FILE, context)
    return make_target(cluster, namespace, address, is_named=named, is_confirmed=yes)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://[::1]:6443", True),
        ("https://localhost:6443", True),
        (REMOTE, False),
        ("https://localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback_is_an_address_and_not_a_name_that_looks_like_one(server, expected: bool) -> None:
    assert is_loopback(server) is expected


def test_a_cluster_elsewhere_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="--context, or say --yes"):
        check_named(target(), REMOTE)
    check_named(target(context="staging"), REMOTE)
    check_named(target(yes=True), REMOTE)
    check_named(target(), "https://127.0.0.1:6443")


def test_a_cluster_that_was_only_found_has_to_be_named_wherever_it_is() -> None:
    """127.0.0.1 may be a tunnel to a cluster that matters."""
    with pytest.raises(UsageError, match=r"the current context of kubeconfig leads to .*--context"):
        check_named(target(named=False), "https://127.0.0.1:6443")
    check_named(target(context="kind", named=False), "https://127.0.0.1:6443")
    check_named(target(named=False, yes=True), "https://127.0.0.1:6443")


def test_a_cluster_elsewhere_has_to_find_this_machine() -> None:
    with pytest.raises(UsageError, match="--advertise-address"):
        check_reachable(target(yes=True), REMOTE)
    check_reachable(target(yes=True, address="192.0.2.7"), REMOTE)
    check_reachable(target(), "https://127.0.0.1:6443")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "host", ""])
def test_an_address_that_endpoints_cant_name_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="--advertise-address: found"):
        target(address=address)


@pytest.mark.parametrize("namespace", ["", "A", "a b", "-a", "a/b", "a" * 64])
def test_a_namespace_that_cant_be_one_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError, match="--namespace: found"):
        target(namespace=namespace)
