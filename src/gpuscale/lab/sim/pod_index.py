"""Indexes of a simulated cluster's pods: by owner, labels, node, state.

What an informer's indexers are to a real controller: each question costs what its answer is long, not what
the cluster is large. All answers are in the order in which the pods were made.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import TypeVar

from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.objects.selectors import Operator, Selector
from gpuscale.hpa.cluster.scheduling import NodeState, node_state

FINISHED = (PodPhase.SUCCEEDED, PodPhase.FAILED)

OwnerKey = tuple[str, str, str]
"""Kind, namespace and name of what made a pod."""
K = TypeVar("K", bound=Hashable)
_Keys = dict[str, None]
"""Pod keys in order; a set that remembers it."""


class PodIndex:
    """Pods by key, in indexes that each change updates.

    Args:
        clock: returns the time, milliseconds.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self.pods: dict[str, Pod] = {}
        self.waiting: _Keys = {}
        """Of the pods that are on no node, and are to get one."""
        self.live: Counter[OwnerKey] = Counter()
        """How many pods of an owner are neither finished nor on their way out."""
        self.ready: Counter[OwnerKey] = Counter()
        """How many of those are ready."""
        self.running: Counter[OwnerKey] = Counter()
        """How many pods of an owner are in phase Running."""
        self.pending = 0
        """How many pods are in phase Pending."""
        self.namespaces: Counter[str] = Counter()
        """How many pods each namespace has."""
        self.busy: Counter[str] = Counter()
        """How many unfinished pods a node has, without those of DaemonSets."""
        self.changed_owners: dict[OwnerKey, None] = {}
        """Whose pods were made, changed or removed since the last clear."""
        self.changed_nodes: set[str] = set()
        """Which nodes have other unfinished pods than at the last clear, or some that are to end."""
        self.changed_ms: dict[str, int] = {}
        """When a node last got a pod, or lost one, or one on it finished or was asked to end."""
        self.owner_versions: Counter[OwnerKey] = Counter()
        """Grows with every change of an owner's pods, and of those that work only together with them."""
        self.together: dict[OwnerKey, tuple[OwnerKey, ...]] = {}
        """Owner of leaders to those of their workers, and back."""
        self._by_owner: dict[OwnerKey, _Keys] = {}
        self._by_node: dict[str, _Keys] = {}
        self._by_label: dict[tuple[str, str, str], _Keys] = {}
        """By namespace, label and value."""
        self._by_namespace: dict[str, _Keys] = {}
        self._label_versions: Counter[tuple[str, str, str]] = Counter()
        self._namespace_versions: Counter[str] = Counter()

    def put(self, pod: Pod) -> None:
        """Add or update a pod; its owner, namespace and labels never change."""
        key = pod.metadata.key
        before = self.pods.get(key)
        if before is None:
            self._file(pod)
        else:
            self._count(before, -1)
        self.pods[key] = pod
        self._count(pod, 1)
        if _place(before) != _place(pod):
            self._move(key, before, pod)
        elif before and before.metadata.deletion_ms != pod.metadata.deletion_ms:
            # Rules about other pods don't count those on their way out.
            name, deletion_ms = pod.spec.node_name, pod.metadata.deletion_ms
            self.changed_nodes.add(name)
            if name and deletion_ms is not None:
                self.changed_ms[name] = max(deletion_ms, self.changed_ms.get(name, 0))
        if not pod.spec.node_name and pod.metadata.deletion_ms is None:
            self.waiting[key] = None
        else:
            self.waiting.pop(key, None)
        self._note_change(pod)

    def remove(self, key: str) -> None:
        """Remove a pod."""
        pod = self.pods.pop(key)
        self._count(pod, -1)
        self._move(key, pod, None)
        self.waiting.pop(key, None)
        namespace = pod.metadata.namespace
        _drop(self._by_namespace, namespace, key)
        self.namespaces[namespace] -= 1
        for pair in pod.metadata.labels.items():
            _drop(self._by_label, (namespace, *pair), key)
        owner = owner_of(pod)
        if owner is not None:
            _drop(self._by_owner, owner, key)
        self._note_change(pod)

    def unite(self, leaders: OwnerKey, workers: OwnerKey) -> None:
        """Let the pods of two owners work only together."""
        self.together[leaders] = (*self.together.get(leaders, ()), workers)
        self.together[workers] = (leaders,)

    def on(self, node: str) -> list[Pod]:
        """Return a node's pods, finished ones included."""
        return [self.pods[key] for key in self._by_node.get(node, ())]

    def owners(self) -> Collection[OwnerKey]:
        """Return all owners of pods."""
        return self._by_owner.keys()

    def owned_by(self, owner: OwnerKey) -> list[Pod]:
        return [self.pods[key] for key in self._by_owner.get(owner, ())]

    def selected(self, namespace: str, selector: Selector) -> list[Pod]:
        """Return the pods of a namespace that a selector matches."""
        tables = [self._by_label.get(pair, {}) for pair in _pairs(namespace, selector)]
        if not tables:
            tables.append(self._by_namespace.get(namespace, {}))
        keys = min(tables, key=len)
        pods = (self.pods[key] for key in keys)
        return [pod for pod in pods if selector.matches(pod.metadata.labels)]

    def selection_version(self, namespace: str, selector: Selector) -> tuple[int, ...]:
        """Return version numbers that all grow when a pod that the selector matches changes."""
        pairs = tuple(_pairs(namespace, selector))
        if not pairs:
            return (self._namespace_versions[namespace],)
        return tuple(self._label_versions[pair] for pair in pairs)

    def state_of(self, node: Node) -> NodeState:
        """Return a node with the requests of its unfinished pods."""
        pods = self.on(node.metadata.name)
        return node_state(node, (pod for pod in pods if pod.status.phase not in FINISHED))

    def _file(self, pod: Pod) -> None:
        key, namespace = pod.metadata.key, pod.metadata.namespace
        self._by_namespace.setdefault(namespace, {})[key] = None
        self.namespaces[namespace] += 1
        for pair in pod.metadata.labels.items():
            self._by_label.setdefault((namespace, *pair), {})[key] = None
        owner = owner_of(pod)
        if owner is not None:
            self._by_owner.setdefault(owner, {})[key] = None

    def _move(self, key: str, before: Pod | None, after: Pod | None) -> None:
        """Update the index by node, and the nodes whose pods changed."""
        old = before.spec.node_name if before else ""
        new = after.spec.node_name if after else ""
        if old and old != new:
            _drop(self._by_node, old, key)
        if new:
            self._by_node.setdefault(new, {})[key] = None
        for name in (old, new):
            if name:
                self.changed_nodes.add(name)
                self.changed_ms[name] = self._clock()

    def _count(self, pod: Pod, step: int) -> None:
        phase, owner = pod.status.phase, owner_of(pod)
        if phase is PodPhase.PENDING:
            self.pending += step
        if phase not in FINISHED and pod.spec.node_name and not is_daemon(pod):
            self.busy[pod.spec.node_name] += step
        if owner is None:
            return
        if phase is PodPhase.RUNNING:
            self.running[owner] += step
        if phase not in FINISHED and pod.metadata.deletion_ms is None:
            self.live[owner] += step
            if pod.status.ready:
                self.ready[owner] += step

    def _note_change(self, pod: Pod) -> None:
        namespace, owner = pod.metadata.namespace, owner_of(pod)
        self._namespace_versions[namespace] += 1
        for pair in pod.metadata.labels.items():
            self._label_versions[(namespace, *pair)] += 1
        if owner is not None:
            self.changed_owners[owner] = None
            self.owner_versions[owner] += 1
            for each in self.together.get(owner, ()):
                self.owner_versions[each] += 1


def owner_of(pod: Pod) -> OwnerKey | None:
    """Return a pod's owner; None without one."""
    owner = pod.metadata.owner
    return None if owner is None else (owner.kind, pod.metadata.namespace, owner.name)


def is_daemon(pod: Pod) -> bool:
    """Return whether a pod belongs to a DaemonSet."""
    return pod.metadata.owner is not None and pod.metadata.owner.kind == "DaemonSet"


def _place(pod: Pod | None) -> tuple[str, bool]:
    return ("", False) if pod is None else (pod.spec.node_name, pod.status.phase in FINISHED)


def _pairs(namespace: str, selector: Selector) -> Iterator[tuple[str, str, str]]:
    """Yield the labels that every object must have to match a selector."""
    for each in selector.requirements:
        if each.operator in {Operator.EQUALS, Operator.IN} and len(each.values) == 1:
            yield namespace, each.key, each.values[0]


def _drop(tables: dict[K, _Keys], name: K, key: str) -> None:
    table = tables.get(name)
    if table is not None:
        table.pop(key, None)
        if not table:
            del tables[name]
