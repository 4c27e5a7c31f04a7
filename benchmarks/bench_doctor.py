"""`gpuscale doctor` and `gpuscale top` on large clusters: seconds and memory of the command, over four sizes.

A stand-in for the API server, in a process of its own, serves nodes, pods, Deployments, HPAs and leases in
pages, each agent's metrics by way of the pods, and the metrics that the HPAs ask for. The largest cluster
has 2 000 nodes, 10 000 pods and 1 000 HPAs; of the nodes, a quarter is not Ready. Takes about two minutes.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import harness
from gpuscale.signals import DEFAULT_COUNTERS
from gpuscale.testing.api_server import FakeApiServer

SIZES = (250, 500, 1000, 2000)
"""Nodes; there are five pods for each, and an HPA for every other."""
GPUS = 8
NAMESPACES = 20
LIMIT_S = 20.0
PICTURE_NODES, PICTURE_S = 500, 5.0
UTIL = "DCGM_FI_DEV_GPU_UTIL"
FIELDS = {
    UTIL: 40,
    **{row.field: 0 for row in DEFAULT_COUNTERS if row.type != "label" and row.field != UTIL},
}
"""What an agent serves of each GPU."""
APPS, SCALING = "/apis/apps/v1", "/apis/autoscaling/v2"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
AGENT = {"app.kubernetes.io/name": "gpuscale", "app.kubernetes.io/component": "node-agent"}


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    figures = []
    for nodes in SIZES:
        measured, pictures = cluster_of(nodes, runs)
        seconds = [each["seconds"] for each in measured]
        limit = LIMIT_S if nodes == SIZES[-1] else None
        name = f"{nodes} nodes, {5 * nodes} pods, {nodes // 2} HPAs"
        figures.append(harness.figure(f"{name}: the command", "s", seconds, at_most=limit))
        cpu = [each["cpu"] for each in measured]
        figures.append(harness.figure(f"{name}: its CPU time", "s", cpu))
        rss = [each["rss_mib"] for each in measured]
        figures.append(harness.figure(f"{name}: resident memory", "MiB", rss))
        lines = [each["lines"] for each in measured]
        figures.append(harness.figure(f"{name}: lines of the report", "", lines))
        limit = PICTURE_S if nodes == PICTURE_NODES else None
        seconds = [each["seconds"] for each in pictures]
        figures.append(harness.figure(f"{name}: top, one picture", "s", seconds, at_most=limit))
        rss = [each["rss_mib"] for each in pictures]
        figures.append(harness.figure(f"{name}: top, resident memory", "MiB", rss))
    return harness.write(
        "doctor",
        figures,
        packages=["lightkube", "msgspec", "aiohttp"],
        settings={"gpus_per_node": GPUS, "namespaces": NAMESPACES, "not_ready": "1 of 4 nodes"},
    )


def cluster_of(nodes: int, runs: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return what runs of doctor and of top took on a cluster of a size."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(nodes, there))
    process.start()
    try:
        port, token = here.recv()
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(config(port, token))
            diagnoses = [diagnosed(kubeconfig, nodes) for _ in range(runs)]
            return diagnoses, [pictured(kubeconfig, nodes) for _ in range(runs)]
    finally:
        process.terminate()
        process.join()


def diagnosed(kubeconfig: Path, nodes: int) -> dict[str, float]:
    """Return what one diagnosis took."""
    code, said, taken = run("doctor", f"--kubeconfig={kubeconfig}")
    seen = f"HPAs {nodes // 2}, metrics {nodes // 2}"
    if code != 1 or seen not in said or "[gpu-node-not-ready]" not in said:
        raise RuntimeError(f"another answer than expected: {said[-2000:]}")
    return {**taken, "lines": len(said.splitlines())}


def pictured(kubeconfig: Path, nodes: int) -> dict[str, float]:
    """Return what one picture took."""
    code, said, taken = run("top", f"--kubeconfig={kubeconfig}", "--output=json")
    document = json.loads(said)
    found = len(document["nodes"]), len(document["workloads"]), len(document["gpus"]) > 0
    if code or found != (nodes, nodes // 2, True):
        raise RuntimeError(f"another answer than expected: {found} {document['unseen']}")
    return taken


def run(*words: str) -> tuple[int, str, dict[str, float]]:
    """Return exit code and output of one run, and what it took, of its child process alone."""
    command = [str(Path(sys.executable).parent / "gpuscale"), *words]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Each run's own: RUSAGE_CHILDREN knows only the largest of all so far.
    taken = {"seconds": seconds, "cpu": cpu_s, "rss_mib": used.ru_maxrss / 1024}
    return process.returncode, said, taken


def config(port: int, token: str) -> str:
    """Return a kubeconfig."""
    return json.dumps(
        {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


# The cluster


def serve(nodes: int, pipe: Connection) -> None:
    """Serve a cluster until the process ends."""
    asyncio.run(_serve(nodes, pipe))


async def _serve(nodes: int, pipe: Connection) -> None:
    async with FakeApiServer() as server:
        fill(server, nodes)
        pipe.send((server.port, server.token))
        await asyncio.Event().wait()


def fill(server: FakeApiServer, nodes: int) -> None:
    """Put the objects of a cluster into a server."""
    now = datetime.now(UTC).isoformat()
    listed: dict[str, list[dict[str, Any]]] = {
        "/api/v1/nodes": [node(index) for index in range(nodes)],
        "/api/v1/pods": [pod for index in range(nodes) for pod in pods(index, now)],
        "/api/v1/services": [],
        f"{APPS}/deployments": [deployment(index) for index in range(nodes // 2)],
        f"{APPS}/replicasets": [replica_set(index) for index in range(nodes // 2)],
        f"{APPS}/daemonsets": [],
        f"{APPS}/statefulsets": [],
        "/apis/batch/v1/jobs": [],
        "/api/v1/events": [],
        f"{SCALING}/horizontalpodautoscalers": [hpa(index) for index in range(nodes // 2)],
        LEASES: [
            {**meta(f"gpu-{index}", "kube-node-lease"), "spec": {"renewTime": now}}
            for index in range(nodes)
        ],
        "/apis/apiregistration.k8s.io/v1/apiservices": [api_service()],
    }
    server.objects = {
        path: {f"{index}": each for index, each in enumerate(items)}
        for path, items in listed.items()
    }
    versions = [{"groupVersion": "autoscaling/v2", "version": "v2"}]
    server.others["/readyz"] = {}
    server.others["/apis/autoscaling"] = {"versions": versions}
    group = "/apis/custom.metrics.k8s.io/v1beta2"
    server.others[group] = {"resources": [{"name": f"pods/{UTIL}"}]}
    for number in range(NAMESPACES):
        values = [
            value(pod["metadata"]["name"], f"team-{number}", now)
            for pod in listed["/api/v1/pods"]
            if pod["metadata"]["namespace"] == f"team-{number}"
        ]
        path = f"{group}/namespaces/team-{number}/pods/*/{UTIL}"
        server.others[path] = {"items": values}
    for index in range(nodes):
        path = f"/api/v1/namespaces/gpuscale/pods/agent-{index}:9400/proxy/metrics"
        server.others[path] = metrics(index)


def metrics(index: int) -> str:
    """Return what the agent of a node serves; its readings have no time, so that no run is late."""
    rows = [
        f'{field}{{gpu="{gpu}",UUID="GPU-{index}-{gpu}",pci_bus_id="00000000:1A:00.0",device="nvidia{gpu}",'
        f'modelName="NVIDIA H200",Hostname="gpu-{index}",DCGM_FI_DRIVER_VERSION="570.86.15",'
        f'namespace="{namespace(index // 2)}",pod="web-{index // 2}-{index}-{gpu % 4}"}} {value}'
        for field, value in FIELDS.items()
        for gpu in range(GPUS)
    ]
    return "\n".join(["gpuscale_exporter_collect_up 1", *rows, ""])


def meta(name: str, namespace: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an object's metadata, with about as many managed fields as real ones have."""
    place = {} if namespace is None else {"namespace": namespace}
    managed = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:x": {}}}}]
    return {"metadata": {"name": name, **place, "managedFields": managed * 3, **more}}


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    """Return one condition."""
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", **more}


def node(index: int) -> dict[str, Any]:
    """Return a node; each fourth is not Ready."""
    lost = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    ready = condition("Ready") if index % 4 else condition("Ready", "Unknown", **lost)
    amounts = {"nvidia.com/gpu": str(GPUS), "cpu": "96", "memory": "768Gi", "pods": "110"}
    labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/hostname": f"gpu-{index}"}
    return {
        **meta(f"gpu-{index}", labels=labels),
        "spec": {"taints": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def spec(name: str, gpus: int) -> dict[str, Any]:
    """Return the spec of a pod."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    ports = [{"name": "metrics", "containerPort": 9400}]
    box = {"name": name, "image": "model:1", "resources": resources, "ports": ports}
    return {"containers": [box], "tolerations": [{"operator": "Exists"}]}


def pods(index: int, now: str) -> list[dict[str, Any]]:
    """Return the agent of a node, and four pods of the workload that it has."""
    up = "True" if index % 4 else "False"
    status = {
        "phase": "Running",
        "podIP": f"10.{index // 200}.{index % 200}.1",
        "conditions": [
            condition("Ready", up),
            {**condition("PodScheduled"), "lastTransitionTime": now},
        ],
    }
    agent = {
        **meta(f"agent-{index}", "gpuscale", labels=AGENT),
        "spec": {**spec("agent", 0), "nodeName": f"gpu-{index}"},
        "status": status,
    }
    owner = [{"kind": "ReplicaSet", "name": f"web-{index // 2}-x", "controller": True}]
    return [
        agent,
        *(
            {
                **meta(
                    f"web-{index // 2}-{index}-{number}",
                    namespace(index // 2),
                    labels={"app": f"web-{index // 2}"},
                    ownerReferences=owner,
                ),
                "spec": {**spec("model", 2), "nodeName": f"gpu-{index}"},
                "status": status,
            }
            for number in range(4)
        ),
    ]


def namespace(workload: int) -> str:
    """Return where a workload is."""
    return f"team-{workload % NAMESPACES}"


def template(index: int) -> dict[str, Any]:
    """Return selector and template of a workload."""
    labels = {"app": f"web-{index}"}
    return {
        "replicas": 8,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec("model", 2)},
    }


def deployment(index: int) -> dict[str, Any]:
    """Return a Deployment of eight pods."""
    status = {"replicas": 8, "conditions": [condition("Available")]}
    return {**meta(f"web-{index}", namespace(index)), "spec": template(index), "status": status}


def replica_set(index: int) -> dict[str, Any]:
    """Return the Deployment's ReplicaSet."""
    owner = [{"kind": "Deployment", "name": f"web-{index}", "controller": True}]
    found = meta(f"web-{index}-x", namespace(index), ownerReferences=owner)
    return {**found, "spec": template(index), "status": {"replicas": 8}}


def hpa(index: int) -> dict[str, Any]:
    """Return the Deployment's HPA."""
    target = {"type": "AverageValue", "averageValue": "60"}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"web-{index}"}
    return {
        **meta(f"web-{index}", namespace(index)),
        "spec": {
            "scaleTargetRef": reference,
            "minReplicas": 1,
            "maxReplicas": 16,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": UTIL}, "target": target}}],
        },
        "status": {
            "currentReplicas": 8,
            "desiredReplicas": 8,
            "conditions": [condition("ScalingActive")],
        },
    }


def api_service() -> dict[str, Any]:
    """Return the APIService of the metrics API."""
    service = {"name": "gpuscale-metrics-api", "namespace": "gpuscale", "port": 443}
    group = "custom.metrics.k8s.io"
    return {
        **meta(f"v1beta2.{group}"),
        "spec": {"group": group, "version": "v1beta2", "service": service},
        "status": {"conditions": [condition("Available")]},
    }


def value(pod: str, place: str, now: str) -> dict[str, Any]:
    """Return a pod's value."""
    about = {"kind": "Pod", "namespace": place, "name": pod, "apiVersion": "/v1"}
    return {"describedObject": about, "metric": {"name": UTIL}, "timestamp": now, "value": "40"}


if __name__ == "__main__":
    sys.exit(main())
