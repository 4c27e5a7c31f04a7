"""From a process to its pod and container, through its cgroup path.

Every container runtime and cgroup driver writes the pod's UID and the container's id into that path, each
in its own form:

| runtime, driver | end of the path |
| --- | --- |
| any, cgroupfs | `/kubepods/burstable/pod<uid>/<id>` |
| containerd, systemd | `-pod<uid>.slice/cri-containerd-<id>.scope` |
| CRI-O, systemd | `-pod<uid>.slice/crio-<id>.scope`; its helper's `crio-conmon-<id>.scope` is no container |
| Docker, systemd | `-pod<uid>.slice/docker-<id>.scope` |
| containerd, cgroupfs under systemd | `-pod<uid>.slice:cri-containerd:<id>` |

In a UID systemd writes `_` for `-`. Static pods have 32 hexadecimal digits as UID. Read from a private
cgroup namespace, the path is relative and may lack the pod.

Source: kubernetes pkg/kubelet/cm (cgroup_manager_linux.go, pod_container_manager_linux.go).
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

MAX_TEXT = 65_536
"""Larger than any cgroup or stat file of a process; a guard."""
_START_FIELD = 22 - 3
"""Field 22 of /proc/PID/stat, counted from field 3, the first after the name."""
_POD = re.compile(
    "(?:^|[/-])pod"
    "([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?(?=[/:]|$)"
)
_CONTAINER = re.compile(r"(?:^|[/:])([a-z][a-z0-9-]*-)?([0-9a-f]{64})(?:\.scope)?(?=[/:]|$)")
_HELPERS = ("conmon-",)


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """The pod and container of a process; both are empty for a host process."""

    pod_uid: str = ""
    """As the kubelet wrote it; empty where the path does not show it."""
    container_id: str = ""
    """64 hexadecimal digits."""

    @property
    def is_in_pod(self) -> bool:
        return bool(self.pod_uid)


HOST = ProcessPlace()


def parse_cgroup(text: str) -> ProcessPlace:
    """Return the pod and container that the text of /proc/PID/cgroup names.

    The hierarchies of cgroup v1 may differ; the most specific path is used.
    """
    lines = text[:MAX_TEXT].splitlines()
    places = [_parse_path(line.split(":", 2)[2]) for line in lines if line.count(":") >= 2]
    return max(
        places, key=lambda place: (bool(place.pod_uid), bool(place.container_id)), default=HOST
    )


def _parse_path(path: str) -> ProcessPlace:
    """Parse one cgroup path; if pods are nested, the outermost one belongs to this node."""
    pod = _POD.search(path)
    if pod is None:
        return ProcessPlace("", _container_id(path))
    return ProcessPlace(pod[1].replace("_", "-"), _container_id(path[pod.end() :]))


def _container_id(path: str) -> str:
    match = _CONTAINER.search(path)
    if match is None or (match[1] or "").endswith(_HELPERS):
        return ""
    return match[2]


def parse_start_ticks(text: str) -> int | None:
    """Return when a process started, in clock ticks since boot; None when the text is no stat file.

    The name in it may hold anything, blanks and parentheses too.
    """
    _, parenthesis, rest = text[:MAX_TEXT].rpartition(")")
    fields = rest.split()
    if not parenthesis or len(fields) <= _START_FIELD:
        return None
    start = fields[_START_FIELD]
    return int(start) if start.isascii() and start.isdigit() and len(start) < 20 else None


@dataclass(frozen=True, slots=True)
class _Known:
    start_ticks: int | None
    place: ProcessPlace


class ProcessTable:
    """A cache of processes' pods and containers, read from a proc file system.

    A number is used again by later processes, so what is remembered holds for one start time.

    Args:
        proc_root: `/proc`, or where the host's is mounted.
        capacity: how many processes to remember.
    """

    def __init__(self, proc_root: Path, capacity: int = 4096) -> None:
        self._root = proc_root
        self._capacity = capacity
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def place(self, pid: int) -> ProcessPlace:
        """Return a process' pod and container, from the cache or /proc.

        Raises:
            FileNotFoundError: there is no such process.
            OSError: its files can't be read.
        """
        known = self._known.get(pid)
        if known is not None:
            return known.place
        start_ticks = self._start_ticks(pid)
        place = parse_cgroup(self._read(pid, "cgroup"))
        self._known[pid] = _Known(start_ticks, place)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return place

    def keep_only(self, pids: frozenset[int]) -> None:
        """Drop all other processes from the cache."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def forget_ended(self) -> None:
        """Drop ended processes from the cache, even if their PID is in use again."""
        for pid, known in tuple(self._known.items()):
            try:
                is_same = self._start_ticks(pid) == known.start_ticks
            except OSError:
                is_same = False
            if not is_same:
                self._known.pop(pid, None)

    def _start_ticks(self, pid: int) -> int | None:
        return parse_start_ticks(self._read(pid, "stat"))

    def _read(self, pid: int, name: str) -> str:
        try:
            with (self._root / str(pid) / name).open("rb") as file:
                return file.read(MAX_TEXT).decode(errors="replace")
        except ProcessLookupError as error:
            raise FileNotFoundError(*error.args) from error


def sees_host_processes(proc_root: Path) -> bool:
    """Return whether a proc file system shows the processes of other containers.

    The kernel's threads are visible in the host's own namespace alone. A node that is itself a container
    (kind) has none; there, process 1 is the node's and in another cgroup than we are.
    """
    if _first_line(proc_root / "2" / "comm") == "kthreadd":
        return True
    if not (proc_root / "1").exists() or _first_line(proc_root / "1" / "comm") == "pause":
        return False
    return _text(proc_root / "1" / "cgroup") != _text(proc_root / "self" / "cgroup")


def _first_line(path: Path) -> str:
    return _text(path).split("\n", 1)[0].strip()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT).decode(errors="replace")
    except OSError:
        return ""
