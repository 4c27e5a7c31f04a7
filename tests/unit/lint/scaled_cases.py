"""Autoscalers and workloads that contradict each other: each check's fault, and what is right beside it."""

GPU = "resources: {limits: {nvidia.com/gpu: 1}}"
MIG = "resources: {limits: {nvidia.com/mig-3g.20gb: 1}}"
NONE = "ports: []"
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def pods(name=UTIL, target="60"):
    return (
        f"{{type: Pods, pods: {{metric: {{name: {name}}}, target: {{type: AverageValue, "
        f"averageValue: {target}}}}}}}"
    )


def of(kind):
    described = f"{{apiVersion: v1, kind: {kind}, name: web}}"
    return (
        f"{{type: Object, object: {{metric: {{name: {UTIL}}}, describedObject: {described}, target: "
        "{type: Value, value: 60}}}"
    )


def cpu(target="{type: Utilization, averageUtilization: 60}"):
    return f"{{type: Resource, resource: {{name: cpu, target: {target}}}}}"


def of_container(name):
    target = "{type: Utilization, averageUtilization: 60}"
    source = f"{{name: cpu, container: {name}, target: {target}}}"
    return f"{{type: ContainerResource, containerResource: {source}}}"


def hpa(metric=None, target="apps/v1 Deployment web", name="web", least=1, most=8, more="{}"):
    version, kind, called = target.split()
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: {version}, kind: {kind}, name: {called}}}
  minReplicas: {least}
  maxReplicas: {most}
  behavior: {more}
  metrics:
  - {metric or pods()}
"""


def scaled(target="name: web", limits="maxReplicaCount: 4", trigger=""):
    prometheus = "{serverAddress: 'http://p', query: sum(queue), threshold: '5'}"
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: web}}
spec:
  scaleTargetRef: {{{target}}}
  {limits}
  triggers:
  - {trigger or f"{{type: prometheus, metadata: {prometheus}}}"}
"""


def workload(
    more="", resources=GPU, name="web", kind="Deployment", labels="app: web", metadata="", pod=""
):
    return f"""\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}{metadata}}}
spec:
  {more or "revisionHistoryLimit: 1"}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{{pod or labels}}}}}
    spec: {{containers: [{{name: c, image: i, {resources}}}]}}
"""


def application(*more):
    lines = "".join(f"  {each}\n" for each in more)
    return f"""\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: web}}
spec:
  source: {{repoURL: 'https://git', path: apps/web}}
{lines}"""


def budget(allows="maxUnavailable: 1", name="one", app="web"):
    return f"""\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {name}}}
spec: {{{allows}, selector: {{matchLabels: {{app: {app}}}}}}}
"""


def files(autoscaler, *workloads):
    return {"web.yaml": "---\n".join((*workloads, autoscaler))}


def tracked(key):
    return f", {key}: {{argocd.argoproj.io/tracking-id: web}}"


OWNED = ", ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: up, uid: a, controller: true}]"
CANARY = hpa(name="canary", target="apps/v1 Deployment canary")
KEDA_UTIL = (
    "{type: prometheus, metricType: Value, "
    f"metadata: {{serverAddress: 'http://p', query: avg({UTIL}), threshold: '60'}}}}"
)


def container(fields):
    """Return a container's resources with more of its fields."""
    return f"{GPU}, {fields}"


ARRIVALS = (
    "{type: prometheus, metadata: {serverAddress: 'http://p', threshold: '5', query: "
    "'sum(rate(requests_total[1m]))'}}"
)
PROBE = "httpGet: {path: /health, port: 8000}"
KEDA_CPU = "{type: cpu, metricType: Utilization, metadata: {value: '60'}}"

SCALED_CASES = {
    "no-scale-target": (
        files(hpa(target="apps/v1 DaemonSet web")),
        files(hpa(target="apps/v1 StatefulSet web")),
    ),
    "no-scale-target/case": (
        files(hpa(target="apps/v1 deploymenT web")),
        files(hpa(target="argoproj.io/v1alpha1 Rollout web")),
    ),
    "no-scale-target/lower case": (
        files(hpa(target="apps/v1 deployment web"), workload()),
        files(hpa(target="apps/v1 Deployment web"), workload()),
    ),
    "no-scale-target/plural": (
        files(scaled("kind: statefulsets, name: web")),
        files(scaled("kind: StatefulSet, name: web")),
    ),
    "no-scale-target/no kind of the group": (
        files(hpa(target="apps/v1 Rollout web")),
        # OpenKruise has a StatefulSet of its own.
        files(hpa(target="apps.kruise.io/v1beta1 StatefulSet web")),
    ),
    "wrong-target-version": (
        files(hpa(target="extensions/v1beta1 Deployment web")),
        files(hpa()),
    ),
    "wrong-target-version/version alone": (
        files(hpa(target="apps/v1beta1 Deployment web")),
        files(hpa()),
    ),
    "wrong-target-version/keda": (
        files(scaled("apiVersion: apps/v1beta2, kind: Deployment, name: web")),
        files(scaled("kind: Deployment, name: web")),
    ),
    "target-is-owned": (
        files(
            hpa(target="apps/v1 ReplicaSet web"),
            workload(kind="ReplicaSet", metadata=OWNED),
        ),
        files(hpa(target="apps/v1 ReplicaSet web"), workload(kind="ReplicaSet")),
    ),
    "selectors-overlap": (
        {
            "a.yaml": hpa(),
            "b.yaml": CANARY,
            "c.yaml": workload(),
            "d.yaml": workload(name="canary"),
        },
        {
            "a.yaml": hpa(),
            "b.yaml": CANARY,
            "c.yaml": workload(),
            "d.yaml": workload(name="canary").replace("app: web", "app: canary"),
        },
    ),
    "replicas-owned": (
        files(hpa(least=4), workload("replicas: 2")),
        files(hpa(least=4), workload()),
    ),
    "replicas-owned/above": (
        files(hpa(most=8), workload("replicas: 20")),
        files(
            hpa(most=8), workload(metadata=", uid: 3, resourceVersion: '7'", more="replicas: 20")
        ),
    ),
    "replicas-owned/within": (
        files(hpa(), workload("replicas: 3")),
        # A zero has a check of its own.
        files(hpa(), workload("replicas: 0")),
    ),
    "replicas-owned/argo": (
        files(hpa(), workload("replicas: 3", metadata=tracked("annotations"))),
        files(hpa(), workload(metadata=tracked("annotations"))),
    ),
    "replicas-owned/of an Application": (
        {
            "argo.yaml": application(),
            "repo/apps/web/web.yaml": "---\n".join((hpa(), workload("replicas: 3"))),
        },
        {
            "argo.yaml": application(
                "ignoreDifferences: [{group: apps, kind: Deployment, jsonPointers: [/spec/replicas]}]",
                "syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}",
            ),
            "repo/apps/web/web.yaml": "---\n".join((hpa(), workload("replicas: 3"))),
        },
    ),
    "replicas-owned/of a Kustomization": (
        {
            "flux.yaml": """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web}
spec: {path: ./apps/web, interval: 5m}
""",
            "apps/web/base/web.yaml": "---\n".join((hpa(), workload("replicas: 3"))),
        },
        files(hpa(), workload()),
    ),
    "replicas-owned/keda": (
        files(scaled(limits="maxReplicaCount: 4"), workload("replicas: 5")),
        files(scaled(limits="maxReplicaCount: 4"), workload()),
    ),
    "no-resource-request": (
        files(hpa(cpu()), workload()),
        # The API server takes a limit for a request that is not there.
        files(hpa(cpu()), workload(resources="resources: {limits: {cpu: 2}}")),
    ),
    "no-resource-request/of another resource": (
        files(hpa(cpu()), workload(resources="resources: {requests: {memory: 1Gi}}")),
        files(hpa(cpu("{type: AverageValue, averageValue: 2}")), workload()),
    ),
    "no-resource-request/keda": (
        files(scaled(limits="minReplicaCount: 1", trigger=KEDA_CPU), workload()),
        files(
            scaled(limits="minReplicaCount: 1", trigger=KEDA_CPU),
            workload(resources="resources: {requests: {cpu: 2}}"),
        ),
    ),
    "no-resource-request/of no container": (
        files(hpa(of_container("d")), workload(resources="resources: {requests: {cpu: 2}}")),
        files(hpa(of_container("c")), workload(resources="resources: {requests: {cpu: 2}}")),
    ),
    "no-gpu-request": (
        files(hpa(), workload(resources=NONE)),
        files(hpa(), workload(resources="resources: {limits: {nvidia.com/gpu.shared: 1}}")),
    ),
    "no-gpu-request/statefulset": (
        files(hpa(target="apps/v1 StatefulSet web"), workload(kind="StatefulSet", resources=NONE)),
        files(hpa(target="apps/v1 StatefulSet web"), workload(kind="StatefulSet")),
    ),
    "no-gpu-util": (
        files(hpa(), workload(resources=MIG)),
        files(hpa(pods("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "600m")), workload(resources=MIG)),
    ),
    "no-gpu-util/by another name": (
        {
            **files(hpa(pods("gpu_util")), workload(resources=MIG)),
            "rules.yaml": f"""\
- seriesQuery: {UTIL}{{}}
  resources: {{overrides: {{exported_namespace: {{resource: namespace}}, exported_pod: {{resource: pod}}}}}}
  name: {{as: gpu_util}}
  metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
""",
        },
        files(hpa(), workload()),
    ),
    "no-gpu-util/keda": (
        files(scaled(trigger=KEDA_UTIL), workload(resources=MIG)),
        files(scaled(trigger=KEDA_UTIL), workload()),
    ),
    "min-is-max": (files(hpa(least=8)), files(hpa(least=7))),
    "min-is-max/keda": (
        files(scaled(limits="minReplicaCount: 4\n  maxReplicaCount: 4")),
        # KEDA scales between the two counts.
        files(scaled(limits="idleReplicaCount: 0\n  minReplicaCount: 4\n  maxReplicaCount: 4")),
    ),
    "scale-down-disabled": (
        files(hpa(more="{scaleDown: {selectPolicy: Disabled}}")),
        files(hpa(more="{scaleDown: {selectPolicy: Min}}")),
    ),
    "scale-up-disabled": (
        files(hpa(more="{scaleUp: {selectPolicy: Disabled}}")),
        files(hpa(more="{scaleDown: {selectPolicy: Min}}")),
    ),
    "scale-up-disabled/keda": (
        files(
            scaled(
                limits="maxReplicaCount: 4\n  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: "
                "{selectPolicy: Disabled}}}}"
            )
        ),
        files(scaled()),
    ),
    "slow-scale-up": (
        files(hpa(more="{scaleUp: {stabilizationWindowSeconds: 3600}}")),
        files(hpa(more="{scaleDown: {stabilizationWindowSeconds: 3600}}")),
    ),
    "scaled-paused": (
        files(
            scaled().replace(
                "web}", "web, annotations: {autoscaling.keda.sh/paused-replicas: '2'}}", 1
            )
        ),
        files(
            scaled().replace("web}", "web, annotations: {autoscaling.keda.sh/paused: 'false'}}", 1)
        ),
    ),
    "zero-without-source": (
        files(scaled(limits="maxReplicaCount: 4", trigger=KEDA_CPU)),
        files(scaled(limits="minReplicaCount: 1", trigger=KEDA_CPU)),
    ),
    "described-object-absent": (files(hpa(of("SERVICE"))), files(hpa(of("Service")))),
    "described-object-absent/lower case": (
        files(hpa(of("service"))),
        files(hpa(of("gateway").replace("apiVersion: v1", "apiVersion: example.com/v1"))),
    ),
    "pdb-blocks": (
        {**files(hpa(), workload()), "b.yaml": budget("maxUnavailable: 0")},
        {**files(hpa(), workload()), "b.yaml": budget("maxUnavailable: 1")},
    ),
    "pdb-blocks/as many as there are": (
        {**files(hpa(most=8), workload()), "b.yaml": budget("minAvailable: 8")},
        # One of the eight may go.
        {**files(hpa(most=8), workload()), "b.yaml": budget("minAvailable: 7")},
    ),
    "pdbs-overlap": (
        {**files(hpa(), workload()), "b.yaml": budget(), "c.yaml": budget(name="two")},
        {**files(hpa(), workload()), "b.yaml": budget(), "c.yaml": budget(name="two", app="other")},
    ),
    "larger-than-any-node": (
        {"web.yaml": workload(resources="resources: {limits: {nvidia.com/gpu: 17}}")},
        {"web.yaml": workload(resources="resources: {limits: {nvidia.com/gpu: 16}}")},
    ),
    "cannot-wake/own queue": (
        files(
            scaled(
                trigger="{type: prometheus, metadata: {serverAddress: 'http://p', threshold: '5', query: "
                "'sum(vllm:num_requests_waiting)'}}"
            )
        ),
        # The picker in front of the pods is there without them.
        files(
            scaled(
                trigger="{type: prometheus, metadata: {serverAddress: 'http://p', threshold: '5', query: "
                "'sum(llm_d_epp_flow_control_queue_size)'}}"
            )
        ),
    ),
    # 60 s of the cooldown and 60 s in which the rate sees a request, beside 300 s before the first look.
    "cooldown-below-start": (
        files(
            scaled(limits="cooldownPeriod: 60", trigger=ARRIVALS),
            workload(resources=container(f"readinessProbe: {{{PROBE}, initialDelaySeconds: 300}}")),
        ),
        files(
            scaled(limits="cooldownPeriod: 240", trigger=ARRIVALS),
            workload(resources=container(f"readinessProbe: {{{PROBE}, initialDelaySeconds: 300}}")),
        ),
    ),
    "cooldown-below-start/by what a startupProbe allows": (
        files(
            scaled(limits="idleReplicaCount: 0\n  minReplicaCount: 2", trigger=ARRIVALS),
            workload(resources=container(f"startupProbe: {{{PROBE}, failureThreshold: 60}}")),
        ),
        files(
            scaled(limits="cooldownPeriod: 60"),
            workload(resources=container(f"startupProbe: {{{PROBE}, failureThreshold: 60}}")),
        ),
    ),
    "cooldown-below-polling": (
        files(scaled(limits="cooldownPeriod: 30")),
        files(scaled(limits="cooldownPeriod: 31")),
    ),
    # Three looks, 10 s apart, after 30 s: 60 s.
    "killed-while-starting": (
        files(
            hpa(),
            workload(
                resources=container(
                    f"livenessProbe: {{{PROBE}, initialDelaySeconds: 30}}, "
                    f"readinessProbe: {{{PROBE}, initialDelaySeconds: 61}}"
                )
            ),
        ),
        files(
            hpa(),
            workload(
                resources=container(
                    f"livenessProbe: {{{PROBE}, initialDelaySeconds: 31}}, "
                    f"readinessProbe: {{{PROBE}, initialDelaySeconds: 61}}"
                )
            ),
        ),
    ),
    "grace-below-pre-stop": (
        files(
            hpa(),
            workload(
                resources=container("lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 30']}}}")
            ),
        ),
        files(
            hpa(),
            workload(
                resources=container("lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 29']}}}")
            ),
        ),
    ),
    "deadline-below-start": (
        files(
            hpa(),
            workload(resources=container(f"startupProbe: {{{PROBE}, failureThreshold: 61}}")),
        ),
        files(
            hpa(),
            workload(resources=container(f"startupProbe: {{{PROBE}, failureThreshold: 60}}")),
        ),
    ),
}
