# mypy: disable-error-code="assignment, operator"
"""A run to look at: a small deterministic story of load, GPUs, an HPA and a node pool.

It stands in for the live loop in the tests of the page, so its numbers only need to be plausible.
"""

import math

STEP = 15.0
TARGET = 20.0
WORKLOAD = "bert-intent-detection"
HPA = "HorizontalPodAutoscaler/gpu-hpa"
STEPS = (("idle", 0.0), ("1×", 4.6), ("2×", 9.2), ("4×", 18.4))
PLAN = ((0, 0.0), (120, 4.6), (420, 9.2), (780, 18.4), (1140, 4.6), (1440, 0.0))
METRIC = "DCGM_CUSTOM_PROCESS_SM_UTIL"
NO_METRICS = f"unable to get metric {METRIC}: no metrics returned from custom metrics API"
ACTIVE = f"the HPA was able to successfully calculate a replica count from pods metric {METRIC}"
DESCRIPTION = (
    "A BERT service on Alibaba Cloud ACK, scaled by the SM utilisation of its pods' processes."
)


class FakeRun:
    """A run of which `advance` makes the next points; it satisfies `LiveRun`."""

    def __init__(self, seed=1) -> None:
        self.seed = seed
        self.speed = 10.0
        self.paused = False
        self.broken = []
        self.next = []
        self.now = 0.0
        self.manual = None
        self.max_rate = 1000
        self.times = []
        self.series = {}
        self.events = []
        self.pods = []
        self.nodes = [{"name": "gpu-node-1", "ready_at": 0.0}]
        self.desired = 1
        self.value = None
        self.quiet_since = None
        self.next_suffix = 0
        self._add_pod(0.0)
        self._point()

    def advance(self, steps=1) -> None:
        for _ in range(steps):
            before = self.rate()
            self.now += STEP
            if self.rate() != before:
                self._event(
                    "LoadChanged",
                    f"Deployment/{WORKLOAD}",
                    "load of the scenario",
                    before,
                    self.rate(),
                )
            self._schedule()
            self._decide()
            self._point()

    # ---- the loop

    def scenario_rate(self):
        return [rate for start, rate in PLAN if start <= self.now][-1]

    def rate(self):
        return self.scenario_rate() if self.manual is None else self.manual

    def _add_pod(self, now) -> None:
        letters = "bcdfghjklmnpqrstvwxz2456789"
        self.next_suffix += 1
        tail = "".join(
            letters[(self.next_suffix * k * 7 + k * k) % len(letters)] for k in range(1, 6)
        )
        pod = {
            "name": f"{WORKLOAD}-7b597b89df-{tail}",
            "created": now,
            "node": None,
            "ready_at": None,
        }
        self.pods.append(pod)
        self._event("Created", f"Pod/{pod['name']}", "Created container bert")
        self._schedule()

    def _schedule(self) -> None:
        for node in self.nodes:
            if node["ready_at"] == self.now and self.now > 0:
                self._event(
                    "NodeReady",
                    f"Node/{node['name']}",
                    f"Node {node['name']} status is now: NodeReady",
                )
        for pod in self.pods:
            if pod["ready_at"] == self.now and self.now > 0:
                self._event("Ready", f"Pod/{pod['name']}", "Started container bert")
            if pod["node"] is None:
                self._place(pod)

    def _place(self, pod) -> None:
        taken = {other["node"] for other in self.pods}
        free = [
            node
            for node in self.nodes
            if node["ready_at"] <= self.now and node["name"] not in taken
        ]
        if free:
            pod["node"] = free[0]["name"]
            pod["ready_at"] = self.now + 30
            self._event(
                "Scheduled",
                f"Pod/{pod['name']}",
                f"Successfully assigned default/{pod['name']} to {pod['node']}",
            )
        elif not any(node["ready_at"] > self.now for node in self.nodes):
            why = f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient nvidia.com/gpu."
            self._event("FailedScheduling", f"Pod/{pod['name']}", why)
            size = len(self.nodes)
            self.nodes.append({"name": f"gpu-node-{size + 1}", "ready_at": self.now + 90})
            self._event(
                "TriggeredScaleUp",
                "NodePool/gpu",
                f"pod triggered scale-up: [{{gpu {size}->{size + 1} (max: 4)}}]",
                size,
                size + 1,
            )

    def ready_pods(self):
        return [
            pod for pod in self.pods if pod["ready_at"] is not None and pod["ready_at"] <= self.now
        ]

    def pod_util(self, pod):
        if pod not in self.ready_pods():
            return None
        wave = 1 + 0.06 * math.sin(self.now / 40 + len(pod["name"]) + hash_of(pod["name"]))
        return round(min(100.0, self.rate() * 5 * wave / len(self.ready_pods())), 2)

    def _decide(self) -> None:
        utils = [util for util in map(self.pod_util, self.pods) if util is not None]
        # The scrape that fails for a while: no data is a gap, and the HPA holds.
        self.value = (
            None if 600 <= self.now < 660 or not utils else round(sum(utils) / len(utils), 2)
        )
        if self.value is None:
            self._event(
                "FailedGetPodsMetric",
                HPA,
                NO_METRICS,
            )
            return
        ratio = self.value / TARGET
        wanted = (
            len(self.pods) if abs(ratio - 1) <= 0.1 else math.ceil(len(self.ready_pods()) * ratio)
        )
        self._resize(max(1, min(4, wanted)))

    def _resize(self, wanted) -> None:
        current = len(self.pods)
        self.desired = wanted
        if wanted >= current:
            self.quiet_since = None
        if wanted > current:
            self._event(
                "SuccessfulRescale",
                HPA,
                f"New size: {wanted}; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target",
                current,
                wanted,
            )
            for _ in range(wanted - current):
                self._add_pod(self.now)
        elif wanted < current:
            self.quiet_since = self.now if self.quiet_since is None else self.quiet_since
            if self.now - self.quiet_since >= 120:
                self._shrink(current, wanted)

    def _shrink(self, current, wanted) -> None:
        self._event(
            "SuccessfulRescale",
            HPA,
            f"New size: {wanted}; reason: All metrics below target",
            current,
            wanted,
        )
        for pod in self.pods[wanted:]:
            self._event("Killing", f"Pod/{pod['name']}", "Stopping container bert")
        del self.pods[wanted:]
        used = {pod["node"] for pod in self.pods} | {"gpu-node-1"}
        for node in [node for node in self.nodes if node["name"] not in used]:
            self.nodes.remove(node)
            self._event(
                "ScaleDown", f"Node/{node['name']}", "marked the node as toBeDeleted/unschedulable"
            )

    def _event(self, kind, name, reason, before=None, after=None) -> None:
        self.events.append(
            {
                "t": self.now,
                "kind": kind,
                "object": name,
                "from": before,
                "to": after,
                "reason": reason,
            }
        )

    # ---- series

    def _point(self) -> None:
        row = {
            f"load/{WORKLOAD}": self.rate(),
            "hpa/gpu-hpa/value": self.value,
            "hpa/gpu-hpa/target": TARGET,
            "hpa/gpu-hpa/desired": self.desired,
            "hpa/gpu-hpa/current": len(self.pods),
            f"replicas/{WORKLOAD}/ready": len(self.ready_pods()),
            "pods/pending": len(self.pods) - len(self.ready_pods()),
            "nodes/gpu/ready": sum(node["ready_at"] <= self.now for node in self.nodes),
            "nodes/gpu/total": len(self.nodes),
        }
        for node in self.nodes:
            if node["ready_at"] <= self.now:
                row[f"gpu/{node['name']}/0"] = self._gpu_util(node["name"])
        for pod in self.ready_pods():
            row[f"pod/default/{pod['name']}"] = self.pod_util(pod)
        for name in row.keys() - self.series.keys():
            self.series[name] = [None] * len(self.times)
        self.times.append(self.now)
        for name, values in self.series.items():
            values.append(row.get(name))

    def _gpu_util(self, node):
        if 600 <= self.now < 660 and node == "gpu-node-1":
            return None
        pods = [pod for pod in self.ready_pods() if pod["node"] == node]
        return self.pod_util(pods[0]) if pods else 0.0

    # ---- LiveRun

    def document(self):
        return {
            "scenario": "ack-bert",
            "seed": self.seed,
            "speed": self.speed,
            "started": "2026-01-01T00:00:00Z",
            "description": DESCRIPTION,
            "summary": self.summary(),
            "events": list(self.events),
            "series": {
                "t": list(self.times),
                **{name: list(self.series[name]) for name in sorted(self.series)},
            },
        }

    def summary(self):
        return {
            "duration": self.now,
            "hpas": {"gpu-hpa": {"maxReplicas": 4, "finalReplicas": len(self.pods), "rescales": 5}},
            "nodePools": {"gpu": {"maxNodes": 4, "finalNodes": len(self.nodes)}},
            "completedJobs": 0,
            "gpuHours": 0.9,
            "cost": 1.47,
            "currency": "USD",
            "requests": {
                WORKLOAD: {"arrived": 12144, "served": 12144, "waiting": 0, "rejected": 0}
            },
            "scaleOuts": {
                "count": 3,
                "ready": 3,
                "loadRises": 3,
                "meanLoadToDecisionTime": 30,
                "meanLoadToReadyTime": 150,
                "meanDecisionToReadyTime": 120,
            },
        }

    def since(self, points, events):
        start = min(points, len(self.times))
        return {
            "points": start,
            "t": self.times[start:],
            "series": {name: self.series[name][start:] for name in sorted(self.series)},
            "events": self.events[events:],
            "totals": {"points": len(self.times), "events": len(self.events)},
        }

    def state(self):
        return {
            "t": self.now,
            "running": True,
            "speed": self.speed,
            "paused": self.paused,
            "broken": list(self.broken),
            "next": self.next,
            "lags": {
                "latest": {
                    "workload": WORKLOAD,
                    "from": 1,
                    "to": 2,
                    "at": 60.0,
                    "hops": [["HPA sync", 0.0, 15.0], ["node ready", 15.0, 115.0]],
                },
                "spread": [
                    ["HPA sync", 3, 15.0, 22.5],
                    ["scheduled", 1, 4.0, 4.0],
                    ["node ready", 3, 100.0, 140.0],
                    ["in all", 3, 115.0, 160.0],
                ],
            },
            "addresses": {
                "page": "http://127.0.0.1:8080",
                "prometheus": "http://127.0.0.1:9090",
                "metricsApi": "http://127.0.0.1:6443",
                "nodeAgents": {
                    node["name"]: f"http://127.0.0.1:94{i:02}/metrics"
                    for i, node in enumerate(self.nodes)
                },
            },
            "workloads": [self._workload()],
            "hpas": [self._hpa()],
            "nodes": [self._node(node) for node in self.nodes],
            "pods": [self._pod(pod) for pod in self.pods],
            "jobs": {"total": 0, "active": 0, "completed": 0, "workloads": [], "items": []},
            "figures": [
                ["Load rise to decision", "30 s"],
                ["Load rise to ready pods", "2 min 30 s"],
            ],
        }

    def _workload(self):
        return {
            "name": WORKLOAD,
            "rate": self.rate(),
            "mode": "scenario" if self.manual is None else "manual",
            "scenarioRate": self.scenario_rate(),
            "ready": len(self.ready_pods()),
            "pending": len(self.pods) - len(self.ready_pods()),
            "queue": 0,
            "steps": [{"label": name, "rate": rate} for name, rate in STEPS],
        }

    def _hpa(self):
        shown = "<unknown>" if self.value is None else f"{self.value * 1000:g}m"
        current = len(self.pods)
        ratio = (
            "no value"
            if self.value is None
            else f"{self.value:g} / {TARGET:g} = {self.value / TARGET:.2f}"
        )
        return {
            "name": "gpu-hpa",
            "workload": WORKLOAD,
            "reference": f"Deployment/{WORKLOAD}",
            "targets": f"{shown}/{TARGET:g}",
            "metrics": [metric_figure(self.value, TARGET)],
            "min": 1,
            "max": 4,
            "current": current,
            "desired": self.desired,
            "conditions": self._conditions(),
            "explanation": [
                f"pods metric DCGM_CUSTOM_PROCESS_SM_UTIL: {ratio}, tolerance 0.1",
                f"{len(self.ready_pods())} ready pods times the ratio, rounded up: {self.desired}",
                f"bounded to 1..4: {self.desired}",
            ],
        }

    def _conditions(self):
        active = self.value is not None
        return [
            {
                "type": "AbleToScale",
                "status": "True",
                "reason": "ReadyForNewScale",
                "message": "recommended size matches current size",
            },
            {
                "type": "ScalingActive",
                "status": "True" if active else "False",
                "reason": "ValidMetricFound" if active else "FailedGetPodsMetric",
                "message": ACTIVE if active else NO_METRICS,
            },
            {
                "type": "ScalingLimited",
                "status": "True" if self.desired == 4 else "False",
                "reason": "TooManyReplicas" if self.desired == 4 else "DesiredWithinRange",
                "message": "the desired replica count is more than the maximum replica count"
                if self.desired == 4
                else "the desired count is within the acceptable range",
            },
        ]

    def _node(self, node):
        ready = node["ready_at"] <= self.now
        util = self._gpu_util(node["name"]) if ready else None
        pods = [pod["name"] for pod in self.pods if pod["node"] == node["name"]]
        gpu = {
            "index": 0,
            "uuid": f"GPU-00000000-0000-0000-0000-{hash_of(node['name']):012d}",
            "model": "NVIDIA A10",
            "util": util,
            "memoryUsedMib": 5412 if pods else 3,
            "memoryTotalMib": 23028,
            "temperatureC": None if util is None else round(34 + util * 0.4, 1),
            "powerW": None if util is None else round(22 + util * 1.28, 1),
            "pod": f"default/{pods[0]}" if pods else None,
        }
        return {"name": node["name"], "pool": "gpu", "ready": ready, "gpus": [gpu] if ready else []}

    def _pod(self, pod):
        ready = pod in self.ready_pods()
        return {
            "name": pod["name"],
            "namespace": "default",
            "phase": "Running" if ready else "Pending",
            "ready": ready,
            "node": pod["node"],
            "age": self.now - pod["created"],
        }

    @property
    def orders(self):
        return {"pace": order_of(self, "set_pace"), "fault": order_of(self, "set_fault")}

    async def set_pace(self, asked) -> None:
        if asked.get("speed", 1) > 100:
            raise ValueError("speed: found too much")
        self.speed = asked.get("speed", self.speed)
        self.paused = asked.get("paused", self.paused)

    async def set_fault(self, asked) -> None:
        part = {key: asked.get(key) for key in ("kind", "node", "gpu")}
        self.broken = [each for each in self.broken if {**each, **part} != each]
        if asked["broken"]:
            self.broken.append({**part, "since": self.now})

    def set_load(self, workload, rate) -> None:
        if workload != WORKLOAD:
            raise ValueError(f"no workload is called {workload!r}; there is {WORKLOAD}")
        if rate is not None and rate > self.max_rate:
            raise ValueError(f"found {rate:g} requests/s, expected at most {self.max_rate}")
        self.manual = rate


def metric_figure(value, target, unit="", *, decides=False):
    """Return a metric as the live loop's state has it."""
    ratio = None if value is None else value / target
    figure = {"name": METRIC, "value": value, "target": target, "ratio": ratio, "unit": unit}
    return {**figure, "decides": decides}


def order_of(run, name):
    """Return an order that a test may replace while the page is served."""

    async def give(asked) -> None:
        await getattr(run, name)(asked)

    return give


def hash_of(text):
    """Return a small number that stays the same from run to run, unlike `hash`."""
    return sum(ord(letter) * (i + 1) for i, letter in enumerate(text)) % 97


def finished_run(steps=120):
    """Return a run of half an hour of scenario time."""
    run = FakeRun()
    run.advance(steps)
    return run
