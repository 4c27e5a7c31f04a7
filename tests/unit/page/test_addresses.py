import os
import socket
from ipaddress import ip_address

import pytest

from gpuscale.server.page.addresses import (
    is_every_interface,
    openable_hosts,
    own_host,
    port_holder,
    url_host,
)


@pytest.mark.parametrize(
    ("host", "every", "own", "written"),
    [
        ("127.0.0.1", False, "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", True, "127.0.0.1", "0.0.0.0"),
        ("::", True, "::1", "[::]"),
        ("::1", False, "::1", "[::1]"),
        ("gpu.example", False, "gpu.example", "gpu.example"),
    ],
)
def test_hosts_as_servers_and_urls_have_them(
    host: str, every: bool, own: str, written: str
) -> None:
    assert is_every_interface(host) is every
    assert own_host(host) == own
    assert url_host(host) == written


@pytest.mark.parametrize("host", ["127.0.0.1", "gpu.example"])
def test_one_address_opens_as_itself(host: str) -> None:
    assert openable_hosts(host) == (host,)


@pytest.mark.parametrize(("host", "own"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_all_interfaces_open_as_loopback_and_as_what_others_see(host: str, own: str) -> None:
    first, *others = openable_hosts(host)
    assert first == own
    for other in others:
        assert ip_address(other).version == ip_address(own).version
        assert not ip_address(other).is_unspecified


def test_the_holder_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        holder = port_holder(port)
    assert holder is not None
    assert holder.endswith(f"(pid {os.getpid()})")


def test_a_free_port_has_no_holder() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        assert port_holder(bound.getsockname()[1]) is None
