"""Scenarios drawn by number, as different as the simulator takes them: what is asked of GPUs, and when.

Most run by formula. Intervals and loads are such that scrapes, rules, looks and syncs fall between each
other in all orders, pods and nodes come and go, and some values are older than PromQL looks back.
"""

import random
from collections.abc import Sequence

from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup

OWNER = {"dcgm": ("exported_namespace", "exported_pod"), "ack": ("NamespaceName", "PodName")}
"""By style: the labels of the pod that holds a GPU."""
OF_DEVICES = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
)
OF_PROCESSES = (
    "DCGM_CUSTOM_PROCESS_SM_UTIL",
    "DCGM_CUSTOM_PROCESS_MEM_COPY_UTIL",
    "DCGM_CUSTOM_PROCESS_MEM_USED",
)
NAMESPACES = ("default", "ml")
COUNTERS = (
    "DCGM_FI_DEV_GPU_UTIL, gauge, u\nDCGM_FI_DEV_FB_USED, gauge, u\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n",
    "DCGM_FI_DEV_FB_FREE, gauge, u\nDCGM_FI_DRIVER_VERSION, label, d\n",
)
BATCHES = "batch_size,prompt_size,prompt_time,token_time\n1,500,40,20\n8,500,90,25\n32,500,300,40\n"
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: s{i}, namespace: {where}}}
spec:
  replicas: {low}
  selector: {{matchLabels: {{app: s{i}}}}}
  template:
    metadata: {{labels: {{app: s{i}}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{{limits}}}}}}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: s{i}, namespace: {where}}}
spec: {{selector: {{app: s{i}}}, ports: [{{port: 80}}]}}
---
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: s{i}, namespace: {where}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: s{i}}}
  minReplicas: {low}
  maxReplicas: {high}
  metrics: [{metrics}]
---
"""
SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: s{i}, namespace: {where}}}
spec:
  scaleTargetRef: {{name: s{i}}}
  minReplicaCount: 0
  maxReplicaCount: {high}
  pollingInterval: 10
  cooldownPeriod: 60
  {fallback}
  triggers: [{triggers}]
---
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: train, namespace: {where}}}
spec:
  template:
    metadata: {{labels: {{app: train}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{{resource}: {gpus}}}}}}}]}}
---
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: drawn}}
spec:
  duration: {duration}m
  seed: {seed}
  manifests: [{{file: manifests}}]
  rules: {{file: rules}}
  recordingRules: {{file: recorded}}
  {counters}
  hpaChanges: [{changes}]
  pipeline:
    style: {style}
    agentService: {service}
    agentNamespace: {agents}
    kubernetesVersion: "{release}"
    collectInterval: {collect}
    scrapeInterval: {scrape}
    ruleInterval: {rule}
    relistInterval: {relist}s
    hpaSyncPeriod: {sync}
    downscaleStabilization: {stabilization}s
  nodeAutoscaler: {{unneededTime: {unneeded}s, delayAfterAdd: 60s}}
  gpuModels:
  - {{name: Small, memoryGib: 8}}
  - {{name: Other, vendor: AMD, memoryGib: 48}}
  nodePools:
  - {{name: a, gpuModel: {model}, gpus: {gpus}, min: {least}, max: {most}, provisioningTime: {provisioning}s}}
  - {{name: b, gpuModel: {other}, gpus: 2, min: {other_least}, max: 2, provisioningTime: 30s}}
  workloads: [{workloads}]
"""


def drawn_setup(number: int) -> Setup:
    """Return the scenario of a number."""
    return _Drawing(number).setup()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Expressions:
    """PromQL over what GPUs read, what pods serve, and what rules recorded."""

    def __init__(self, draw: random.Random, style: str, service: str, agents: str) -> None:
        self.recorded: list[str] = []
        self._draw = draw
        self._namespace, self._pod = OWNER[style]
        self._fields = OF_DEVICES + (OF_PROCESSES if style == "ack" else ())
        self._agent = f'job="{service}"', f'namespace="{agents}"'

    def field(self) -> str:
        return self._draw.choice((OF_DEVICES[0], *self._fields))

    def aggregation(self, by: str | None = None) -> str:
        """Return what has a formula."""
        operator = self._draw.choice(("avg", "sum", "min", "max", "count"))
        labels = self._labels() if by is None else by
        grouped = f" by ({labels})" if labels or self._draw.random() < 0.3 else ""
        return f"{operator}{grouped} ({self.field()}{self._matchers()})"

    def vector(self, depth: int = 2) -> str:
        """Return any PromQL, so deep."""
        draw = self._draw
        if depth == 0 or draw.random() < 0.25:
            return self._atom()
        inner, number, by = (
            self.vector(depth - 1),
            draw.choice((0, 0.5, 2, 40, 100)),
            self._labels(),
        )
        recorded = draw.choice(self.recorded or ["queue"])
        forms = (
            f"{inner} * {number}",
            f"{number} - {inner}",
            f"{inner} > {number}",
            f"{inner} > bool {number}",
            f"-({inner})",
            f"({inner}) % 7 ^ 2",
            f"({inner}) / on () group_left () {self.aggregation(by='')}",
            f"({inner}) + on ({by}) ({self.vector(depth - 1)})",
            f"({inner}) == ({inner})",
            f"({inner}) and on ({by}) ({self._atom()})",
            f"({inner}) unless on ({by}) ({self._atom()})",
            f"({inner}) or ({self._atom()})",
            f"({inner}) or vector({number})",
            f"clamp_max({inner}, {number})",
            f"round({inner} / 3, 0.1)",
            f"sort_desc({inner})",
            f"absent({inner})",
            f"timestamp({inner})",
            f"time() - timestamp({inner})",
            f"vector(scalar({inner})) + time()",
            f'label_replace({inner}, "x", "$1", "{self._pod}", "(.)..*")',
            f'label_join({inner}, "x", "-", "{self._namespace}", "job")',
            f"sum by ({by}) ({inner})",
            f"avg without ({self._pod}) ({inner})",
            f"max by ({by}) ({inner})",
            f"group by ({by}) ({inner})",
            f"stddev by ({by}) ({inner})",
            f"quantile by ({by}) (0.7, {inner})",
            f'count_values by ({by}) ("x", {inner})',
            f"topk(1, {inner})",
            f"bottomk by ({by}) (1, {inner})",
            f"limit_ratio(0.5, {inner})",
            f"avg_over_time({recorded}[2m])",
            f"max_over_time(({inner})[2m:20s])",
            f"changes({recorded}[4m])",
            f"{recorded} offset 30s",
            f"sum({recorded} @ end())",
        )
        return draw.choice(forms)

    def _atom(self) -> str:
        kind = self._draw.random()
        if kind < 0.6:
            return self.aggregation()
        if kind < 0.8 and self.recorded:
            return self._draw.choice(self.recorded)
        served = (
            "sum by (namespace, service) (queue)",
            "sum(rate(requests_total[2m]))",
            "max by (pod) (inflight)",
            'sum(gpuscale_simulated_requests_waiting{deployment="s0"})',
            "histogram_quantile(0.9, sum by (le) (rate(latency_bucket[2m])))",
        )
        return self._draw.choice(served)

    def _labels(self) -> str:
        agent = ("job", "service", "namespace", "endpoint", "container")
        names = self._draw.sample(
            (self._namespace, self._pod, *agent), self._draw.choice((0, 1, 1, 2, 2, 3))
        )
        return ", ".join(names)

    def _matchers(self) -> str:
        some = (
            f'{self._pod}!=""',
            f'{self._pod}=""',
            f'{self._pod}=~"s[01]-.*"',
            f'{self._pod}!~"s1-.*"',
            f'{self._namespace}="ml"',
            f'{self._namespace}=~"default|ml"',
            f'{self._namespace}!="ml"',
            *self._agent,
            'container="exporter"',
            'endpoint!="metrics"',
            'job=~"nothing|such"',
        )
        chosen = self._draw.sample(some, self._draw.choice((0, 0, 1, 1, 2)))
        return "{" + ", ".join(chosen) + "}" if chosen else ""


class _Drawing:
    """One scenario in the making."""

    def __init__(self, number: int) -> None:
        self._number = number
        draw = self._draw = random.Random(number)
        self._style = draw.choice(("dcgm", "dcgm", "ack"))
        agents = (("dcgm-exporter", "default"), ("nvidia-dcgm-exporter", "gpu-operator"))
        self._service, self._agents = draw.choice(agents)
        self._promql = _Expressions(draw, self._style, self._service, self._agents)
        self._model = draw.choice(("Tesla T4", "L40S", "Small", "Other"))
        self._resource = "amd.com/gpu" if self._model == "Other" else "nvidia.com/gpu"
        self._gpus = draw.choice((1, 2, 4))
        self._custom: list[str] = []
        self._external: list[str] = []
        self._metrics: dict[str, list[tuple[str, str]]] = {"Pods": [], "Object": [], "External": []}
        """By the kind of metric: its name, and the series or what it is of."""
        self._manifests: list[str] = []
        self._workloads: list[str] = []
        self._changes: list[str] = []

    def setup(self) -> Setup:
        draw = self._draw
        recorded = "".join(self._group(index) for index in range(draw.choice((0, 1, 1, 2))))
        self._adapter_rules()
        for index in range(draw.randint(2, 4)):
            self._deployment(index)
        if draw.random() < 0.4:
            self._job()
        counters = draw.choice(("", "", "", *COUNTERS))
        seconds = ("5s", "5s", "15s", "15s", "15s", "20s", "60s", "60s", "1500ms", "400s")
        text = SCENARIO.format(
            duration=draw.choice((4, 4, 4, 6, 9)),
            seed=self._number,
            counters="counters: {file: counters}" if counters else "",
            changes=", ".join(self._changes),
            style=self._style,
            service=self._service,
            agents=self._agents,
            release=draw.choice(("1.36", "1.37")),
            collect=draw.choice(("500ms", "1s", "10s", "40s")),
            scrape=draw.choice(seconds),
            rule=draw.choice(("5s", "7s", "30s", "2500ms")),
            relist=draw.choice((15, 30, 60, 400)),
            sync=draw.choice(("5s", "15s", "20s", "6500ms")),
            stabilization=draw.choice((0, 60)),
            unneeded=draw.choice((0, 60)),
            model=self._model,
            gpus=self._gpus,
            least=draw.choice((0, 1, 2)),
            most=draw.choice((3, 9)),
            provisioning=draw.choice((10, 50)),
            other=draw.choice(("Tesla T4", "Small", "Other")),
            other_least=draw.choice((0, 1)),
            workloads=", ".join(self._workloads),
        )
        files = {
            "manifests": "".join(self._manifests),
            "rules": f"rules:\n{''.join(self._custom)}externalRules:\n{''.join(self._external)}",
            "recorded": f"groups: [{recorded}]\n",
            "counters": counters,
            "batches.csv": BATCHES,
        }
        return load_setup(text, "drawn.yaml", files.__getitem__)

    # Prometheus' rules, and the adapter's

    def _group(self, index: int) -> str:
        draw, rules = self._draw, []
        for rule in range(draw.randint(1, 4)):
            promql = self._promql
            expr = _quoted(promql.aggregation() if draw.random() < 0.5 else promql.vector())
            if draw.random() < 0.12:
                rules.append(f"{{alert: A{rule}, expr: {expr}, for: {draw.choice((0, 1))}m}}")
                continue
            name = f"rec:{index}{rule}"
            labels = ", labels: {team: a}" if draw.random() < 0.1 else ""
            rules.append(f"{{record: {name}, expr: {expr}{labels}}}")
            promql.recorded.append(name)
        more = draw.choice([""] * 6 + ["interval: 20s, ", "limit: 3, ", "query_offset: 10s, "])
        return f"{{name: g{index}, {more}rules: [{', '.join(rules)}]}}, "

    def _rule(self, kind: str, name: str, series: str, resources: str, query: str, of: str) -> None:
        found = self._external if kind == "External" else self._custom
        found.append(
            f"- seriesQuery: {_quoted(series)}\n  resources: {{{resources}}}\n"
            f"  name: {{as: {name}}}\n  metricsQuery: {_quoted(query)}\n"
        )
        self._metrics[kind].append((name, of))

    def _adapter_rules(self) -> None:
        draw, promql = self._draw, self._promql
        namespace, pod = OWNER[self._style]
        of_pods = f"overrides: {{{namespace}: {{resource: namespace}}, {pod}: {{resource: pod}}}}"
        served = "overrides: {namespace: {resource: namespace}, pod: {resource: pod}}"
        of_services = "overrides: {namespace: {resource: namespace}, service: {resource: service}}"
        rows = "(<<.Series>>{<<.LabelMatchers>>})"
        plain = f"{draw.choice(('avg', 'sum', 'min', 'max', 'count'))}{rows} by (<<.GroupBy>>)"
        shapes = (
            *[plain] * 5,
            f"{plain} / 3 > 1",
            f"round({plain} * 2)",
            f"timestamp({plain}) - 1767225600",
            f"{plain} / on () group_left () count({promql.field()})",
            f"sum{rows} by (<<.GroupBy>>, job)",
            f"max{rows} by (<<.GroupBy>>, {pod})",
            f"sum{rows}",
        )
        for index in range(2):
            field = promql.field()
            chosen = (
                "",
                f'{{{pod}!=""}}',
                f'{{{namespace}!="", {pod}!=""}}',
                f'{{job="{self._service}"}}',
            )
            self._rule(
                "Pods",
                f"gpu_{index}",
                field + draw.choice(chosen),
                of_pods,
                draw.choice(shapes),
                field,
            )
        self._rule("Pods", "queue", "queue", served, f"sum{rows} by (<<.GroupBy>>)", "")
        rate = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
        self._rule("Pods", "rate", "requests_total", served, rate, "")
        if self._agents in NAMESPACES:
            # Several rows for one Service, as it stands in some rules.
            query = draw.choice((plain, f"max{rows} by (<<.GroupBy>>, {pod})"))
            field = promql.field()
            self._rule("Object", "of_agents", field, of_services, query, field)
        for name in promql.recorded:
            if draw.random() < 0.6:
                query = draw.choice((plain, "<<.Series>>{<<.LabelMatchers>>}"))
                self._rule("Pods", f"p{name[4:]}", name, of_pods, query, "")
            query = draw.choice(("sum(<<.Series>>)", "<<.Series>>", f"max{rows}"))
            self._rule("External", f"x{name[4:]}", name, "namespaced: false", query, "")
        field = promql.field()
        query = draw.choice((f"avg{rows}", f"sum{rows} by ({pod})"))
        of_namespace = f"overrides: {{{namespace}: {{resource: namespace}}}}"
        self._rule("External", "of_pods", f'{field}{{{pod}!=""}}', of_namespace, query, field)
        self._rule("External", "any", promql.field(), "namespaced: false", promql.vector(), "")
        self._metrics["External"].append(("nothing", ""))

    # What is scaled

    def _deployment(self, i: int) -> None:
        draw, where = self._draw, self._draw.choice(NAMESPACES)
        low, high = draw.randint(1, 2), draw.randint(3, 6)
        gpus = draw.choice((0, 1, 1, 1, 1, min(2, self._gpus))) if i else 1
        limits = f"{self._resource}: {gpus}" if gpus else 'cpu: "1"'
        text = DEPLOYMENT.format(i=i, where=where, low=low, limits=limits)
        kind = draw.random()
        if kind < 0.6:
            metrics = ", ".join(self._metric() for _ in range(draw.choice((1, 1, 2))))
            text += HPA.format(i=i, where=where, low=low, high=high, metrics=metrics)
            if draw.random() < 0.15:
                at = draw.choice((47, 200))
                self._changes.append(f"{{at: {at}s, hpa: {where}/s{i}, maxReplicas: {high + 1}}}")
        elif kind < 0.85:
            triggers = ", ".join(self._trigger(i) for _ in range(draw.choice((1, 2))))
            fallback = draw.choice(("", "", "fallback: {failureThreshold: 2, replicas: 2}"))
            text += SCALED_OBJECT.format(
                i=i, where=where, high=high, triggers=triggers, fallback=fallback
            )
        self._manifests.append(text)
        if gpus and (i == 0 or draw.random() < 0.9):
            self._load(f"{where}/s{i}")

    def _target(self, series: str) -> float:
        in_mib = "MEM_USED" in series or "FB_" in series
        return self._draw.choice((2000, 3000, 9000) if in_mib else (2, 10, 30, 60))

    def _metric(self) -> str:
        draw = self._draw
        kind = draw.choice(
            ("Pods", "Pods", "External", "Object" if self._metrics["Object"] else "Pods")
        )
        name, series = draw.choice(self._metrics[kind])
        namespace, _ = OWNER[self._style]
        chosen = [f"{namespace}: ml"] if kind == "Pods" else []
        labels = draw.choice([""] * 4 + [*chosen, f"job: {self._service}"])
        selector = f", selector: {{matchLabels: {{{labels}}}}}" if labels else ""
        forms = ("AverageValue, averageValue", "Value, value")
        form = forms[0] if kind == "Pods" else draw.choice(forms)
        described = "describedObject: {apiVersion: v1, kind: Service, name: dcgm-exporter}, "
        return (
            f"{{type: {kind}, {kind.lower()}: {{metric: {{name: {name}{selector}}}, "
            f"{described if kind == 'Object' else ''}target: {{type: {form}: {self._target(series)}}}}}}}"
        )

    def _trigger(self, i: int) -> str:
        draw, promql = self._draw, self._promql
        _, pod = OWNER[self._style]
        waiting = f'sum(gpuscale_simulated_requests_waiting{{deployment="s{i}"}})'
        of_pods = f'sum({promql.field()}{{{pod}=~"s{i}-.*"}})'
        if draw.random() < 0.65:
            query = draw.choice((promql.vector(), of_pods, waiting))
            ignore = draw.choice(("", ', ignoreNullValues: "false"'))
            return (
                f"{{type: prometheus, metadata: {{serverAddress: 'http://p', query: {_quoted(query)}, "
                f'threshold: "{self._target("")}", activationThreshold: "1"{ignore}}}}}'
            )
        # A target that can't be meant is refused, so the unit of its load has to be known.
        query = draw.choice((of_pods, waiting))
        loads = (
            (f"query: {_quoted(query)}", query),
            ("metric: gpu_0", self._metrics["Pods"][0][1]),
        )
        load, of = draw.choice(loads)
        wake = draw.choice(("", f", wakeQuery: {_quoted(f'sum({promql.field()})')}"))
        return (
            f"{{type: {draw.choice(('external', 'external-push'))}, metadata: {{scalerAddress: 's:6000', "
            f'workload: deployment/s{i}, target: "{self._target(of)}", {load}{wake}}}}}'
        )

    # What comes

    def _load(self, deployment: str) -> None:
        draw = self._draw
        rate = draw.uniform(1, 12)
        loads: Sequence[str] = (
            f"shape: sine, mean: {rate}, amplitude: {rate * 0.9}, period: 4m",
            f"shape: spikes, base: {rate / 4}, peak: {rate * 1.5}, every: 2m, length: 70s",
            f"shape: steps, steps: [{{at: 47s, rate: {rate}}}, {{at: 130s, rate: 0}}]",
            f"shape: ramp, fromRate: 0, toRate: {rate}, start: 30s, end: 3m",
        )
        cost = f"gpuSecondsPerRequest: {draw.choice((0.05, 0.2))}"
        services = (
            f"{cost}, memoryMib: 3000",
            f"{cost}, memoryMib: 5000",
            f"{cost}, memoryMib: {draw.choice((0, 900_000))}",
            f"{cost}, otherSecondsPerRequest: 0.3, concurrency: 4, servers: {{timeout: 20s}}",
            "batching: {file: batches.csv, promptTokens: 500, outputTokens: 100}",
        )
        startup = draw.choice(("1s", "45s", "{shape: lognormal, median: 10s, p99: 60s}"))
        latency = draw.choice([""] * 7 + [", latency: latency"])  # it costs most of a run
        names = f"queue: queue, inFlight: inflight, requests: requests_total{latency}"
        interval = draw.choice(("5s", "15s", "45s", "330s", "2500ms"))
        self._workloads.append(
            f"{{deployment: {deployment}, load: {{{draw.choice(loads)}}}, "
            f"imagePull: {draw.choice((0, 20))}s, startup: {startup}, "
            f"metrics: {{names: {{{names}}}, interval: {interval}}}, "
            f"service: {{{draw.choice(services)}}}}}"
        )

    def _job(self) -> None:
        draw, where = self._draw, self._draw.choice(NAMESPACES)
        gpus = draw.choice((1, self._gpus))
        self._manifests.append(JOB.format(where=where, resource=self._resource, gpus=gpus))
        self._workloads.append(
            f"{{job: {where}/train, imagePull: 5s, run: {{at: {draw.choice((0, 70))}s, "
            f"copies: {draw.choice((1, 3))}, every: 50s, duration: 100s, utilization: 70, memoryMib: 5000}}}}"
        )
