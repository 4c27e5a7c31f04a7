# mypy: disable-error-code="arg-type, attr-defined"
"""Who follows which agent: the hashing, and what each replica decides by what it sees."""

import asyncio
import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import UsageError
from gpuscale.base.exposition.stream import StreamReader
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.server.sources.feeds.sharing_discovery import PeerWatch, peer_urls, slice_peers
from gpuscale.server.sources.feeds.sharing_division import PATIENCE_S, Division, first
from gpuscale.server.sources.feeds.sharing_link import PeerLinks
from gpuscale.server.sources.feeds.sharing_relay import MAX_UNSENT_BYTES, Reader, Relay
from gpuscale.server.sources.feeds.sharing_settings import MAX_PEERS, peer_service, peer_url
from gpuscale.server.sources.feeds.targets import static_agent

AGENTS = [f"http://10.0.{n // 256}.{n % 256}:9400/stream" for n in range(2_000)]
REPLICAS = [f"replica-{n}" for n in range(4)]


def test_agents_are_spread_evenly() -> None:
    counts = Counter(first(agent, REPLICAS) for agent in AGENTS)
    mean = len(AGENTS) / len(REPLICAS)
    # Binomial: five standard deviations.
    assert set(counts) == set(REPLICAS)
    assert all(abs(each - mean) < 5 * (mean * 0.75) ** 0.5 for each in counts.values())


@pytest.mark.parametrize("gone", REPLICAS)
def test_only_the_agents_of_a_replica_that_goes_move(gone) -> None:
    rest = [each for each in REPLICAS if each != gone]
    for agent in AGENTS:
        before = first(agent, REPLICAS)
        assert before == gone or first(agent, rest) == before


def test_the_order_of_replicas_does_not_matter() -> None:
    assert all(first(agent, REPLICAS) == first(agent, REPLICAS[::-1]) for agent in AGENTS)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def division(own, others, clock):
    found = Division(own, clock, str)
    for other in others:
        found.up(other)
    return found


def agent_of(replica, replicas):
    return next(agent for agent in AGENTS if first(agent, replicas) == replica)


def test_alone_it_follows_all() -> None:
    alone = division("a", [], Clock())
    assert all(alone.follows(agent, is_followed=False) for agent in AGENTS)


def test_each_agent_has_one_follower_where_all_see_all() -> None:
    clock = Clock()
    views = [division(own, set(REPLICAS) - {own}, clock) for own in REPLICAS]
    for agent in AGENTS[:200]:
        assert sum(view.follows(agent, is_followed=False) for view in views) == 1


def test_what_nobody_delivers_is_followed_after_a_while() -> None:
    clock = Clock()
    view, agent = division("a", ["b"], clock), agent_of("b", ["a", "b"])
    assert not view.follows(agent, is_followed=False)
    clock.now_s += PATIENCE_S - 0.1
    assert not view.follows(agent, is_followed=False)
    clock.now_s += 0.1
    assert view.follows(agent, is_followed=False)
    # It is handed over once it is delivered, not before.
    assert view.follows(agent, is_followed=True)
    view.delivers("b", agent)
    assert not view.follows(agent, is_followed=True)
    # And the wait begins again.
    view.leaves("b", agent)
    assert not view.follows(agent, is_followed=False)


def test_a_replica_that_goes_down_is_taken_over_from_at_once() -> None:
    clock = Clock()
    view, agent = division("a", ["b"], clock), agent_of("b", ["a", "b"])
    view.delivers("b", agent)
    assert not view.follows(agent, is_followed=False)
    view.down("b")
    assert view.follows(agent, is_followed=False)
    view.up("b")
    assert view.follows(agent, is_followed=True)
    view.delivers("b", agent)
    assert not view.follows(agent, is_followed=True)


def test_replicas_that_see_each_other_in_part_leave_no_gap() -> None:
    clock = Clock()
    # c is first, and a does not see it; b does, and so delivers nothing to a.
    agent = next(each for each in AGENTS if first(each, "abc") == "c" and first(each, "ab") == "b")
    view = division("a", ["b"], clock)
    assert not view.follows(agent, is_followed=False)
    clock.now_s += PATIENCE_S
    assert view.follows(agent, is_followed=False)


def test_of_two_that_took_over_one_gives_way() -> None:
    for one, other in combinations("ab", 2):
        agent = next(
            each for each in AGENTS if first(each, "abc") == "c" and first(each, "ab") == other
        )
        lower, upper = division(one, [other, "c"], Clock()), division(other, [one, "c"], Clock())
        lower.delivers(other, agent)
        upper.delivers(one, agent)
        assert not lower.follows(agent, is_followed=True)
        assert upper.follows(agent, is_followed=True)


def test_all_that_a_replica_delivers_replaces_what_it_delivered() -> None:
    view, agent = division("a", ["b"], Clock()), agent_of("b", ["a", "b"])
    view.delivers("b", agent)
    view.delivers_only("b", [])
    assert view.follows(agent, is_followed=True)


def snapshot(ms, **values):
    series = [[n, name, {"gpu": "0"}, value] for n, (name, value) in enumerate(values.items(), 1)]
    return _line(kind="snapshot", version=1, series=series, families={"a": ["gauge", "A."]}, ms=ms)


def _line(**message):
    return json.dumps(message).encode()


class Store:
    """A store with one agent's place."""

    def __init__(self) -> None:
        self.store = SeriesStore()
        self.target = static_agent("10.0.0.1:9400")
        labels = TargetSeries(self.store, dict(self.target.labels), honor_labels=False)
        self.series = StreamedTarget(self.store, labels)

    def samples(self, name):
        found = self.store.select((Matcher("__name__", MatchOp.EQUAL, name),))
        return [
            (dict(each.labels), list(zip(*each.read(0, 10**15), strict=True))) for each in found
        ]


def relayed_lines(reader):
    text = reader.taken()
    return [line.split(b" ", 2)[2] for line in text.splitlines() if b" line " in line]


def test_what_is_relayed_is_what_the_store_has() -> None:
    sender, receiver, clock = Store(), Store(), Clock()
    relay = Relay("me", clock)
    sender.series.observer = lambda found, t_ms: relay.note(
        sender.target, sender.series, found, t_ms
    )
    sender.series.connected()
    sender.series.feed(snapshot(1_000, a=1.5, b=2), 1_000)
    reader = relay.open()
    receiver.series.connected(is_relayed=True)
    steps = [
        _line(kind="change", ms=2_000, values={"1": 3.5}),
        _line(kind="change", ms=3_000, values={"1": "NaN", "2": "+Inf"}),
        _line(kind="change", ms=4_000, values={"1": 7}, new=[[3, "c", {"x": "y"}, 9]], gone=[2]),
        _line(kind="heartbeat", ms=5_000),
    ]
    for line in [None, *steps]:
        if line is not None:
            sender.series.feed(line, 10_000)
            clock.now_s += 1
            relay.flush()
        for each in relayed_lines(reader):
            receiver.series.feed(each, 10_000)
    for name in "abc":
        assert repr(receiver.samples(name)) == repr(sender.samples(name))
    assert sender.samples("c")


def test_a_late_reader_begins_with_all_values() -> None:
    sender, clock = Store(), Clock()
    relay = Relay("me", clock)
    sender.series.observer = lambda found, t_ms: relay.note(
        sender.target, sender.series, found, t_ms
    )
    sender.series.connected()
    sender.series.feed(snapshot(1_000, a=1, b=2), 1_000)
    sender.series.feed(_line(kind="change", ms=1_200, values={"2": 5}, gone=[1]), 1_200)
    lines = relayed_lines(relay.open())
    found = StreamReader(lambda name, labels: name).feed(lines[0])
    assert dict(zip(found.touched, found.values, strict=True)) == {"b": 5}


def test_an_origin_that_is_behind_changes_nothing_that_is_stored_and_nothing_is_lost() -> None:
    receiver = Store()
    receiver.series.connected()
    receiver.series.feed(snapshot(5_000, a=2), 5_000)
    receiver.series.connected(is_relayed=True)
    labels = {"job": "gpuscale-exporter", "instance": "10.0.0.1:9400", "gpu": "0"}
    old = _line(kind="snapshot", version=1, series=[[1, "a", labels, 1]], ms=4_000)
    assert receiver.series.feed(old, 6_000) == 0
    # Its value is still the one of its snapshot, so its line does not bring it again.
    receiver.series.feed(_line(kind="heartbeat", ms=6_000), 6_000)
    [(_, samples)] = receiver.samples("a")
    assert samples == [(5_000, 2.0), (6_000, 1.0)]
    assert not any(receiver.store.stats().refused.values())


def test_a_reader_that_takes_nothing_is_bounded() -> None:
    reader, part = Reader(), bytes(1 << 20)
    for _ in range(2 * MAX_UNSENT_BYTES // len(part)):
        reader.put(part)
    assert reader.is_ended
    assert not reader.taken()


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1:6443", "ftp://a:1", "https://a/b", "https://u@a", "https://"]
)
def test_what_is_no_address_of_a_replica_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected an address"):
        peer_url(text)


def test_the_address_of_a_replica() -> None:
    assert peer_url("https://gpuscale-0:6443/") == "https://gpuscale-0:6443"


def slice_of(*endpoints, port=6443, name="https", kind="IPv4"):
    ports = [{"name": "extra", "port": 1}, {"name": name, "port": port, "protocol": "TCP"}]
    return {"addressType": kind, "ports": ports, "endpoints": list(endpoints)}


def endpoint(address, pod="", **conditions):
    found = {"addresses": [address], "conditions": conditions}
    return {**found, "targetRef": {"kind": "Pod", "name": pod}} if pod else found


# The conditions that Kubernetes gives a pod that starts, is ready, loses its readiness, is being
# deleted while it serves, and no longer serves (pkg/controller/util/endpointslice, v1.34).
@pytest.mark.parametrize(
    ("conditions", "is_peer"),
    [
        ({"ready": False, "serving": False, "terminating": False}, True),
        ({"ready": True, "serving": True, "terminating": False}, True),
        ({}, True),
        ({"ready": False, "serving": True, "terminating": True}, True),
        ({"ready": False, "serving": False, "terminating": True}, False),
        ({"ready": False, "terminating": True}, False),
    ],
)
def test_replicas_are_all_pods_that_may_serve(conditions, is_peer: bool) -> None:
    found = slice_peers(slice_of(endpoint("10.0.0.1", "a", **conditions)))
    assert found == ((("a", "https://10.0.0.1:6443"),) if is_peer else ())


def test_the_port_of_replicas_is_https_or_else_the_first() -> None:
    one = endpoint("10.0.0.1")
    assert slice_peers(slice_of(one, port=8443)) == (("", "https://10.0.0.1:8443"),)
    assert slice_peers(slice_of(one, name="other")) == (("", "https://10.0.0.1:1"),)
    assert slice_peers({**slice_of(one), "ports": []}) == ()


def test_a_replica_with_addresses_of_two_families_is_one() -> None:
    slices = [
        slice_peers(slice_of(endpoint("fd00::1", "a"), endpoint("fd00::2", "b"), kind="IPv6")),
        slice_peers(slice_of(endpoint("10.0.0.1", "a"), endpoint("10.0.0.9"))),
    ]
    expected = ("https://10.0.0.1:6443", "https://10.0.0.9:6443", "https://[fd00::2]:6443")
    assert peer_urls(slices) == peer_urls(slices[::-1]) == expected


@pytest.mark.parametrize(
    "body", [{}, {"ports": 1, "endpoints": 2}, slice_of({"addresses": []}, 3), slice_of(kind="x")]
)
def test_slices_that_can_not_be_read_name_no_replica(body) -> None:
    assert slice_peers(body) == ()


async def test_no_more_replicas_are_followed_than_the_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c"}}
    config.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"})
    )
    settings = KubeSettings(kubeconfig=config)
    async with KubeClient(settings) as kube:
        service = peer_service("team/metrics")
        watch = PeerWatch(service, kube, settings, WallClock(), lambda: None)
        assert watch.urls() == ()
        # A slice has a thousand endpoints at most.
        hosts = [f"10.0.{n // 256}.{n % 256}" for n in range(1_000)]
        for number in (MAX_PEERS, 1_000):
            watch.reflector.items["team/a"] = slice_peers(slice_of(*map(endpoint, hosts[:number])))
            assert len(watch.urls()) == MAX_PEERS
            assert len(caplog.records) == (number > MAX_PEERS)
        assert "found 1000 replicas, agents are shared with 64" in caplog.text


class Link:
    """What a list of links asks of a link, with what came of it."""

    def __init__(self, url) -> None:
        self.url, self.ran, self.closed = url, 0, 0

    async def run(self) -> None:
        self.ran += 1
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed += 1


async def test_links_come_and_go_with_the_list() -> None:
    links = PeerLinks(Link)
    links.change(["a", "b", "b"])
    a, b = links.all
    assert (a.url, b.url, a.ran) == ("a", "b", 0)
    async with asyncio.TaskGroup() as group:
        links.run(group)
        links.change(["b", "c"])
        await asyncio.sleep(0)
        assert [(each.url, each.ran, each.closed) for each in links.all] == [
            ("b", 1, 0),
            ("c", 1, 0),
        ]
        assert (a.ran, a.closed) == (0, 1)
        links.change([])
        await asyncio.sleep(0)
        assert (links.all, b.closed) == ((), 1)


@pytest.mark.parametrize("text", ["", "metrics", "/metrics", "team/", "team/a/b", "Team/a", "t/a."])
def test_a_service_of_replicas_has_a_namespace_and_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAMESPACE/NAME of a Service"):
        peer_service(text)


def test_the_certificate_of_replicas_is_that_of_their_service() -> None:
    flags = {"source": ["streams"]}
    given = {**flags, "peers-service": ["team/metrics"]}
    found = read_settings(given).feeds.peers
    assert (found.service.namespace, found.service.name) == ("team", "metrics")
    assert found.server_name == "metrics.team.svc"
    named = read_settings({**given, "peers-server-name": ["other"]}).feeds.peers
    assert named.server_name == "other"
    with pytest.raises(UsageError, match="--peers-service: found 'metrics', expected NAMESPACE/"):
        read_settings({**flags, "peers-service": ["metrics"]})
    with pytest.raises(UsageError, match="--peers and --peers-service: found both, expected one"):
        read_settings({**given, "peers": ["https://a:1"]})
    many = ",".join(f"https://a:{port}" for port in range(1, 66))
    with pytest.raises(UsageError, match="--peers: found 65 addresses, expected at most 64"):
        read_settings({**flags, "peers": [many]})
