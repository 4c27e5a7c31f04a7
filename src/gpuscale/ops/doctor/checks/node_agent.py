"""The node agents: one on each GPU node, with current readings of every GPU and its pod."""

import json
from collections.abc import Iterator, Sequence

from gpuscale.base.exposition.families import Family
from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.taints import untolerated
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.nodes import tolerate
from gpuscale.ops.doctor.checks.workload_containers import last_words
from gpuscale.ops.doctor.facts import UTILIZATION
from gpuscale.ops.doctor.judges import AGENT, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import AgentLook, Snapshot
from gpuscale.ops.install.common import WHILE_STARTING
from gpuscale.ops.lint.checks.scale_targets import AGENT_SERIES_CHECKS, NO_GPU_UTIL
from gpuscale.signals import is_of_gpu

_CHECKS = Checks(AGENT, including=(AGENT_SERIES_CHECKS,))
NO_NODE_AGENT = _CHECKS.add(
    "no-node-agent",
    Severity.ERROR,
    "Neither a node agent nor dcgm-exporter.",
    "Install the node agent; gpuscale init writes the values file.",
)
NODE_WITHOUT_AGENT = _CHECKS.add(
    "node-without-agent",
    Severity.ERROR,
    "A GPU node whose GPUs nobody measures.",
    "Give the node a label that the DaemonSet's affinity asks for.",
)
TWO_AGENTS = _CHECKS.add(
    "two-agents",
    Severity.WARNING,
    "A node whose GPUs two agents measure, such as dcgm-exporter beside gpuscale's.",
    "Keep one of them, or have Prometheus scrape one alone.",
)
AGENT_NOT_READY = _CHECKS.add(
    "agent-not-ready",
    Severity.ERROR,
    "An agent that is not ready.",
    "See what it says.",
)
PROBE_TOO_EARLY = _CHECKS.add(
    "probe-too-early",
    Severity.WARNING,
    "An agent that its liveness probe kills while it starts.",
    "Give it a startupProbe, which waits for as long as starting takes.",
)
AGENT_UNREACHABLE = _CHECKS.add(
    "agent-unreachable",
    Severity.WARNING,
    "An agent whose metrics can't be read from here.",
    "Allow the request, or forward its port and name it with --agent.",
)
AGENT_SILENT = _CHECKS.add(
    "agent-silent",
    Severity.ERROR,
    "An agent that counts as ready and answers nobody, Prometheus included.",
    "Restart it; if it hangs again, its node or driver does.",
)
DRIVER_UNREADABLE = _CHECKS.add(
    "driver-unreadable",
    Severity.ERROR,
    "An agent that can read no GPU: no driver, or no access.",
    "Its /readyz says why: no driver, or no access to it (agent.deviceAccess, agent.runtimeClass).",
)
GPU_UNREADABLE = _CHECKS.add(
    "gpu-unreadable",
    Severity.ERROR,
    "One GPU that can't be read.",
    "Look for XID errors; a lost GPU takes a reboot.",
)
FEWER_GPUS_READ = _CHECKS.add(
    "fewer-gpus-read",
    Severity.WARNING,
    "An agent that sees fewer GPUs than its node gives.",
    "Give it all GPUs: NVIDIA_VISIBLE_DEVICES=all.",
)
OLD_READING = _CHECKS.add(
    "old-reading",
    Severity.WARNING,
    "Readings that are older than a minute.",
    "Lower its --collect-interval, or see why collecting hangs.",
)
AGENT_CLOCK = _CHECKS.add(
    "agent-clock",
    Severity.WARNING,
    "An agent whose clock is off: its readings are new, and their times are not.",
    "Set the node's clock: its time service is off, or can't reach its server.",
)
ATTRIBUTION_LOST = _CHECKS.add(
    "attribution-lost",
    Severity.ERROR,
    "An agent that can't tell which pods have its GPUs.",
    "Mount the kubelet's folder pod-resources (agent.podResourcesPath), as root.",
)
NOPOD_LABELS = _CHECKS.add(
    "no-pod-labels",
    Severity.ERROR,
    "GPUs are in use, and their series name no pod.",
    "Run the agent with --kubernetes (agent.attribution: allocations); "
    "dcgm-exporter with DCGM_EXPORTER_KUBERNETES=true.",
)

_AHEAD_S = 30
MAX_READING_AGE_S = 60
"""dcgm-exporter reads every 30 s by default."""
_OWN = "gpuscale_exporter_"
_INSTALL = "gpuscale install values.yaml"
POD_LABELS = ("pod", "exported_pod", "PodName", "pod_name")
_REFUSED = "connection refused"
_KILLED = (137, 143)
"""Exit codes of a process that got SIGKILL or SIGTERM."""


def agent_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults of agents and their readings."""
    nodes = facts.gpu_nodes(snapshot)
    pods = facts.agent_pods(snapshot)
    is_known = bool(pods or facts.agent_sets(snapshot) or snapshot.hides("pods"))
    # If GPU series have values, some exporter measures, under whatever name.
    served = (metric for look in snapshot.hpas for metric in look.metrics if metric.values)
    is_measured = bool(snapshot.prometheus.usage or snapshot.prometheus.names) or any(
        is_of_gpu(metric.spec.name) for metric in served
    )
    if nodes and not is_known and not is_measured:
        yield NO_NODE_AGENT.found(
            "daemonsets",
            "Nobody measures the GPUs.",
            f"{counted(len(nodes), 'GPU node')}; neither gpuscale's node agent nor dcgm-exporter",
            Fix(NO_NODE_AGENT.fix, f"gpuscale init && {_INSTALL}"),
        )
    elif is_known:
        by_node: dict[str, list[Fields]] = {}
        for pod in pods:
            by_node.setdefault(facts.spec_of(pod).node_name, []).append(pod)
        for node in nodes:
            yield from _on_node(snapshot, node, by_node.get(facts.name(node), ()))
    for pod in pods:
        yield from _probe(pod)
    users: dict[str, list[str]] = {}
    for pod in facts.active_pods(snapshot):
        if facts.is_ready(pod) and facts.asks_for_gpus(pod):
            users.setdefault(facts.spec_of(pod).node_name, []).append(facts.full_name(pod))
    down = {
        labels.get("instance", "").rpartition(":")[0]
        for labels, value in snapshot.prometheus.targets
        if value == 0
    }
    for look in snapshot.agents:
        if look.is_locked:
            continue  # reported as a part that could not be read
        if look.fault and _hangs(snapshot, look, down):
            yield AGENT_SILENT.found(
                f"pod/{look.pod}",
                f"The agent on node {look.node} does not answer, neither here nor Prometheus.",
                f"{look.fault}; up is 0",
                Fix(
                    AGENT_SILENT.fix,
                    f"kubectl delete pod -n {_namespace(look)} {_pod(look)}; "
                    f"kubectl describe node {look.node}",
                ),
            )
        else:
            yield from _answers(snapshot, look, users.get(look.node, []))


def _on_node(snapshot: Snapshot, node: Fields, here: Sequence[Fields]) -> Iterator[ClusterFinding]:
    name = facts.name(node)
    if not here and not facts.momentary(snapshot, node):
        sets = facts.agent_sets(snapshot)
        what = "No agent measures the node's GPUs."
        for body in sets:
            taint = untolerated(facts.taints(snapshot, node), facts.template_of(body).tolerations)
            if taint is not None:
                yield NODE_WITHOUT_AGENT.found(
                    f"node/{name}",
                    what,
                    f"DaemonSet {facts.full_name(body)} does not tolerate its taint {taint}",
                    tolerate("daemonset", body, taint),
                )
                break
        else:
            yield NODE_WITHOUT_AGENT.found(
                f"node/{name}",
                what,
                f"no pod of DaemonSet {', '.join(map(facts.full_name, sets))} is on it; "
                f"labels: {', '.join(sorted(facts.labels(node)))}",
                Fix(
                    NODE_WITHOUT_AGENT.fix,
                    f"kubectl get daemonset -A -o yaml; kubectl label node {name} KEY=VALUE",
                ),
            )
    owners = {facts.owner_kind(pod): pod for pod in here}
    if len(owners) > 1:
        yield TWO_AGENTS.found(
            f"node/{name}",
            "Two agents measure the node's GPUs, so that each has its series twice.",
            ", ".join(facts.full_name(pod) for pod in owners.values()),
            Fix(TWO_AGENTS.fix, "kubectl get daemonset -A"),
        )
    for pod in here:
        if not facts.is_ready(pod):
            yield AGENT_NOT_READY.found(
                f"pod/{facts.full_name(pod)}",
                f"The agent on node {name} is not ready.",
                f"{pod.child('status').text('phase')}; {_state(pod)}",
                _ready_fix(pod),
            )


def _ready_fix(pod: Fields) -> Fix:
    place = f"-n {facts.namespace(pod)} {facts.name(pod)}"
    state = _state(pod)
    if "address already in use" in state:
        say = (
            "Another program has the port on the node, such as a second exporter: end one of them, or "
            "give the agent another port."
        )
        node = facts.spec_of(pod).node_name
        return Fix(say, f"kubectl get pods -A -o wide --field-selector spec.nodeName={node}")
    if any(word in state for word in ("ImagePull", "ErrImage", "InvalidImage")):
        return Fix(
            "Correct the agent's image, or give it an imagePullSecret for its registry.",
            f"kubectl describe pod {place}",
        )
    previous = " --previous" if "CrashLoopBackOff" in state else ""
    return Fix(AGENT_NOT_READY.fix, f"kubectl logs {place}{previous}")


def _state(pod: Fields) -> str:
    statuses = pod.child("status").items("containerStatuses")
    for each in statuses:
        waiting = each.child("state").child("waiting")
        if waiting.data:
            said = f"{waiting.text('reason')} {waiting.text('message')}".strip()
            return "; ".join(filter(None, (last_words(each), said)))
    return f"{sum(each.integer('restartCount') or 0 for each in statuses)} restarts"


def _probe(pod: Fields) -> Iterator[ClusterFinding]:
    containers = {each.text("name"): each for each in pod.child("spec").items("containers")}
    for status in pod.child("status").items("containerStatuses"):
        name = status.text("name")
        container = containers.get(name)
        ended = status.child("lastState").child("terminated")
        was_killed = ended.integer("exitCode") in _KILLED and ended.text("reason") != "OOMKilled"
        if container is None or not was_killed or not status.integer("restartCount"):
            continue
        if "livenessProbe" not in container or "startupProbe" in container:
            continue
        probe = container.child("livenessProbe")
        startup = {**probe.data, "initialDelaySeconds": 0, **WHILE_STARTING}
        containers_patch = [{"name": name, "startupProbe": startup}]
        patch = {"spec": {"template": {"spec": {"containers": containers_patch}}}}
        kind, owner = facts.owner_kind(pod)
        words = ["kubectl", "describe", "pod", facts.name(pod), "-n", facts.namespace(pod)]
        if kind == "DaemonSet":
            words = ["kubectl", "patch", "daemonset", owner, *words[-2:], "-p", json.dumps(patch)]
        yield PROBE_TOO_EARLY.found(
            f"pod/{facts.full_name(pod)}",
            f"Its liveness probe kills container {name} before it has started.",
            f"{status.integer('restartCount')} restarts, last exit code "
            f"{ended.integer('exitCode')}; first probe after "
            f"{probe.integer('initialDelaySeconds', 0)} s, and no startupProbe",
            Fix(PROBE_TOO_EARLY.fix, facts.quoted(*words)),
        )


def _hangs(snapshot: Snapshot, look: AgentLook, down: set[str]) -> bool:
    """Return whether an agent hangs: it runs, and Prometheus can't scrape it either.

    A refused connection is another fault: the agent crashed, or listens at another port.
    """
    if _REFUSED in look.fault:
        return False
    pods = facts.pods_by_node(snapshot).get(look.node, ())
    status = next((pod.child("status") for pod in pods if facts.full_name(pod) == look.pod), None)
    return status is not None and bool({status.text("podIP"), status.text("hostIP")} & down - {""})


# What agents answer


def _answers(snapshot: Snapshot, look: AgentLook, users: Sequence[str]) -> Iterator[ClusterFinding]:
    about = f"pod/{look.pod}"
    if look.fault:
        place = f"-n {_namespace(look)} {_pod(look)}"
        fix = Fix(
            f"See that it runs and listens at port {look.port}, and that no NetworkPolicy or firewall "
            "keeps the API server off; else forward its port and name it.",
            f"kubectl logs {place}; kubectl port-forward {place} {look.port}  # and: {look.command}",
        )
        if look.needs:
            fix = Fix(
                f"Allow whom the kubeconfig names to get {look.needs}, or forward its port and name it.",
                facts.allowing(look.needs.replace("/", "-"), look.needs, "get"),
            )
        yield AGENT_UNREACHABLE.found(
            about,
            "The agent's metrics can't be read from here, so nothing is known of its readings.",
            look.fault,
            fix,
        )
        return
    if _one(look, "collect_up") == 0:
        yield DRIVER_UNREADABLE.found(
            about,
            f"The agent on node {look.node} can read no GPU.",
            _said(look, f"{_OWN}collect_up 0"),
            Fix(
                DRIVER_UNREADABLE.fix,
                f"kubectl get --raw '/api/v1/namespaces/{_namespace(look)}/pods/"
                f"{_pod(look)}:{look.port}/proxy/readyz?verbose'",
            ),
        )
        return
    for sample in look.families.get(f"{_OWN}gpu_up", Family("", "", "", ())).samples:
        if sample.value == 0:
            gpu = dict(sample.labels)
            yield GPU_UNREADABLE.found(
                about,
                f"GPU {gpu.get('UUID') or gpu.get('gpu', '')} of node {look.node} can't be read.",
                f"{_OWN}gpu_up 0",
                Fix(GPU_UNREADABLE.fix, "nvidia-smi -q; dmesg | grep Xid"),
            )
    yield from _age(snapshot, look)
    yield from _utilization(look)
    yield from _owners(snapshot, look, users)
    yield from _count(snapshot, look)


def _said(look: AgentLook, evidence: str) -> str:
    return f"{evidence}; {look.said}" if look.said else evidence


def _namespace(look: AgentLook) -> str:
    return look.pod.partition("/")[0]


def _pod(look: AgentLook) -> str:
    return look.pod.partition("/")[2]


def _one(look: AgentLook, metric: str) -> float | None:
    family = look.families.get(_OWN + metric)
    return family.samples[0].value if family is not None and family.samples else None


def _age(snapshot: Snapshot, look: AgentLook) -> Iterator[ClusterFinding]:
    newest = _one(look, "newest_reading_timestamp_seconds")
    if newest is None:
        return
    age_s = snapshot.now_ms / 1000 - newest
    apart_s = age_s - (look.good_ago_s or 0)
    if age_s < -_AHEAD_S or (look.good_ago_s is not None and apart_s > MAX_READING_AGE_S):
        yield AGENT_CLOCK.found(
            f"pod/{look.pod}",
            f"The clock of node {look.node} is about {abs(apart_s):.0f} s "
            f"{'ahead' if apart_s < 0 else 'behind'}, so its readings are taken for old or for future ones.",
            f"{_OWN}newest_reading_timestamp_seconds {newest:.3f}; it says that it last read its GPUs "
            f"{look.good_ago_s or 0:.0f} s ago",
            Fix(AGENT_CLOCK.fix, f"kubectl debug node/{look.node} -it --image=busybox -- date -u"),
        )
    elif age_s > MAX_READING_AGE_S:
        yield OLD_READING.found(
            f"pod/{look.pod}",
            f"The readings of node {look.node} are {age_s:.0f} s old.",
            f"{_OWN}newest_reading_timestamp_seconds {newest:.3f}",
            Fix(OLD_READING.fix, f"kubectl logs -n {_namespace(look)} {_pod(look)}"),
        )


def _utilization(look: AgentLook) -> Iterator[ClusterFinding]:
    if UTILIZATION in look.families and look.families[UTILIZATION].samples:
        return
    place = f"-n {_namespace(look)} {_pod(look)}"
    names = sorted(name for name in look.families if name.startswith("DCGM_"))
    if not names and any(name.startswith(_OWN) for name in look.families):
        return  # Our own agent, whose page gives the reason itself.
    if not names:
        # Not an agent, or dcgm-exporter without a GPU.
        yield NO_GPU_UTIL.found(
            f"pod/{look.pod}",
            f"The agent on node {look.node} serves no series of GPUs at all.",
            f"port {look.port} serves {_some(sorted(look.families)) or 'nothing'}",
            Fix(
                "See that its port `metrics` is where the agent listens, and what it says.",
                f"kubectl get pod {place} -o yaml; kubectl logs {place}",
            ),
        )
        return
    fix = Fix(
        f"Add the row `{UTILIZATION}, gauge, GPU utilization (in %).` to the counters file.",
        f"kubectl exec {place} -- cat /etc/dcgm-exporter/default-counters.csv",
    )
    samples = (sample for name in names for sample in look.families[name].samples)
    if any(dict(sample.labels).get("GPU_I_PROFILE") for sample in samples):
        fix = Fix(
            "Scale on DCGM_FI_PROF_GR_ENGINE_ACTIVE, a ratio: a MIG instance has no utilization.",
            "gpuscale schema values  # signal: graphics-engine",
        )
    yield NO_GPU_UTIL.found(
        f"pod/{look.pod}",
        f"The agent on node {look.node} serves no {UTILIZATION}.",
        f"it serves {_some(names)}",
        fix,
    )


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{' and more' if len(names) > 5 else ''}"


def _owners(snapshot: Snapshot, look: AgentLook, users: Sequence[str]) -> Iterator[ClusterFinding]:
    if _one(look, "attribution_up") == 0:
        logs = f"kubectl logs -n {_namespace(look)} {_pod(look)}"
        fix = Fix(ATTRIBUTION_LOST.fix, logs)
        if any(w in look.said for w in ("No such file", "does not exist", "refused", "connect")):
            fix = Fix(
                "The kubelet's socket is not there or does not answer: see whether the kubelet runs, "
                "and that its folder pod-resources is mounted (agent.podResourcesPath).",
                f"{logs}; kubectl describe node {look.node}",
            )
        yield ATTRIBUTION_LOST.found(
            f"pod/{look.pod}",
            f"The agent on node {look.node} can't tell which pods have its GPUs.",
            _said(look, f"{_OWN}attribution_up 0"),
            fix,
        )
        return
    family = look.families.get(UTILIZATION)
    if family is None or not family.samples or not users:
        return
    named = [each for each in family.samples if any(dict(each.labels).get(k) for k in POD_LABELS)]
    node = facts.nodes_by_name(snapshot).get(look.node)
    if not named and not (node is not None and facts.shares_gpus(node)):
        yield NOPOD_LABELS.found(
            f"pod/{look.pod}",
            f"GPUs of node {look.node} are in use, and their series name no pod.",
            f"{', '.join(users[:3])} have GPUs; {UTILIZATION} has labels "
            f"{', '.join(name for name, _ in family.samples[0].labels)}",
            Fix(NOPOD_LABELS.fix, _INSTALL),
        )


def _count(snapshot: Snapshot, look: AgentLook) -> Iterator[ClusterFinding]:
    family = look.families.get(UTILIZATION)
    node = facts.nodes_by_name(snapshot).get(look.node)
    if family is None or node is None or facts.shares_gpus(node):
        return
    read = len({dict(each.labels).get("UUID") for each in family.samples})
    gives = facts.whole_gpus(node)
    if 0 < read < gives:
        yield FEWER_GPUS_READ.found(
            f"pod/{look.pod}",
            f"The agent reads {read} of the {gives} GPUs of node {look.node}.",
            f"{UTILIZATION} has {read} UUIDs; the node has {gives} of {facts.GPU}",
            Fix(FEWER_GPUS_READ.fix, _INSTALL),
        )


JUDGE = ClusterJudge("node-agent", _CHECKS, agent_findings)
