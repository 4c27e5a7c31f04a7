"""What Karpenter 1.15.0 did in cases made by hand, and what the twin does in them.

Sources: the real program with its KWOK provider on a control plane (marked "program"; nodes registered 10 s
after their launch, `consolidateAfter` 10 s, budgets 100 %), its packages in process ("packages"), its code.
Types: s has 1 GPU and 4 CPUs at 0.5 an hour, m 4 GPUs and 16 CPUs at 1.8, l 8 GPUs and 96 CPUs at 7.0. Pods
ask for 1 GPU and 1 CPU unless said otherwise. Where `karpenter-judge` is built, it is asked as well.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import (
    Container,
    Pod,
    PodAffinityTerm,
    PodPhase,
    PodSpec,
    PodStatus,
    SpreadConstraint,
)
from gpuscale.base.objects.selectors import Operator, Requirement, selector_of_labels
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    Disruption,
    DisruptionBudget,
    InstanceType,
    LaunchFailure,
    LookAgain,
    NodePool,
    NodeRequest,
    Offering,
    PoolNode,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.nodes.karpenter.disrupting import site_of
from gpuscale.hpa.cluster.nodes.karpenter.policy import Karpenter
from gpuscale.hpa.cluster.scheduling import misfits, node_state
from gpuscale_testing import missing
from karpenter_judge import NOW_MS, decided, judged, running

GPU = "nvidia.com/gpu"
SECOND = 1000


def kind(name, gpus, cpus, price, spot=None) -> InstanceType:
    whole = {"cpu": cpus, "memory": "64Gi", "pods": 110, GPU: gpus}
    capacity = {key: parse_quantity(value) for key, value in whole.items()}
    kept = {"cpu": parse_quantity("100m").nano, "memory": parse_quantity("10Mi").nano}
    allocatable = {
        key: Quantity(amount.nano - kept.get(key, 0), amount.format)
        for key, amount in capacity.items()
    }
    offerings = [Offering("a", "on-demand", price)]
    if spot:
        offerings.append(Offering("a", "spot", spot))
    return InstanceType(name, allocatable, capacity, {}, tuple(offerings))


S, M, L = kind("s", 1, 4, 0.5), kind("m", 4, 16, 1.8), kind("l", 8, 96, 7.0)
ANY = (DisruptionBudget("100%"),)


ON_DEMAND = Requirement("karpenter.sh/capacity-type", Operator.IN, ("on-demand",))


def pool(
    name="p",
    types=(S, M, L),
    *,
    after_ms=10_000,
    budgets=ANY,
    policy="",
    capacity=ON_DEMAND,
    **fields,
):
    disruption = Disruption(policy or "WhenEmptyOrUnderutilized", after_ms, budgets, None)
    needs = (capacity,) if capacity else ()
    return NodePool(name, 0, 1000, types, requirements=needs, disruption=disruption, **fields)


def pods(count, gpus=1, cpus="1", prefix="pod", created_ms=NOW_MS - 1000, **meta):
    requests = {
        "cpu": parse_quantity(cpus),
        "memory": parse_quantity("1Gi"),
        **({GPU: parse_quantity(gpus)} if gpus else {}),
    }
    spec = PodSpec((Container("c", requests=requests),))
    return [
        Pod(ObjectMeta(f"{prefix}-{place:02}", creation_ms=created_ms, **meta), spec)
        for place in range(count)
    ]


def there(of, name, of_type, taken=(), *, ready=True, age_s=400, quiet_s=300, **fields):
    node = of.node(name, 0, of_type, of_type.offerings[0])
    state = node_state(node, [each.spec for each in taken])
    quiet_ms = NOW_MS - quiet_s * SECOND
    return PoolNode(
        of.name,
        state,
        ready,
        not taken,
        of_type.name,
        of_type.offerings[0],
        NOW_MS - age_s * SECOND,
        quiet_ms,
        quiet_ms if ready else None,
        quiet_ms,
        **fields,
    )


def facts(pools, waiting=(), nodes=(), budgets=()):
    """Return a request; nodes are given with their pods."""
    here = {node.state.name: running(taken, node.state.name) for node, taken in nodes if taken}
    return NodeRequest(
        tuple(pools),
        tuple(node for node, _ in nodes),
        tuple(waiting),
        NOW_MS,
        AutoscalerSettings(),
        here,
        tuple(budgets),
    )


def asked(request):
    """Return what the twin does, and see that the judge does the same, where it is built."""
    ours = decided(request)
    if not missing(["karpenter-judge"]):
        (theirs,) = judged([request])
        for key in ("claims", "placed", "errors", "commands"):
            assert ours[key] == theirs[key], key
    return ours


def bought(answer):
    return Counter(claim["types"][0] for claim in answer["claims"])


# 16: new nodes for n pods (program: 1, 3, 12; packages: the rest)
@pytest.mark.parametrize(
    ("count", "nodes"),
    [
        (1, "s"),
        (3, "m"),
        (4, "m"),
        (5, "l"),
        (8, "l"),
        (9, "ls"),
        (12, "lm"),
        (13, "ll"),
        (16, "ll"),
        (20, "llm"),
    ],
)
def test_pods_share_a_node_for_as_long_as_any_type_holds_them(count, nodes) -> None:
    assert bought(asked(facts([pool()], pods(count)))) == Counter(nodes)


def test_spot_is_taken_where_it_is_allowed() -> None:
    # 16, program
    types = (kind("s", 1, 4, 0.5, 0.2), kind("m", 4, 16, 1.8, 0.7), kind("l", 8, 96, 7.0, 3.0))
    assert bought(asked(facts([pool(types=types, capacity=None)], pods(1)))) == Counter("s")
    cluster = Cluster([pool(types=types, capacity=None)], pods(1))
    cluster.run(20)
    ((_, action),) = cluster.grown
    assert [each.capacity_type for each in action.offerings] == ["spot", "spot", "spot"]


@pytest.mark.parametrize(
    ("limit", "count", "nodes", "left_out"),
    [(4, 6, "m", 2), (3, 3, "sss", 0), (5, 8, "ms", 3)],
)
def test_limits_drop_types_and_are_charged_with_the_largest(limit, count, nodes, left_out) -> None:
    # 17: the program with 4, the packages with the rest
    answer = asked(facts([pool(limits={GPU: parse_quantity(limit)})], pods(count)))
    assert bought(answer) == Counter(nodes)
    assert len(answer["errors"]) == left_out


def test_what_is_there_counts_towards_a_limit() -> None:
    # 17, packages
    of = pool(limits={GPU: parse_quantity(8)})
    answer = asked(facts([of], pods(8), [(there(of, "node-0", M), ())]))
    assert bought(answer) == Counter("m")


def test_the_heaviest_pool_is_filled_first() -> None:
    # 17, program
    heavy = pool("heavy", (L,), weight=50, limits={GPU: parse_quantity(8)})
    answer = asked(facts([pool("light", (S, M), weight=10), heavy], pods(9)))
    assert bought(answer) == Counter("ls")


def test_the_order_is_blind_to_gpus() -> None:
    # 18: GPUs first would need two nodes
    waiting = [*pods(2, 5, "2", "large"), *pods(4, 1, "10", "small")]
    assert bought(asked(facts([pool(types=(L,))], waiting))) == Counter("lll")


def test_a_node_without_its_gpus_counts_with_them() -> None:
    # 23: six pods wait, four of them count on an m that is not initialized
    of = pool()
    answer = asked(facts([of], pods(6), [(there(of, "node-0", M, ready=False), ())]))
    assert len(answer["placed"]["node-0"]) == 4
    assert [claim["pods"] for claim in answer["claims"]] == [2]


def test_why_pods_get_no_node() -> None:
    # 24
    tainted = pool(taints=(Taint(GPU, "true"),))
    assert asked(facts([tainted], pods(1)))["errors"] == {
        "pod-00": "did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)"
    }
    (waiting,) = pods(1)
    (container,) = waiting.spec.containers
    slice_ = replace(container, requests={"nvidia.com/mig-1g.5gb": parse_quantity(1)})
    unknown = replace(waiting, spec=replace(waiting.spec, containers=(slice_,)))
    (why,) = asked(facts([pool()], [unknown]))["errors"].values()
    assert why.startswith("no instance type has enough resources, ")


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APP = selector_of_labels({"app": "a"})


def with_rules(waiting, spread=(), affinity=()):
    return [replace(p, spec=replace(p.spec, spread=spread, affinity=affinity)) for p in waiting]


# scheduling/topology_test.go (1.15.0): of 2 zones each gets half, a node takes as many as the skew allows
@pytest.mark.parametrize(
    ("rule", "count", "pods_of_nodes"),
    [
        (SpreadConstraint(1, ZONE, required=True, selector=APP), 4, [2, 2]),
        (SpreadConstraint(1, HOST, required=True, selector=APP), 3, [1, 1, 1]),
        (SpreadConstraint(2, HOST, required=True, selector=APP), 5, [1, 2, 2]),
        (SpreadConstraint(1, ZONE, required=True, selector=None), 4, [4]),
    ],
)
def test_pods_are_spread_over_new_nodes(rule, count, pods_of_nodes) -> None:
    types = tuple(
        replace(each, offerings=(*each.offerings, Offering("b", "on-demand", price)))
        for each, price in ((S, 0.5), (M, 1.8), (L, 7.0))
    )
    waiting = with_rules(pods(count, labels={"app": "a"}), (rule,))
    answer = asked(facts([pool(types=types)], waiting))
    assert sorted(claim["pods"] for claim in answer["claims"]) == pods_of_nodes


def test_pods_that_want_to_be_near_others_wait_for_them_in_the_queue() -> None:
    # queue.go: the ones with more CPUs come first, fail, and are tried again after those they look for
    near = PodAffinityTerm(HOST, APP, is_anti=False)
    followers = with_rules(pods(2, cpus="2", prefix="b"), (), (near,))
    answer = asked(facts([pool()], [*followers, *pods(1, labels={"app": "a"})]))
    assert [claim["pods"] for claim in answer["claims"]] == [3]


def test_pods_keep_others_away_that_have_no_rule_themselves() -> None:
    # topology.go, inverseTopologyGroups: one runs already, and one waits
    apart = PodAffinityTerm(HOST, APP, is_anti=True)
    of = pool()
    (lonely,) = with_rules(pods(1, prefix="lonely"), (), (apart,))
    answer = asked(
        facts([of], pods(2, labels={"app": "a"}), [(there(of, "node-0", M, [lonely]), [lonely])])
    )
    assert (answer["placed"], [claim["pods"] for claim in answer["claims"]]) == ({}, [2])


def test_why_no_domain_is_left() -> None:
    near = PodAffinityTerm(ZONE, APP, is_anti=False)
    (waiting,) = with_rules(pods(1), (), (near,))
    assert asked(facts([pool()], [waiting]))["errors"] == {
        "pod-00": "unsatisfiable topology constraint for pod affinity, key=topology.kubernetes.io/zone "
        "(counts = a: 0, podDomains = topology.kubernetes.io/zone Exists, "
        "nodeDomains = topology.kubernetes.io/zone Exists"
    }


def test_new_nodes_have_room_for_daemonsets() -> None:
    # scheduler.go, buildDaemonOverheadGroups: s has 3.9 CPUs, and 3 + 1 are asked of it
    (daemon,) = pods(1, gpus=0, cpus="3", prefix="daemon")
    request = facts([pool(types=(S, M))], pods(1))
    assert bought(asked(request)) == Counter("s")
    assert bought(asked(replace(request, daemons=(daemon,)))) == Counter("m")


def test_nodes_that_are_there_keep_room_for_daemonsets_until_they_run() -> None:
    # existingnode.go: of 3.9 CPUs the DaemonSet's pod takes 3, or has taken them
    of = pool(types=(S,))
    (daemon,) = pods(1, gpus=0, cpus="3", prefix="daemon")
    runs = replace(
        daemon, metadata=replace(daemon.metadata, owner=OwnerReference("DaemonSet", "o"))
    )
    for taken in ((), (runs,)):
        request = facts([of], pods(1, cpus="800m"), [(there(of, "node-0", S, taken), list(taken))])
        answer = asked(replace(request, daemons=(daemon,)))
        assert answer["placed"] == {"node-0": ["pod-00"]}
        request = facts([of], pods(1, cpus="1"), [(there(of, "node-0", S, taken), list(taken))])
        assert not asked(replace(request, daemons=(daemon,)))["placed"]


# 25, packages: of n nodes s with a pod each, how many are merged into one m
@pytest.mark.parametrize(
    ("count", "merged"), [(2, 0), (3, 0), (4, 0), (5, 0), (6, 4), (7, 4), (8, 0), (12, 4)]
)
def test_the_search_is_over_prefixes(count, merged) -> None:
    of = pool()
    nodes = [
        (there(of, f"node-{place:02}", S, [pod]), [pod]) for place, pod in enumerate(pods(count))
    ]
    commands = decided(facts([of], (), nodes))["commands"]
    assert [len(each["nodes"]) for each in commands] == ([merged] if merged else [])
    for command in commands:
        assert [claim["types"] for claim in command["replacements"]] == [["m"]]


# 10: 20 % of 19 is 3.8, 10 % of 3 is 0.3, both rounded up; the smallest of several budgets holds
@pytest.mark.parametrize(
    ("count", "leaving", "budgets", "allowed"),
    [(19, 0, ("20%",), 4), (3, 0, ("10%",), 1), (3, 1, ("10%",), 0), (10, 0, ("1", "50%"), 1)],
)
def test_budgets(count, leaving, budgets, allowed) -> None:
    of = pool(budgets=tuple(map(DisruptionBudget, budgets)))
    nodes = [(there(of, f"node-{n}", S, leaving=n < leaving), ()) for n in range(count)]
    assert site_of(facts([of], (), nodes)).allowed("Empty") == {"p": allowed}


def two_large(first=(), second=(), **fields):
    """Return two nodes l with 2 and 5 pods."""
    of = pool(types=(L,), **fields)
    few, many = pods(2, prefix="few", **dict(first)), pods(5, prefix="many", **dict(second))
    return of, [(there(of, "node-2", L, few), few), (there(of, "node-5", L, many), many)]


def disrupted(answer):
    return [name for command in answer["commands"] for name in command["nodes"]]


# 21, program
def test_the_emptier_of_two_nodes_goes() -> None:
    of, nodes = two_large()
    assert disrupted(asked(facts([of], (), nodes))) == ["node-2"]


def test_a_pool_that_removes_empty_nodes_only_keeps_both() -> None:
    of, nodes = two_large(policy="WhenEmpty")
    answer = asked(facts([of], (), nodes))
    assert not answer["commands"]
    assert answer["why_not"]["node-2"] == (
        'NodePool "p" has consolidation policy WhenEmpty, but node is not empty'
    )


def test_a_budget_that_allows_nothing_saves_a_node() -> None:
    of, nodes = two_large(first={"labels": {"app": "few"}})
    budget = PodDisruptionBudget(ObjectMeta("few"), selector_of_labels({"app": "few"}), None, 0)
    assert disrupted(asked(facts([of], (), nodes, [budget]))) == ["node-5"]


def test_protected_pods_save_their_nodes() -> None:
    stay = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    of, nodes = two_large(first=stay, second=stay)
    answer = asked(facts([of], (), nodes))
    assert not answer["commands"]
    assert answer["why_not"]["node-2"] == (
        'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/few-00)'
    )


@dataclass
class Cluster:
    """A caller of the policy: pods are bound when a node is ready, nodes come after a delay."""

    pools: list[NodePool]
    waiting: list[Pod]
    nodes: dict[str, PoolNode] = field(default_factory=dict)
    bound: dict[str, list[Pod]] = field(default_factory=dict)
    arrivals: list[tuple[float, Pod]] = field(default_factory=list)
    departures: list[tuple[float, str]] = field(default_factory=list)
    """When a pod goes, and its name."""
    join_s: float = 10
    gpus_s: float = 0
    policy: Karpenter = field(default_factory=Karpenter)
    grown: list[tuple[float, ScaleUp]] = field(default_factory=list)
    shrunk: list[tuple[float, ScaleDown]] = field(default_factory=list)
    initialized: list[tuple[float, str]] = field(default_factory=list)

    def add(self, node, taken):
        self.nodes[node.state.name] = node
        self.bound[node.state.name] = running(taken, node.state.name)

    def run(self, until_s: float) -> None:
        """Let time pass from 0; each second, and whenever something happens, the policy may look."""
        times = {round(each * SECOND) for each, *_ in (*self.arrivals, *self.departures)}
        times.update(range(0, round(until_s * SECOND) + 1, 10 * SECOND))
        while times:
            time = min(times)
            times.discard(time)
            if time > until_s * SECOND:
                return
            now_ms = NOW_MS + time
            self._happen(time, now_ms)
            for action in self.policy.scan(self._request(now_ms)):
                match action:
                    case LookAgain(at_ms):
                        assert at_ms > now_ms
                        times.add(at_ms - NOW_MS)
                    case ScaleUp():
                        self.grown.append((time / SECOND, action))
                        name = f"new-{len(self.grown)}"
                        of = next(each for each in self.pools if each.name == action.pool)
                        kinds = {each.name: each for each in of.instance_types}
                        chosen = kinds[action.instance_types[0]]
                        sold = next(each for each in chosen.offerings if each in action.offerings)
                        state = node_state(of.node(name, now_ms, chosen, sold), ())
                        self.nodes[name] = PoolNode(
                            of.name, state, False, False, chosen.name, sold, now_ms
                        )
                        times.update(
                            round(time + each * SECOND)
                            for each in (self.join_s, self.join_s + self.gpus_s)
                        )
                    case ScaleDown(node=name):
                        self.shrunk.append((time / SECOND, action))
                        del self.nodes[name]
                        evicted = self.bound.pop(name, [])
                        self.waiting += [self._pending(pod, now_ms) for pod in evicted]

    def _pending(self, pod, now_ms):
        meta = replace(pod.metadata, name=f"{pod.metadata.name}-again", creation_ms=now_ms)
        return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus())

    def _happen(self, time: int, now_ms: int) -> None:
        for name, node in self.nodes.items():
            joined_ms = round(node.ordered_ms + self.join_s * SECOND)
            if node.joined_ms is None and now_ms >= joined_ms:
                node = self.nodes[name] = replace(node, joined_ms=now_ms)
            if not node.ready and now_ms >= joined_ms + self.gpus_s * SECOND:
                self.nodes[name] = replace(node, ready=True, ready_ms=now_ms, empty=True)
                self.initialized.append((time / SECOND, name))
        self.waiting += [pod for at_s, pod in self.arrivals if round(at_s * SECOND) == time]
        for at_s, gone in self.departures:
            if round(at_s * SECOND) == time:
                for name, here in self.bound.items():
                    staying = [pod for pod in here if pod.metadata.name != gone]
                    if len(staying) < len(here):
                        self._put(name, staying, now_ms)
        for pod in list(self.waiting):
            for name, node in self.nodes.items():
                if node.ready and not misfits(pod.spec, node.state):
                    self._put(name, [*self.bound.get(name, []), *running([pod], name)], now_ms)
                    self.waiting.remove(pod)
                    break

    def _put(self, name, here, now_ms) -> None:
        self.bound[name] = here
        node = self.nodes[name]
        state = node_state(node.state.node, [pod.spec for pod in here])
        self.nodes[name] = replace(node, state=state, changed_ms=now_ms, empty=not here)

    def _request(self, now_ms: int) -> NodeRequest:
        return NodeRequest(
            tuple(self.pools),
            tuple(self.nodes.values()),
            tuple(self.waiting),
            now_ms,
            AutoscalerSettings(),
            {name: here for name, here in self.bound.items() if here},
        )


# 8: a batch closes 1 s after its last pod, or 10 s after its first
@pytest.mark.parametrize(
    ("arrivals", "solved"),
    [((0, 0.5, 1.2), 2.2), (tuple(0.9 * n for n in range(12)), 10), ((0, 0.5, 0.9), 1.9)],
)
def test_a_batch_closes(arrivals, solved) -> None:
    all_pods = pods(len(arrivals))
    cluster = Cluster([pool()], [], arrivals=list(zip(arrivals, all_pods, strict=True)), join_s=60)
    cluster.run(15)
    assert cluster.grown[0][0] == pytest.approx(solved)
    # 19: those that come before that share one solve
    assert len(cluster.grown[0][1].pods) == min(8, sum(each <= solved for each in arrivals))


def test_pods_that_come_meanwhile_count_on_the_node_that_is_on_its_way() -> None:
    # 19: an m for three pods holds the fourth
    first = pods(3)
    cluster = Cluster(
        [pool()], first, arrivals=[(5, each) for each in pods(1, prefix="later")], join_s=30
    )
    cluster.run(60)
    assert len(cluster.grown) == 1


def lone(of, of_type, taken, **fields):
    cluster = Cluster([of], [], **fields)
    cluster.add(there(of, "old", of_type, taken, quiet_s=3), taken)
    return cluster


def test_an_empty_node_goes_after_the_poll_and_the_validation() -> None:
    # 9: the last pod leaves at T: command in [T + 30, T + 40], carried out 15 s later
    (last,) = pods(1)
    cluster = lone(pool(after_ms=30_000), M, [last], departures=[(4, last.metadata.name)])
    cluster.run(100)
    ((removed_s, action),) = cluster.shrunk
    assert 4 + 30 + 15 <= removed_s <= 4 + 40 + 15
    assert action.taint == Taint("karpenter.sh/disrupted")
    assert action.reason == "Disrupting Node: Empty"


def test_never_keeps_an_empty_node() -> None:
    # 9
    cluster = lone(pool(after_ms=None), M, [])
    cluster.run(200)
    assert not cluster.shrunk


def test_a_node_that_is_too_large_is_replaced_before_it_goes() -> None:
    # 20: three pods on m become one. There: tainted after 26.7 s (10, poll up to 10, validation 15), and
    # replaced by s, which was initialized 11 s later.
    three = pods(3)
    departures = [(2, each.metadata.name) for each in three[1:]]
    cluster = lone(pool(), M, three, departures=departures)
    cluster.run(120)
    ((ordered_s, action),) = cluster.grown
    assert 2 + 25 <= ordered_s <= 2 + 35
    assert action.instance_types[0] == "s"
    assert action.replaces == ("old",)
    ((ready_s, _),) = cluster.initialized
    assert ready_s == ordered_s + 10
    ((removed_s, removal),) = cluster.shrunk
    assert removed_s == ready_s
    assert removal.node == "old"


def test_a_budget_of_one_lets_one_node_go_at_a_time() -> None:
    # 22: one each 25 s, a poll of 10 s and a validation of 15 s
    of = pool(budgets=(DisruptionBudget("1"),))
    cluster = Cluster([of], [])
    for place in range(3):
        cluster.add(there(of, f"old-{place}", M, quiet_s=60), [])
    cluster.run(120)
    times = [time for time, _ in cluster.shrunk]
    assert len(times) == 3
    assert all(later - sooner <= 26 for sooner, later in pairwise(times))


def test_a_budget_of_zero_keeps_all_nodes() -> None:
    # 22
    cluster = lone(pool(budgets=(DisruptionBudget("0"),)), M, [])
    cluster.run(100)
    assert not cluster.shrunk


def test_gpus_that_come_late_bring_no_second_node() -> None:
    # 23: allocatable 30 s after Ready
    cluster = Cluster([pool()], pods(1), gpus_s=30)
    cluster.run(60)
    assert len(cluster.grown) == 1
    assert [time for time, _ in cluster.initialized] == [1 + 10 + 30]


def test_a_node_that_never_joins_is_given_up() -> None:
    # 13: not registered at 15 m, so the claim is deleted and its pods are solved again
    cluster = Cluster([pool()], pods(1), join_s=100_000)
    cluster.run(930)
    assert [time for time, _ in cluster.shrunk] == [pytest.approx(901)]
    assert len(cluster.grown) == 2


def test_a_node_that_joined_without_gpus_is_never_removed() -> None:
    # 13
    cluster = Cluster([pool()], pods(1), gpus_s=100_000)
    cluster.run(3000)
    assert not cluster.shrunk
    assert len(cluster.grown) == 1


def test_an_expired_node_goes_whatever_its_budget_says() -> None:
    # pkg/controllers/nodeclaim/expiration: forceful, and not bound to budgets
    of = pool(budgets=(DisruptionBudget("0"),))
    of = replace(of, disruption=replace(of.disruption, expire_after_ms=450 * SECOND))
    cluster = lone(of, M, pods(2))
    cluster.run(100)
    ((removed_s, action),) = cluster.shrunk
    assert (removed_s, action.reason) == (50, "Disrupting Node: Expired")
    assert len(cluster.grown) == 1


def test_a_stockout_sends_the_pods_to_another_type() -> None:
    # karpenter-provider-aws remembers an offering that could not be had for 3 minutes
    policy, waiting = Karpenter(), pods(1)
    request = facts([pool()], waiting)
    policy.scan(request)
    first = policy.scan(replace(request, now_ms=NOW_MS + SECOND))[0]
    assert isinstance(first, ScaleUp)
    assert first.instance_types == ("s", "m", "l")
    failure = LaunchFailure(
        "p", "s", S.offerings[0], NOW_MS + SECOND, "InsufficientInstanceCapacity"
    )
    later = replace(request, now_ms=NOW_MS + 10 * SECOND, failures=(failure,))
    policy.scan(later)
    again = [
        action
        for at_s in (11, 12, 13)
        for action in policy.scan(replace(request, now_ms=NOW_MS + at_s * SECOND))
        if isinstance(action, ScaleUp)
    ]
    assert [action.instance_types for action in again] == [("m", "l")]


def test_finished_and_daemon_pods_keep_no_node() -> None:
    # pkg/utils/pod: IsReschedulable
    of = pool()
    done = replace(pods(1)[0], status=PodStatus(PodPhase.SUCCEEDED))
    request = facts([of], (), [(there(of, "node-0", M), ())])
    request = replace(request, pods={"node-0": [done]})
    assert disrupted(decided(request)) == ["node-0"]
