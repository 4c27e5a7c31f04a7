"""Workloads, ScaledObjects and ScaledJobs to scale by KEDA, and every count that a Deployment was given."""

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection

from gpuscale_testing import wait_until

PATH = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name, replicas=0):
    labels = {"app": name}
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "model", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }


def prometheus_trigger(url, query, threshold):
    """Return KEDA's own trigger on a Prometheus."""
    metadata = {"serverAddress": url, "query": query, "threshold": str(threshold)}
    return {"type": "prometheus", "metadata": metadata}


def scaled_object(name, *triggers, most=8, polling_s=1, cooldown_s=3, **more):
    """Return a ScaledObject for the Deployment of this name, whose HPA comes down at once."""
    down = {"stabilizationWindowSeconds": 0}
    spec = {
        "scaleTargetRef": {"name": name},
        "pollingInterval": polling_s,
        "cooldownPeriod": cooldown_s,
        "minReplicaCount": 0,
        "maxReplicaCount": most,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
        "triggers": list(triggers),
        **more,
    }
    return _keda("ScaledObject", name, spec)


def scaled_job(name, *triggers, most=4, polling_s=1):
    """Return a ScaledJob whose Jobs take a GPU each."""
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "job", "image": "none", "resources": {"limits": limits}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {
        "jobTargetRef": {"template": {"spec": pod}, "backoffLimit": 0},
        "pollingInterval": polling_s,
        "maxReplicaCount": most,
        "triggers": list(triggers),
    }
    return _keda("ScaledJob", name, spec)


def _keda(kind, name, spec):
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def apply(plane, *objects):
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


@dataclass(frozen=True, slots=True)
class Asked:
    """A Deployment's `spec.replicas` from a time on."""

    at: float
    """Of the monotonic clock."""
    name: str
    replicas: int


class ReplicaWatch:
    """Sees each change of `spec.replicas` of the Deployments in `default`, from `with` to its end."""

    def __init__(self, plane) -> None:
        self.seen = []
        self._plane = plane
        self._context = plane.ssl_context()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)

    def counts(self, name, since=0.0):
        """Return the counts of a Deployment in order."""
        return [asked.replicas for asked in self.of(name) if asked.at >= since]

    def of(self, name):
        return [asked for asked in tuple(self.seen) if asked.name == name]

    def await_count(self, name, count, timeout_s=60.0):
        """Return when a Deployment's count became this, once that is its newest."""

        def look():
            own = self.of(name)
            return own[-1] if own and own[-1].replicas == count else None

        what = f"{name} to be asked for {count}, after {self.counts(name)}"
        return wait_until(look, what, timeout_s, every_s=0.02).at

    def _run(self) -> None:
        while not self._stop.is_set():
            address = ("127.0.0.1", self._plane.port)
            self._connection = connection = HTTPSConnection(*address, context=self._context)
            with suppress(OSError, HTTPException, ValueError):
                connection.request("GET", f"{PATH}?watch=true&timeoutSeconds=86400")
                response = connection.getresponse()
                while not self._stop.is_set() and (line := response.readline()):
                    self._take(json.loads(line))
            connection.close()

    def _take(self, event) -> None:
        found = event["object"]
        if event["type"] not in ("ADDED", "MODIFIED"):
            return
        name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
        own = self.of(name)
        if not own or own[-1].replicas != replicas:
            self.seen.append(Asked(time.monotonic(), name, replicas))
