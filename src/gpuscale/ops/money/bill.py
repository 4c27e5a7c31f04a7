"""The arithmetic of a bill: a node's hours go to the pods that asked for its GPUs, the rest to nobody."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from re import search

from gpuscale.ops.money.prices import HourPrice, NodeFacts, PriceBook, node_facts
from gpuscale.ops.money.questions import HOUR_S, hours
from gpuscale.ops.money.sizes import Peak

NOBODY = "(asked for by nobody)"
PARTS = ("namespace", "workload", "label", "pool", "gpu")
"""By what lines can be added up: the parts of `Keys`."""
_WHOLE = ("nvidia_com_gpu", "amd_com_gpu", "aliyun_com_gpu")
_SLICES = 7
"""Compute slices of a GPU under MIG."""

Rows = Sequence[tuple[Mapping[str, str], float]]
"""Labels and value of each row of an answer."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Whose hours these are; each part is empty where it is not known."""

    namespace: str = ""
    workload: str = ""
    """`Kind/name`."""
    label: str = ""
    """Value of the pods' label that was asked for."""
    pool: str = ""
    gpu: str = ""
    """Model of the GPUs."""


@dataclass(slots=True)
class Line:
    """GPU-hours, and what they cost."""

    asked: float = 0.0
    """GPU-hours that pods held; of nobody's line, those that were bought and not asked for."""
    used: float = 0.0
    starting: float = 0.0
    """Of `asked`, before the pod was ready."""
    money: float = 0.0
    """Of what has a price."""
    priced: float = 0.0
    """GPU-hours that have a price."""

    @property
    def idle(self) -> float:
        """Return the GPU-hours that were neither used nor needed for a start."""
        return max(0.0, self.asked - self.used - self.starting)

    @property
    def idle_money(self) -> float:
        """Return what those cost, where all has a price alike."""
        return self.money * self.idle / self.asked if self.asked else 0.0

    def add(self, other: "Line") -> None:
        self.asked += other.asked
        self.used += other.used
        self.starting += other.starting
        self.money += other.money
        self.priced += other.priced


@dataclass(slots=True)
class Bill:
    """Lines of a range, by whose they are."""

    start_s: int
    end_s: int
    lines: dict[Keys, Line] = field(default_factory=lambda: defaultdict(Line))
    bought: float = 0.0
    """GPU-hours of all nodes."""
    nodes_money: float = 0.0
    """What these cost, as far as prices are known."""
    currency: str = ""
    prices: set[str] = field(default_factory=set)
    """Whose prices were taken."""
    unpriced: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """GPU-hours without a price, by the reason."""
    unseen: set[str] = field(default_factory=set)
    """What no series says, and what it would be for."""
    peaks: dict[tuple[str, str, str], Peak] = field(default_factory=lambda: defaultdict(Peak))
    """The most that pods with whole GPUs used, by namespace, workload and GPU model."""

    def grouped(self, *by: str) -> dict[tuple[str, ...], Line]:
        """Return the lines added up by some parts of their keys, the dearest first."""
        found: dict[tuple[str, ...], Line] = defaultdict(Line)
        for keys, line in self.lines.items():
            found[tuple(getattr(keys, each) for each in by)].add(line)
        return dict(sorted(found.items(), key=lambda item: (-item[1].money, -item[1].asked)))

    def add(self, answers: Mapping[str, Rows], book: PriceBook, pod_label: str | None) -> None:
        """Add a span's hours.

        Args:
            answers: by the names of `BillQueries.all`, and of `peaks` where they were asked.
            book: prices.
            pod_label: the label that was asked for.
        """
        nodes = nodes_of(answers)
        if not answers["nodes"]:
            self.unseen.add(
                "nodes: no kube_node_status_allocatable of GPUs; kube-state-metrics has it"
            )
        workloads = _workloads(answers)
        labels = {
            _pod(row): row.get(f"label_{pod_label}", "") for row, _ in answers.get("podLabels", ())
        }
        used = _used(answers)
        starting = _by_pod_and_node(answers["starting"])
        asked = _by_pod_and_node(answers["asked"])
        total: dict[tuple[str, str], float] = defaultdict(float)
        for (pod, _), share in asked.items():
            total[pod] += share
        free = {name: node.share_hours for name, node in nodes.items()}
        for (pod, name), share in asked.items():
            node = nodes.get(name)
            if node is None or node.share_hours <= 0:
                continue
            free[name] -= share
            gpus = share * node.gpus_a_share
            part = share / total[pod]
            line = Line(asked=gpus, used=min(used.get(pod, 0.0) * part, gpus))
            line.starting = min(
                starting.get((pod, name), 0.0) * node.gpus_a_share, gpus - line.used
            )
            keys = Keys(
                pod[0],
                workloads.get(pod, f"Pod/{pod[1]}"),
                labels.get(pod, ""),
                node.facts.pool,
                node.facts.model,
            )
            self._price(keys, line, node, share, book)
        self._add_peaks(answers, workloads, nodes)
        for name, node in nodes.items():
            left = max(0.0, free[name])
            line = Line(asked=left * node.gpus_a_share)
            keys = Keys(NOBODY, NOBODY, NOBODY, node.facts.pool, node.facts.model)
            self._price(keys, line, node, left, book)
            self.bought += node.share_hours * node.gpus_a_share
            price = self._price_of(node, book)
            if isinstance(price, HourPrice):
                self.nodes_money += price.amount * node.hours

    def _add_peaks(
        self,
        answers: Mapping[str, Rows],
        workloads: Mapping[tuple[str, str], str],
        nodes: "Mapping[str, BilledNode]",
    ) -> None:
        """Add the highest memory and SMs of GPUs that pods have for themselves."""
        whole = {
            _pod(row): nodes[row["node"]].facts.instance_type
            for row, _ in answers["asked"]
            if row.get("resource") in _WHOLE and row.get("node") in nodes
        }
        gpus = Counter(_pod(row) for row, _ in answers.get("memory", ()))
        for name in ("memory", "sms"):
            for row, value in answers.get(name, ()):
                pod = _pod(row)
                if pod not in whole:
                    continue
                workload = workloads.get(pod, f"Pod/{pod[1]}")
                peak = self.peaks[pod[0], workload, row.get("modelName", "")]
                peak.types.add(whole[pod])
                peak.gpus = max(peak.gpus, gpus[pod])
                if name == "memory":
                    peak.memory_mib = max(peak.memory_mib, value)
                elif 0 <= value <= 1:
                    peak.sms = max(peak.sms or 0.0, value)

    def _price_of(self, node: "BilledNode", book: PriceBook) -> HourPrice | str:
        """Return a node's price; why not where it is not known, or in another currency than the first."""
        price = book.of(node.facts, node.gpus)
        if isinstance(price, HourPrice):
            self.currency = self.currency or price.currency
            if price.currency != self.currency:
                return f"{price.source}: in {price.currency}, and others in {self.currency}"
        return price

    def _price(
        self, keys: Keys, line: Line, node: "BilledNode", share: float, book: PriceBook
    ) -> None:
        price = self._price_of(node, book)
        if isinstance(price, HourPrice):
            line.money = price.amount * share / node.shares
            line.priced = line.asked
            self.prices.add(price.source)
        elif line.asked:
            self.unpriced[price] += line.asked
        self.lines[keys].add(line)


@dataclass(frozen=True, slots=True)
class BilledNode:
    """A node in a span. Its shares are whole GPUs, or parts of them that add up to its GPUs."""

    share_hours: float
    """Sum over the span of its shares."""
    shares: float
    """That it has at a time."""
    gpus: float
    facts: NodeFacts

    @property
    def hours(self) -> float:
        return self.share_hours / self.shares

    @property
    def gpus_a_share(self) -> float:
        return self.gpus / self.shares


def nodes_of(answers: Mapping[str, Rows]) -> dict[str, BilledNode]:
    """Return the nodes of a span, from the answers `nodes`, `nodeMoments`, `labels` and `models`."""
    labels = {row.get("node", ""): row for row, _ in answers["labels"]}
    models: dict[str, str] = {}
    uuids: dict[str, set[str]] = defaultdict(set)
    for row, _ in answers["models"]:
        for name in {row.get(each) for each in ("node", "Hostname", "hostname")} - {None, ""}:
            models[str(name)] = row.get("modelName", "")
            uuids[str(name)].add(row.get("UUID", ""))
    weighed: dict[str, float] = defaultdict(float)
    for row, moments in answers["nodes"]:
        weighed[row.get("node", "")] += hours(moments) * _weight(row.get("resource", ""))
    longest: dict[str, float] = defaultdict(float)
    for row, moments in answers["nodeMoments"]:
        longest[row.get("node", "")] = hours(moments)
    found = {}
    for name, share_hours in weighed.items():
        if not share_hours or not longest[name]:
            continue
        shares = share_hours / longest[name]
        gpus = len(uuids[name]) or shares
        facts = node_facts(labels.get(name, {}), models.get(name, ""), len(uuids[name]))
        found[name] = BilledNode(share_hours, shares, float(gpus), facts)
    return found


def bought_by_hour(
    bill: Bill, rows: Iterable[tuple[int, Mapping[str, str], float]], moments: Mapping[int, float]
) -> list[float | None]:
    """Return the GPU-hours of each hour of a bill's range; None where nothing was recorded.

    Args:
        bill: of the range, which says what the hours add up to: turns on shared GPUs look like GPUs here.
        rows: the end of an hour in seconds, the labels of a node's GPUs, and their sum over its moments.
        moments: that were recorded of each hour.
    """
    found: dict[int, float] = dict.fromkeys((end for end, seen in moments.items() if seen), 0.0)
    for end_s, labels, summed in rows:
        if end_s in found:
            part = hours(summed) * _weight(labels.get("resource", ""))
            found[end_s] += part / hours(moments[end_s])
    whole = sum(each * hours(moments[end_s]) for end_s, each in found.items())
    scale = bill.bought / whole if whole else 1.0
    ends = range(bill.end_s - (bill.end_s - bill.start_s) // HOUR_S * HOUR_S, bill.end_s, HOUR_S)
    return [
        None if end_s + HOUR_S not in found else found[end_s + HOUR_S] * scale for end_s in ends
    ]


def _weight(resource: str) -> float:
    """Return what one of a resource is of a GPU: 3/7 of `nvidia_com_mig_3g_71gb`, 1 of everything else."""
    found = search(r"mig_(\d)g", resource)
    return int(found[1]) / _SLICES if found else 1.0


def _by_pod_and_node(rows: Rows) -> dict[tuple[tuple[str, str], str], float]:
    found: dict[tuple[tuple[str, str], str], float] = defaultdict(float)
    for row, moments in rows:
        weight = _weight(row.get("resource", ""))
        found[_pod(row), row.get("node", "")] += hours(moments) * weight
    return found


def _used(answers: Mapping[str, Rows]) -> dict[tuple[str, str], float]:
    """Return the GPU-hours in which each pod's GPUs worked."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for row, moments in answers["used"]:
        part = search(r"(\d)g", row.get("GPU_I_PROFILE", ""))
        weight = int(part[1]) / _SLICES if part else 1.0
        found[_pod(row)] += hours(moments) / 100 * weight
    return found


def _workloads(answers: Mapping[str, Rows]) -> dict[tuple[str, str], str]:
    """Return the workload that made each pod: the Deployment of its ReplicaSet, where that is known."""
    makers = {
        (row.get("namespace", ""), row.get("replicaset", "")): _named(row)
        for row, _ in answers["replicaSets"]
    }
    found = {}
    for row, _ in answers["owners"]:
        own = _named(row)
        if row.get("owner_kind") == "ReplicaSet":
            own = makers.get((row.get("namespace", ""), row.get("owner_name", "")), own)
        if own:
            found[_pod(row)] = own
    return found


def _named(row: Mapping[str, str]) -> str:
    kind, name = row.get("owner_kind", ""), row.get("owner_name", "")
    return "" if kind in ("", "<none>") else f"{kind}/{name}"


def _pod(row: Mapping[str, str]) -> tuple[str, str]:
    return row.get("namespace", ""), row.get("pod", "")
