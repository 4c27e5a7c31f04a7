"""Clusters of so many things of each kind, in each of which every one has its trouble."""

from dataclasses import replace

from clusters import (
    AGENT_LABELS,
    ANY,
    BARE,
    GPU,
    PLUGIN,
    PROMETHEUS,
    TAINT,
    both,
    container,
    hpa_body,
    look,
    meta,
    node,
    pod,
    service,
    status_map,
    workload,
)
from fault_cases import claim, consolidated, true
from keda_cases import FAILED, scaled, trigger, with_keda
from node_cases import event, false, pool
from reported_cases import in_parts, suspended_job
from room_cases import FULL, owned, replica_set, rolling
from workload_cases import (
    GOING,
    MIG,
    NONE_FREE,
    UNBOUND,
    deployment,
    hpa_of,
    object_look,
    pending,
    ran,
    started,
    waits,
    wanting,
)

HOST = "kubernetes.io/hostname"
POOL = "karpenter.sh/nodepool"
ON_GPUS = {"nvidia.com/gpu.present": "true"}


def names(kind, size):
    return [f"{kind}-{index:04}" for index in range(size)]


def model(name, **spec):
    """A Deployment that wants a GPU."""
    return deployment(name, spec={"selector": {"matchLabels": {"app": name}}}, template=spec)


def waiting(name, message, **spec):
    """A pod of it that waits."""
    found = pending(message, owner=name, **{**wanting(GPU), **spec})
    found["metadata"]["name"] = f"{name}-x"
    return found


def labelled(name, **more):
    return {**node(name, labels={**ON_GPUS, HOST: name}, **more)}


def waiting_for(nodes, message, choose=lambda _host: {}, **more):
    """As many workloads as nodes, of which each has a pod that waits and chooses a node or none."""
    models = names("model", len(nodes))
    hosts = [each["metadata"]["name"] for each in nodes]
    spec = {name: choose(host) for name, host in zip(models, hosts, strict=True)}
    return {
        "nodes": nodes,
        "deployments": both("deployments", *(model(name, **spec[name]) for name in models)),
        "pods": both("pods", *(waiting(name, message, **spec[name]) for name in models)),
        **more,
    }


def by_name(host):
    return {"nodeSelector": {HOST: host}}


def by_affinity(host):
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [host]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def tolerating(host):
    return {"tolerations": [{"key": host, "operator": "Exists"}]}


def cordoned(name):
    found = labelled(name)
    return {**found, "spec": {"unschedulable": True}}


def going(name):
    return {**GOING, **labelled(name, taints=GOING["spec"]["taints"])}


def in_use(size):
    """Nodes that are full with old pods of the workloads that wait."""
    hosts, models = names("gpu", size), names("model", size)
    kept, replicasets = [], []
    for host, name in zip(hosts, models, strict=True):
        old = pod(f"{name}-a", on=host, labels={"app": name}, gpus=2)
        old["metadata"] = owned(old["metadata"], "ReplicaSet", f"{name}-a")
        new = waiting(name, FULL, **by_name(host))
        new["metadata"] = owned(new["metadata"], "ReplicaSet", f"{name}-b")
        kept += [old, new]
        for revision, letter in enumerate("ab", 1):
            body = replica_set(f"{name}-{letter}", revision)
            body["metadata"]["ownerReferences"][0]["name"] = name
            replicasets.append(body)
    strategy = {"strategy": rolling(1, 0)}
    bodies = [model(name) for name in models]
    for body in bodies:
        body["spec"] |= strategy
    return {
        "nodes": [labelled(host) for host in hosts],
        "deployments": both("deployments", *bodies),
        "replicasets": replicasets,
        "pods": both("pods", *kept),
    }


def one_rollout(size):
    """One rollout with so many old pods, and as many that wait."""
    pods = []
    for index, host in enumerate(names("gpu", size)):
        old = pod(f"web-a-{index:04}", on=host, labels={"app": "web"}, gpus=2)
        old["metadata"] = owned(old["metadata"], "ReplicaSet", "web-a")
        new = pending(FULL, **wanting(GPU))
        new["metadata"] |= {"name": f"web-b-{index:04}"}
        new["metadata"] = owned(new["metadata"], "ReplicaSet", "web-b")
        pods += [old, new]
    body = deployment(spec={"replicas": size, "strategy": rolling(1, 0)})
    return {
        "nodes": [labelled(host) for host in names("gpu", size)],
        "deployments": [body, *both("deployments", without="web")],
        "replicasets": [replica_set("web-a", 1), replica_set("web-b", 2)],
        "pods": both("pods", *pods, without="web-1"),
    }


def held(size):
    """Workloads whose pods wait for volumes and claims, each for its own."""
    claims, templates, pods = [], [], []
    for name in names("model", size):
        volume = {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": name}}]}
        pods.append(waiting(name, UNBOUND, **volume))
        spec = {"storageClassName": "none"}
        claims.append({**meta(name, "default"), "spec": spec, "status": {"phase": "Pending"}})
        by_claim = waiting(f"{name}-c", "no device", containers=[container()])
        by_claim["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": name}]
        pods.append(by_claim)
        request = {"name": "gpu", "exactly": {"deviceClassName": "gone"}}
        devices = {"devices": {"requests": [request]}}
        templates.append({**meta(name, "default"), "spec": {"spec": devices}})
    every = [*names("model", size), *(f"{name}-c" for name in names("model", size))]
    return {
        "nodes": [labelled(name) for name in names("gpu", size)],
        "deployments": both("deployments", *map(model, every)),
        "pods": both("pods", *pods),
        "volumeclaims": claims,
        "claimtemplates": templates,
        "resourceclaims": [],
        "storageclasses": [meta(name) for name in names("class", size)],
        "deviceclasses": [meta(name) for name in names("device", size)],
    }


def stopped(size):
    """One workload, all pods of which crash."""
    crash = [waits("CrashLoopBackOff", "back-off", {"exitCode": 1}, 5)]
    killed = [ran(1, reason="OOMKilled")]
    crashing = [started(name, statuses=crash) for name in names("web-c", size)]
    return {
        "pods": both("pods", *crashing, *(started(n, statuses=killed) for n in names("k", size)))
    }


def refused(size):
    """StatefulSets whose pods are refused."""
    bodies, events = [], []
    for name in names("db", size):
        body = model(name)
        bodies.append({**body, "status": {"replicas": 0}})
        about = {"kind": "StatefulSet", "namespace": "default", "name": name}
        said = {"reason": "FailedCreate", "message": "exceeded quota: pods"}
        events.append({**meta(f"e-{name}", "default"), "involvedObject": about, **said})
    return {"statefulsets": bodies, "refusals": events}


# Autoscalers and what they scale


def scaled_look(name, body=None, **more):
    values = more.pop("values", ())
    return look(body or hpa_body(name), values=values, selector=f"app={name}", **more)


def autoscaled(size, **more):
    """HPAs of one namespace, each with its Deployment and two pods."""
    models = names("model", size)
    running = [pod(f"{name}-{n}", labels={"app": name}, gpus=1) for name in models for n in (1, 2)]
    return {
        "hpas": [scaled_look(name) for name in models],
        "deployments": both("deployments", *map(model, models)),
        "pods": both("pods", *running),
        "replicasets": [],
        **more,
    }


def overlapping(size):
    """HPAs in pairs whose targets take each other's pods."""
    found = autoscaled(size)
    for body in found["deployments"][2::2]:
        body["spec"]["template"]["metadata"]["labels"] = {"app": body["metadata"]["name"], "x": "y"}
    for left, right in zip(found["deployments"][2::2], found["deployments"][3::2], strict=True):
        right["spec"]["template"]["metadata"]["labels"] = {"app": left["metadata"]["name"]}
    return found


def owned_targets(size):
    """HPAs of Deployments, and of ReplicaSets that these own."""
    found = autoscaled(size)
    sets = []
    for name in names("model", size):
        body = replica_set(f"{name}-a", 1)
        body["metadata"]["ownerReferences"][0]["name"] = name
        sets.append(body)
    looks = [
        scaled_look(f"{name}-a", hpa_of("ReplicaSet", f"{name}-a")) for name in names("model", size)
    ]
    return {**found, "hpas": [*found["hpas"], *looks], "replicasets": sets}


def absent_targets(size):
    """HPAs whose targets are in another namespace."""
    looks = [
        look(hpa_body(name), target_is_absent=True, selector="") for name in names("model", size)
    ]
    elsewhere = [model(name) for name in names("model", size)]
    for body in elsewhere:
        body["metadata"]["namespace"] = "prod"
    return {"hpas": looks, "deployments": both("deployments", *elsewhere)}


def absent_objects(size):
    """Metrics of Services that are in another namespace."""
    looks = [each for name in names("queue", size) for each in object_look(name)]
    return {
        "hpas": looks,
        "services": both("services", *(service(name, "m", 80) for name in names("queue", size))),
    }


def without_request(size):
    """HPAs on GPUs of workloads that ask for none, and as many GPU nodes."""
    plain = [workload(name) for name in names("model", size)]
    found = autoscaled(size, nodes=[labelled(name) for name in names("gpu", size)])
    return {**found, "deployments": both("deployments", *plain)}


def budget(name, app, **spec):
    selector = {"matchLabels": {"app": app}}
    return {**meta(name, "default"), "spec": {"selector": selector, **spec}}


def budgets(size, **spec):
    """Two budgets for each workload."""
    twice = [(letter, name) for name in names("model", size) for letter in "ab"]
    listed = [budget(f"{name}-{letter}", name, **spec) for letter, name in twice]
    return autoscaled(size, poddisruptionbudgets=listed)


def quotas(size):
    """A quota for each HPA, all of one namespace."""
    hard, used = {f"requests.{GPU}": "1"}, {f"requests.{GPU}": "0"}
    status = {"hard": hard, "used": used}
    body = {"spec": {"hard": hard}, "status": status}
    listed = [{**meta(name, "default"), **body} for name in names("gpus", size)]
    return autoscaled(size, resourcequotas=listed)


def old_series(size):
    """HPAs without values, and a series of each that is old."""
    usage = tuple(
        ({"pod": f"{name}-1", "namespace": "default"}, 900.0) for name in names("model", size)
    )
    return autoscaled(size, prometheus=replace(PROMETHEUS, usage=usage))


# Node pools


def own_pool(name):
    return {"nodeSelector": {"karpenter.sh/nodepool": name}}


def pooled(size, choose=own_pool, **more):
    """Pools at their limits, and for each a pod that waits for it."""
    pools = names("pool", size)
    models = names("model", size)
    chosen = [choose(each) for each in pools]
    full = {"limits": {GPU: "2"}, "resources": {GPU: "2"}}
    return {
        "nodes": [node(labels={**ON_GPUS, "karpenter.sh/nodepool": "other"})],
        "deployments": both(
            "deployments", *(model(name, **spec) for name, spec in zip(models, chosen, strict=True))
        ),
        "pods": both(
            "pods",
            *(waiting(name, FULL, **spec) for name, spec in zip(models, chosen, strict=True)),
        ),
        "nodepools": [pool(name, **full) for name in pools],
        **more,
    }


def refusing(size):
    """Pools that refuse a pod each."""
    said = [
        event(f'Failed to schedule pod, incompatible with nodepool "{name}", no room', f"{of}-x")
        for name, of in zip(names("pool", size), names("model", size), strict=True)
    ]
    roomy = [pool(name) for name in names("pool", size)]
    return {**pooled(size), "nodepools": roomy, "scheduling-events": said}


def failed_claims(size):
    """Pools that get no node, whose claims are gone."""
    listed = [
        event("no stock", f"{name}-x7k2p", "NodeClaim", "InsufficientCapacityError")
        for name in names("pool", size)
    ]
    return {**pooled(size), "claim-events": listed}


def alone(size):
    """Pods of no workload that any pool may take, none of which is Ready."""
    pods = []
    for name in names("job", size):
        found = waiting(name, FULL)
        del found["metadata"]["ownerReferences"]
        pods.append(found)
    ill = [false("Ready", "NodeClassNotReady", "no class")]
    pools = [pool(name, ill) for name in names("pool", size)]
    return {"nodes": [node(labels=ON_GPUS)], "pods": both("pods", *pods), "nodepools": pools}


def below_max(size, choose=own_pool):
    """HPAs that want more than their pools may have."""
    found = pooled(size, choose)
    scaled_ones = tuple(look(hpa_body(name, most=99_999)) for name in names("model", size))
    return {**found, "pods": both("pods"), "hpas": scaled_ones}


def starting(size):
    """Pools with a machine each that has not joined, and a pod that waits for it."""
    roomy = [pool(name) for name in names("pool", size)]
    claims = [
        claim(true("Launched"), name=f"{name}-x7k2p", age_s=900, labels={POOL: name})
        for name in names("pool", size)
    ]
    return {**pooled(size), "nodepools": roomy, "nodeclaims": claims}


def moving(size):
    """Pools that move pods sooner than they start."""
    one = consolidated()
    (body,), (host,) = one["nodepools"], one["nodes"]
    slow = next(each for each in one["pods"] if each["metadata"]["name"] == "web-1")
    pools, hosts, pods = [], [], []
    for name in names("pool", size):
        pools.append({**body, "metadata": {"name": name}})
        hosts.append({**host, **meta(f"gpu-{name}", labels={**ON_GPUS, POOL: name})})
        spec = {**slow["spec"], "nodeName": f"gpu-{name}"}
        pods.append({**slow, "metadata": {**slow["metadata"], "name": f"{name}-1"}, "spec": spec})
    return {"nodes": hosts, "nodepools": pools, "pods": both("pods", *pods, without="web-1")}


def in_groups(size):
    """LeaderWorkerSets, each with a leader that runs and a worker that waits."""
    leader, _, worker, *_ = in_parts()["pods"]
    found = []
    for name in names("llm", size):
        for each in (leader, worker):
            given = {**each["metadata"]["labels"], "leaderworkerset.sigs.k8s.io/name": name}
            called = f"{name}-{each['metadata']['name']}"
            found.append(
                {**each, "metadata": {**each["metadata"], "name": called, "labels": given}}
            )
    return {"pods": both("pods", *found, without="web-1")}


def suspended(size):
    """Jobs for a queue of Kueue that it knows nothing of."""
    found = suspended_job(**{"kueue.x-k8s.io/queue-name": "team-a"})
    (job,) = found["jobs"]
    found["jobs"] = [
        {**job, "metadata": {**job["metadata"], "name": name}} for name in names("job", size)
    ]
    return found


# Nodes, agents and targets


def agents(size, **status):
    """Nodes and their agents, and a target for every other one."""
    hosts = names("gpu", size)
    found = []
    for index, host in enumerate(hosts):
        each = pod(f"agent-{host}", "gpuscale", on=host, labels=AGENT_LABELS, tolerations=ANY)
        each["status"] |= {"podIP": f"10.1.0.{index}", **status}
        found.append(each)
    targets = tuple(
        ({"job": "agents", "instance": f"10.1.0.{index}:9400"}, float(index % 4 > 0))
        for index in range(0, size, 2)
    )
    return {
        "nodes": [labelled(host) for host in hosts],
        "pods": both("pods", *found, without="agent-1"),
        "prometheus": replace(PROMETHEUS, targets=targets),
    }


def bare(size):
    """GPU nodes without GPUs, on which a device plugin does not start."""
    hosts = names("gpu", size)
    plugins = [
        pod(f"p-{host}", on=host, status={"phase": "Pending"}, image=PLUGIN) for host in hosts
    ]
    nodes = [{**BARE[0], **meta(host, labels=ON_GPUS)} for host in hosts]
    return {"nodes": nodes, "pods": both("pods", *plugins)}


def scalers(size):
    """ScaledObjects, each with a scaler of its own, of which one pod runs."""
    objects, services, pods = [], [], []
    for name in names("scaler", size):
        address = f"{name}.gpuscale:6000"
        objects.append(scaled(name, [FAILED], triggers=[trigger(address=address)]))
        body = service(name, "gpuscale", 6000)
        body["spec"]["selector"] = {"app": name}
        services.append(body)
        pods.append(pod(f"{name}-1", "gpuscale", on="cpu-1", labels={"app": name}))
    return with_keda(
        *objects, services=both("services", *services), pods=both("pods", *pods), scalers=()
    )


def refused_by_pools(size):
    """Pods that Cluster Autoscaler adds no node for."""
    full = "pod didn't trigger scale-up: 1 max node group size reached"
    said = [event(full, f"{name}-x", reason="NotTriggerScaleUp") for name in names("model", size)]
    nodes = [labelled(name) for name in names("gpu", size)]
    return waiting_for(nodes, FULL, events=said, **{"autoscaler-status": status_map()})


def on(make, *given, **more):
    """From a number to a cluster with so many nodes of a kind, and as many pods that wait."""
    return lambda size: waiting_for([make(name) for name in names("gpu", size)], *given, **more)


def tainted(name):
    return labelled(name, taints=[TAINT])


def half(make):
    """Every other node of a kind, the others as they should be and too small."""

    def one(name):
        return make(name) if int(name[-4:]) % 2 else labelled(name, gives=1, has=1)

    return one


def wanting_two(choose):
    return lambda host: {**wanting(GPU, 2), **choose(f"{host[:-1]}{int(host[-1]) | 1}")}


def any_node(_host):
    return {}


def own_taint(name):
    return labelled(name, taints=[{"key": name, "effect": "NoSchedule"}])


def tolerating_another(host):
    return tolerating(f"{host}-x")


LEAST = "0/9 nodes are available: 9 Insufficient memory."
GROWING = [
    ("resource-not-offered", on(labelled, FULL, lambda _: wanting(MIG))),
    ("larger-than-any-node", on(labelled, FULL, lambda _: wanting(GPU, 8))),
    ("no-matching-node", on(labelled, FULL, lambda _: {"nodeSelector": {"pool": "gone"}})),
    ("no-matching-node", on(labelled, FULL, lambda host: {"nodeSelector": {"pool": host}})),
    *(
        (check, on(make, message, choose))
        for choose in (any_node, by_name, by_affinity, tolerating)
        for check, make, message in (
            ("taint-not-tolerated", tainted, "untolerated taint"),
            ("no-node-yet", going, "untolerated taint"),
            ("nodes-cordoned", cordoned, "unschedulable"),
            ("unschedulable", labelled, LEAST),
            ("unschedulable", labelled, NONE_FREE),
        )
    ),
    *(
        ("taint-not-tolerated", on(half(tainted), "untolerated taint", wanting_two(choose)))
        for choose in (any_node, by_name)
    ),
    ("unschedulable", on(own_taint, LEAST, tolerating)),
    ("taint-not-tolerated", on(own_taint, "untolerated taint", tolerating_another)),
    ("rollout-without-room", in_use),
    ("rollout-without-room", one_rollout),
    ("volume-not-bound", held),
    ("claim-not-allocated", held),
    ("container-waiting", stopped),
    ("pods-refused", refused),
    ("no-value", autoscaled),
    ("selectors-overlap", overlapping),
    ("target-is-owned", owned_targets),
    ("no-scale-target", absent_targets),
    ("described-object-absent", absent_objects),
    ("no-gpu-request", without_request),
    ("pdb-blocks", lambda size: budgets(size, maxUnavailable=0)),
    ("pdbs-overlap", lambda size: budgets(size, minAvailable=1)),
    ("quota-below-max", quotas),
    ("old-series", old_series),
    ("node-pool-limit", pooled),
    ("node-pool-limit", lambda size: pooled(size, any_node)),
    ("node-pool-refuses", refusing),
    ("node-claim-failed", failed_claims),
    ("node-pool-not-ready", alone),
    ("pools-below-max", below_max),
    ("pools-below-max", lambda size: below_max(size, any_node)),
    ("node-not-registered", starting),
    ("consolidation-too-fast", moving),
    ("group-in-parts", in_groups),
    ("job-suspended", suspended),
    ("node-not-scraped", agents),
    ("device-plugin-not-ready", bare),
    ("scaler-alone", scalers),
    ("node-group-at-max", refused_by_pools),
]
"""A check that finds something in each cluster, and from a number to what is changed in the healthy one."""
