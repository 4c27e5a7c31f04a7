"""Which connections are closed for being too many, and which addresses count as one client."""

import pytest

from gpuscale.server.scaler.connections import Peer, network_of, too_many


def test_the_newest_of_an_address_go_beyond_its_bound() -> None:
    peers = [Peer(inode, "10.0.0.9") for inode in (4, 1, 3, 2)] + [Peer(9, "10.0.0.1")]
    assert too_many(peers, most=100, most_of_address=2) == {3: "address", 4: "address"}


def test_beyond_the_bound_of_all_the_address_with_the_most_gives_way() -> None:
    greedy = [Peer(inode, "10.0.0.9") for inode in range(10, 16)]
    others = [Peer(1, "10.0.0.1"), Peer(99, "10.0.0.2")]
    doomed = too_many([*greedy, *others], most=5, most_of_address=100)
    assert doomed == {13: "total", 14: "total", 15: "total"}


def test_nothing_is_closed_within_the_bounds() -> None:
    assert too_many([Peer(1, "a"), Peer(2, "a")], most=2, most_of_address=2) == {}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::8", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_a_client_is_an_address_or_the_network_that_a_host_has(address, network) -> None:
    assert network_of(address) == network
