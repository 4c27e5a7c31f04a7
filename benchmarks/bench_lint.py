"""`gpuscale lint` on many files: CPU time and memory of the command, over four sizes, and how they grow.

A fifth each of HPAs, their Deployments, rules for their metrics, ScaledObjects and NodePools, one in a file.
Growth is that of the time beyond what one of each takes, which is the start of the command.
kube-score, which looks at Deployments and HPAs by themselves, is measured beside it where it is on the path:

    go install github.com/zegl/kube-score/cmd/kube-score@v1.20.0
"""

import argparse
import math
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import harness

SIZES = (500, 1000, 2000, 4000)
"""Files."""
LIMIT_S, LIMITED = 5.0, 1000
LINEAR = 1.1
OTHER, OTHER_VERSION = "kube-score", "v1.20.0"
HPA = """\
# Scales MODEL.
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: MODEL
  namespace: team-TEAM
  labels:
    app: MODEL
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: MODEL
  minReplicas: 1
  maxReplicas: 4
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 300
  metrics:
    - type: Pods
      pods:
        metric:
          name: METRIC
        target:
          type: AverageValue
          averageValue: "70"
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: MODEL
  namespace: team-TEAM
  labels:
    app: MODEL
spec:
  selector:
    matchLabels:
      app: MODEL
  template:
    metadata:
      labels:
        app: MODEL
    spec:
      tolerations:
        - key: nvidia.com/gpu
          operator: Exists
        - key: team
          value: team-TEAM
      containers:
        - name: server
          image: registry.example.com/MODEL:1.0
          args: [--port, "8000"]
          ports:
            - name: http
              containerPort: 8000
          readinessProbe:
            httpGet:
              path: /health
              port: http
          resources:
            requests:
              cpu: "2"
              memory: 8Gi
            limits:
              memory: 8Gi
              nvidia.com/gpu: 1
"""
RULES = """\
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!="",model="MODEL"}
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name:
    as: METRIC
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: MODEL-queue
  namespace: team-TEAM
spec:
  scaleTargetRef:
    name: MODEL-queue
  minReplicaCount: 1
  maxReplicaCount: 8
  triggers:
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: http://prometheus.monitoring:9090
        query: sum(rate(requests_total{model="MODEL"}[2m]))
        threshold: "10"
"""
NODE_POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: MODEL
spec:
  limits:
    nvidia.com/gpu: 8
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 10m
  template:
    spec:
      nodeClassRef:
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: gpu
      taints:
        - key: team
          value: team-TEAM
          effect: NoSchedule
      requirements:
        - key: node.kubernetes.io/instance-type
          operator: In
          values: [g6.2xlarge, g6.4xlarge]
        - key: karpenter.sh/capacity-type
          operator: In
          values: [on-demand, spot]
"""
FILES = {
    "hpa": HPA,
    "deployment": DEPLOYMENT,
    "rules": RULES,
    "scaledobject": SCALED_OBJECT,
    "nodepool": NODE_POOL,
}
TEAMS = 20
FOUND = re.compile(r"^0 errors, 0 warnings, \d+ notes?; (\d+) rules?, (\d+) HPAs?, ")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run of a command took."""

    cpu_s: float
    rss_mib: float
    output: str


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    costs_of: dict[str, list[float]] = {"gpuscale": [], OTHER: []}
    figures: list[harness.Figure] = []
    for size in (len(FILES), *SIZES):
        with tempfile.TemporaryDirectory() as folder:
            names = write_files(Path(folder), size)
            command = [str(Path(sys.executable).parent / "gpuscale"), "lint", *names]
            costs = [measured(command, folder) for _ in range(runs)]
            found = FOUND.match(costs[0].output.splitlines()[-1])
            if found is None or found.groups() != (str(size // 5), str(size // 5)):
                raise RuntimeError(f"another answer than expected: {costs[0].output[-2000:]}")
            limit = LIMIT_S if size == LIMITED else None
            seconds = [each.cpu_s for each in costs]
            figures.append(harness.figure(f"{size} files", "CPU-s", seconds, at_most=limit))
            rss = [each.rss_mib for each in costs]
            figures.append(harness.figure(f"{size} files: memory", "MiB", rss))
            costs_of["gpuscale"].append(min(seconds))
            if shutil.which(OTHER):
                seen = [name for name in names if name.endswith(("hpa.yaml", "deployment.yaml"))]
                beside = [measured([OTHER, "score", *seen], folder).cpu_s for _ in range(runs)]
                title = f"{OTHER}, {len(seen)} of {size} files"
                figures.append(harness.figure(title, "CPU-s", beside))
                costs_of[OTHER].append(min(beside))
    figures.append(growth("growth", costs_of["gpuscale"], at_most=LINEAR))
    if costs_of[OTHER]:
        figures.append(growth(f"{OTHER}: growth", costs_of[OTHER]))
    return harness.write(
        "lint",
        figures,
        packages=["pyyaml", "pydantic"],
        settings={"files": list(SIZES), "kinds": list(FILES), "teams": TEAMS, OTHER: OTHER_VERSION},
    )


def write_files(folder: Path, size: int) -> list[str]:
    """Write so many files, and return their names."""
    names = []
    for index in range(size // len(FILES)):
        model = f"model-{index:04}"
        for kind, text in FILES.items():
            names.append(f"{model}-{kind}.yaml")
            filled = text.replace("METRIC", f"util_{index:04}").replace("MODEL", model)
            (folder / names[-1]).write_text(filled.replace("TEAM", str(index % TEAMS)))
    return names


def measured(command: list[str], folder: str) -> Cost:
    """Return what a command takes, of its own process alone."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu_s, after.ru_maxrss / 1024, done.stdout or done.stderr)


def growth(name: str, seconds: Sequence[float], at_most: float | None = None) -> harness.Figure:
    """Return the exponent with which CPU time grows with the files, where the first is the start's."""
    start, *others = seconds
    logs = [[math.log(each) for each in values] for values in (SIZES, [s - start for s in others])]
    slope = statistics.linear_regression(*logs).slope
    return harness.figure(name, "exponent", [slope], at_most=at_most)


if __name__ == "__main__":
    sys.exit(main())
