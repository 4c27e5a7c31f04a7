"""Custom resources as their operators' samples have them, with values of our own, and faults in them.

Expected is what the operator, its webhook or its schema does, in the release that the module of the kind in
`gpuscale.ops.lint.operators` names.
"""

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: l4}
spec:
  limits: {nvidia.com/gpu: 6}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: l4}
      taints: [{key: gpus-only, effect: NoSchedule}]
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [g6.12xlarge]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
  disruption: {consolidateAfter: 30m}
"""
TOLERATES = "tolerations: [{key: gpus-only, operator: Exists}]"
ISVC = f"""\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: phi
  annotations: {{serving.kserve.io/deploymentMode: RawDeployment}}
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 3
    scaleMetric: cpu
    scaleTarget: 70
    {TOLERATES}
    model:
      modelFormat: {{name: huggingface}}
      storageUri: hf://microsoft/phi
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
ISVC_KEDA = f"""\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: phi
  annotations:
    serving.kserve.io/deploymentMode: Standard
    serving.kserve.io/autoscalerClass: keda
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 3
    {TOLERATES}
    autoScaling:
      metrics:
      - type: External
        external:
          metric: {{backend: prometheus, serverAddress: http://p:9090, query: sum(vllm:num_requests_waiting)}}
          target: {{type: Value, value: "4"}}
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.11.0
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
ISVC_KNATIVE = f"""\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: phi
  annotations: {{serving.kserve.io/deploymentMode: Serverless}}
spec:
  predictor:
    minReplicas: 0
    maxReplicas: 3
    scaleMetric: concurrency
    scaleTarget: 8
    {TOLERATES}
    triton:
      storageUri: s3://models/phi
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
LLM = f"""\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {{name: qwen}}
spec:
  model: {{uri: hf://Qwen/Qwen3-8B, name: qwen}}
  scaling:
    minReplicas: 1
    maxReplicas: 3
    wva:
      keda: {{cooldownPeriod: 60, idleReplicaCount: 0}}
  template:
    {TOLERATES}
    containers:
    - name: main
      image: vllm/vllm-openai:v0.11.0
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
RAY = f"""\
apiVersion: ray.io/v1
kind: RayService
metadata: {{name: llm}}
spec:
  rayClusterConfig:
    enableInTreeAutoscaling: true
    headGroupSpec:
      rayStartParams: {{num-gpus: "0"}}
      template: {{spec: {{containers: [{{name: head, image: ray}}]}}}}
    workerGroupSpecs:
    - groupName: gpus
      minReplicas: 1
      maxReplicas: 3
      rayStartParams: {{}}
      template:
        spec:
          {TOLERATES}
          containers:
          - name: worker
            image: ray
            resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
POD_AUTOSCALER = """\
apiVersion: autoscaling.aibrix.ai/v1alpha1
kind: PodAutoscaler
metadata: {name: llama}
spec:
  scalingStrategy: APA
  minReplicas: 1
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llama}
  metricsSources:
  - metricSourceType: pod
    protocolType: http
    port: "8000"
    path: /metrics
    targetMetric: vllm_num_requests_waiting
    targetValue: "4"
---
"""
LLAMA = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: llama}}
spec:
  selector: {{matchLabels: {{app: llama}}}}
  template:
    metadata: {{labels: {{app: llama}}}}
    spec:
      {TOLERATES}
      containers:
      - name: server
        image: vllm/vllm-openai:v0.11.0
        resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
HTTP = """\
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: llama}
spec:
  hosts: [llama.example.com]
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llama, service: llama, port: 8000}
  replicas: {min: 0, max: 3}
  scalingMetric: {concurrency: {targetValue: 16}}
---
"""
DYNAMO = f"""\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {{name: qwen}}
spec:
  services:
    Frontend:
      replicas: 1
      extraPodSpec: {{mainContainer: {{image: dynamo-frontend}}}}
    Decode:
      replicas: 1
      scalingAdapter: {{enabled: true}}
      resources: {{limits: {{gpu: "2"}}}}
      extraPodSpec:
        {TOLERATES}
        mainContainer: {{image: dynamo-vllm}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: qwen}}
spec:
  scaleTargetRef:
    {{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeploymentScalingAdapter, name: qwen-decode}}
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {{name: cpu, target: {{type: AverageValue, averageValue: "4"}}}}
"""
PIPELINE = f"""\
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMPipeline
metadata: {{name: rag}}
spec:
  services:
  - name: llm
    enabled: true
    spec:
      image: {{repository: nvcr.io/nim/meta/llama, tag: 1.0.0}}
      {TOLERATES}
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
      scale:
        enabled: true
        hpa:
          maxReplicas: 3
          metrics:
          - type: Resource
            resource: {{name: cpu, target: {{type: AverageValue, averageValue: "4"}}}}
"""
KUBEAI = """\
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: llama}
spec:
  url: hf://meta-llama/Llama-3.1-8B
  engine: VLLM
  resourceProfile: nvidia-gpu-l4:1
  minReplicas: 0
  maxReplicas: 3
  targetRequests: 32
"""
OME = f"""\
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {{name: qwen}}
spec:
  model: {{name: qwen}}
  engine:
    minReplicas: 1
    maxReplicas: 3
    {TOLERATES}
    runner: {{name: ome-container, image: i, resources: {{limits: {{nvidia.com/gpu: 2}}}}}}
"""
OME_RUNTIME = f"""\
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {{name: srt-qwen}}
spec:
  supportedModelFormats: [{{name: safetensors}}]
  engineConfig:
    {TOLERATES}
    runner: {{name: ome-container, image: i, resources: {{limits: {{nvidia.com/gpu: 2}}}}}}
"""
SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {name: web}
  minReplicaCount: 1
  triggers:
  - {type: prometheus, metadata: {query: sum(up), threshold: "1"}}
"""
WITHOUT_TOLERATION = (TOLERATES, "tolerations: []")
MANY_CPUS = ("limits: {nvidia.com/gpu: 2}", "requests: {cpu: 96}, limits: {nvidia.com/gpu: 2}")
"""Twice as many as the pool's type has."""
MOST = ("maxReplicas: 3", "maxReplicas: 4")
"""With 2 GPUs each, 8 of the pool's 6."""
P = "spec.predictor"
G = "spec.rayClusterConfig.workerGroupSpecs[0]"
A = "spec.metricsSources[0]"
E = f"{P}.autoScaling.metrics[0].external"
REFUSED = "error refused-manifest"
BELOW = "warning pools-below-max"
SMALL = "warning fits-no-pool"
KEPT = "note no-tolerated-pool"
IGNORED = "warning ignored-field"
CASES = [
    (
        ISVC_KEDA,
        ("    serving.kserve.io/autoscalerClass: keda\n", ""),
        IGNORED,
        f"{P}.autoScaling.metrics[0].type",
    ),
    (
        ISVC_KEDA,
        ("    autoScaling:", "    scaleTarget: 5\n    autoScaling:"),
        IGNORED,
        f"{P}.scaleTarget",
    ),
    (
        ISVC,
        (
            "    scaleMetric: cpu\n    scaleTarget: 70\n",
            "    autoScaling: {metrics: [{type: PodMetric, podmetric: {}}]}\n",
        ),
        IGNORED,
        f"{P}.autoScaling.metrics[0].type",
    ),
    (
        ISVC,
        (
            "    scaleMetric: cpu\n    scaleTarget: 70\n",
            "    autoScaling: {metrics: [{type: Resource, resource: {name: cpu}}]}\n",
        ),
        None,
        "",
    ),
    (
        DYNAMO,
        ("    Decode:\n", "    Decode:\n      autoscaling: {enabled: true, maxReplicas: 4}\n"),
        IGNORED,
        "spec.services.Decode.autoscaling",
    ),
    (
        DYNAMO,
        ("    Decode:\n", "    Decode:\n      autoscaling: {enabled: false}\n"),
        None,
        "",
    ),
    (ISVC, WITHOUT_TOLERATION, KEPT, f"{P}.tolerations"),
    (ISVC, MANY_CPUS, SMALL, P),
    (ISVC, MOST, BELOW, f"{P}.maxReplicas"),
    (ISVC, ("    maxReplicas: 3\n", ""), "warning min-is-max", f"{P}.maxReplicas"),
    (ISVC, ("maxReplicas: 3", "maxReplicas: 0"), "warning min-is-max", f"{P}.maxReplicas"),
    (ISVC, ("minReplicas: 1", "minReplicas: 5"), REFUSED, f"{P}.minReplicas"),
    (ISVC, ("name: phi\n", "name: Phi\n"), REFUSED, "metadata.name"),
    (
        ISVC,
        ("RawDeployment}", "RawDeployment, serving.kserve.io/autoscalerClass: kpa}"),
        REFUSED,
        "metadata.annotations.serving.kserve.io/autoscalerClass",
    ),
    (
        ISVC.replace("RawDeployment}", "Standard, serving.kserve.io/autoscalerClass: hpa}"),
        ("scaleMetric: cpu", "scaleMetric: concurrency"),
        REFUSED,
        f"{P}.scaleMetric",
    ),
    (
        ISVC.replace("RawDeployment}", "Standard, serving.kserve.io/autoscalerClass: hpa}"),
        ("scaleTarget: 70", "scaleTarget: 170"),
        REFUSED,
        f"{P}.scaleTarget",
    ),
    (ISVC_KEDA, MOST, BELOW, f"{P}.maxReplicas"),
    (ISVC_KEDA, MANY_CPUS, SMALL, f"{P}"),
    (ISVC_KEDA, ("sum(vllm", "(vllm"), "warning several-rows", f"{E}.metric.query"),
    (ISVC_KEDA, ("sum(vllm", "avg(vllm"), "warning average-of-a-mean", f"{E}.metric.query"),
    (ISVC_KEDA, ('value: "4"', 'value: "0"'), "error threshold-not-positive", f"{E}.target.value"),
    (ISVC_KEDA, (', value: "4"', ""), REFUSED, f"{E}.target.value"),
    (
        ISVC_KEDA,
        ("query: sum(vllm:num_requests_waiting)", 'query: ""'),
        REFUSED,
        f"{E}.metric.query",
    ),
    (
        ISVC_KEDA,
        ("    autoScaling:", "    scaleMetric: cpu\n    autoScaling:"),
        REFUSED,
        f"{P}.scaleMetric",
    ),
    (ISVC_KEDA, ("minReplicas: 1", "minReplicas: 0"), "warning cannot-wake", f"{E}.metric.query"),
    (ISVC_KNATIVE, WITHOUT_TOLERATION, KEPT, f"{P}.tolerations"),
    (ISVC_KNATIVE, MANY_CPUS, SMALL, P),
    (ISVC_KNATIVE, MOST, BELOW, f"{P}.maxReplicas"),
    (ISVC_KNATIVE, ("scaleMetric: concurrency", "scaleMetric: cpu"), REFUSED, f"{P}.scaleMetric"),
    (ISVC_KNATIVE, ("minReplicas: 0", "minReplicas: -1"), REFUSED, f"{P}.minReplicas"),
    (
        ISVC_KNATIVE,
        ("    triton:", "    deploymentStrategy: {type: Recreate}\n    triton:"),
        REFUSED,
        f"{P}.deploymentStrategy",
    ),
    (LLM, WITHOUT_TOLERATION, KEPT, "spec.template.tolerations"),
    (LLM, MANY_CPUS, SMALL, "spec.template.containers"),
    (LLM, MOST, BELOW, "spec.scaling.maxReplicas"),
    (LLM, ("maxReplicas: 3", "maxReplicas: 0"), REFUSED, "spec.scaling.minReplicas"),
    (LLM, ("  scaling:", "  replicas: 2\n  scaling:"), REFUSED, "spec.replicas"),
    (LLM, ("      keda:", "      hpa: {}\n      keda:"), REFUSED, "spec.scaling.wva"),
    (
        LLM,
        ("idleReplicaCount: 0", "idleReplicaCount: 1"),
        REFUSED,
        "spec.scaling.wva.keda.idleReplicaCount",
    ),
    (RAY, WITHOUT_TOLERATION, KEPT, f"{G}.template.spec.tolerations"),
    (RAY, MANY_CPUS, SMALL, f"{G}.template.spec.containers"),
    (RAY, MOST, BELOW, f"{G}.maxReplicas"),
    (RAY, ("maxReplicas: 3", "maxReplicas: 2\n      numOfHosts: 2"), BELOW, f"{G}.maxReplicas"),
    (RAY, ("minReplicas: 1", "minReplicas: 4"), REFUSED, f"{G}.minReplicas"),
    (
        RAY,
        ("minReplicas: 1", "minReplicas: 1\n      idleTimeoutSeconds: 60"),
        REFUSED,
        f"{G}.idleTimeoutSeconds",
    ),
    (
        RAY,
        ("rayStartParams: {}", 'rayStartParams: {num-gpus: "2"}\n      resources: {GPU: "2"}'),
        REFUSED,
        f"{G}.resources",
    ),
    (
        RAY.replace("Autoscaling: true", "Autoscaling: true\n    autoscalerOptions: {version: v2}"),
        ("          tolerations", "          restartPolicy: Always\n          tolerations"),
        REFUSED,
        f"{G}.template.spec.restartPolicy",
    ),
    (POD_AUTOSCALER + LLAMA, MOST, BELOW, "spec.maxReplicas"),
    (
        POD_AUTOSCALER + LLAMA,
        ("minReplicas: 1", "minReplicas: 3"),
        "warning min-is-max",
        "spec.maxReplicas",
    ),
    (POD_AUTOSCALER + LLAMA, ("minReplicas: 1", "minReplicas: 4"), REFUSED, "spec.minReplicas"),
    (POD_AUTOSCALER + LLAMA, ("gy: APA", "gy: VPA"), REFUSED, "spec.scalingStrategy"),
    (POD_AUTOSCALER + LLAMA, ('    port: "8000"\n', ""), REFUSED, f"{A}.port"),
    (POD_AUTOSCALER + LLAMA, ('Value: "4"', 'Value: "0"'), REFUSED, f"{A}.targetValue"),
    (
        POD_AUTOSCALER.replace("APA", "HPA") + LLAMA,
        ('Value: "4"', 'Value: "0.8"'),
        REFUSED,
        f"{A}.targetValue",
    ),
    (
        POD_AUTOSCALER.replace("APA", "HPA") + LLAMA,
        ("vllm_num_requests_waiting\n", "cpu\n"),
        "warning no-resource-request",
        f"{A}.targetMetric",
    ),
    (
        POD_AUTOSCALER + LLAMA,
        ("kind: Deployment, name", "kind: Deploiment, name"),
        "error no-scale-target",
        "spec.scaleTargetRef.kind",
    ),
    (HTTP + LLAMA, ("max: 3", "max: 4"), BELOW, "spec.replicas.max"),
    (
        HTTP + LLAMA,
        ("min: 0, max: 3}", "min: 1, max: 3}\n  scaledownPeriod: 600"),
        "note cooldown-without-effect",
        "spec.scaledownPeriod",
    ),
    (HTTP + LLAMA, ("min: 0", "min: 3"), "warning min-is-max", "spec.replicas.max"),
    (HTTP + LLAMA, ("min: 0", "min: 4"), REFUSED, "spec.replicas.min"),
    (HTTP + LLAMA, (", port: 8000", ""), REFUSED, "spec.scaleTargetRef"),
    (HTTP + LLAMA, ("port: 8000", "port: 8000, portName: http"), REFUSED, "spec.scaleTargetRef"),
    (HTTP + LLAMA, (", service: llama", ""), REFUSED, "spec.scaleTargetRef.service"),
    (
        HTTP + LLAMA,
        ("apiVersion: apps/v1, k", "apiVersion: apps/v1beta1, k"),
        "error wrong-target-version",
        "spec.scaleTargetRef.apiVersion",
    ),
    (DYNAMO, WITHOUT_TOLERATION, KEPT, "spec.services.Decode.extraPodSpec.tolerations"),
    (DYNAMO, ('gpu: "2"', 'gpu: "2", cpu: "96"'), SMALL, "spec.services.Decode"),
    (DYNAMO, MOST, BELOW, "spec.maxReplicas"),
    (
        DYNAMO,
        ("enabled: true}", "enabled: true}\n      multinode: {nodeCount: 2}"),
        BELOW,
        "spec.maxReplicas",
    ),
    (
        DYNAMO,
        ('AverageValue, averageValue: "4"', "Utilization, averageUtilization: 70"),
        "warning no-resource-request",
        "spec.metrics[0].resource.name",
    ),
    (KUBEAI, ("minReplicas: 0", "minReplicas: 4"), REFUSED, "spec.minReplicas"),
    (KUBEAI, ("maxReplicas: 3", "maxReplicas: -1"), REFUSED, "spec.maxReplicas"),
    (KUBEAI, ("name: llama", f"name: {'llama-' * 7}"), REFUSED, "metadata.name"),
    (
        KUBEAI + "---\n" + POD_AUTOSCALER,
        (
            "{apiVersion: apps/v1, kind: Deployment, name",
            "{apiVersion: kubeai.org/v1, kind: Model, name",
        ),
        "warning two-hpas",
        "spec.scaleTargetRef",
    ),
    (KUBEAI, ("maxReplicas: 3", "maxReplicas: 3\n  autoscalingDisabled: true"), None, ""),
    (SCALED_OBJECT, ("apiVersion", "piVersion"), REFUSED, "piVersion"),
    (OME, WITHOUT_TOLERATION, KEPT, "spec.engine.tolerations"),
    (OME, MOST, BELOW, "spec.engine.maxReplicas"),
    (OME, ("minReplicas: 1", "minReplicas: 4"), REFUSED, "spec.engine.minReplicas"),
    (OME, ("maxReplicas: 3", "maxReplicas: 0"), None, ""),
    (OME, ("    runner", "    scaleTarget: 5\n    runner"), None, ""),
    (OME_RUNTIME, WITHOUT_TOLERATION, KEPT, "spec.engineConfig.tolerations"),
    (OME_RUNTIME, ("gpu: 2", "gpu: 16"), SMALL, "spec.engineConfig"),
    (PIPELINE, WITHOUT_TOLERATION, KEPT, "spec.services[0].spec.tolerations"),
    (PIPELINE, MANY_CPUS, SMALL, "spec.services[0].spec"),
    (PIPELINE, MOST, BELOW, "spec.services[0].spec.scale.hpa.maxReplicas"),
    (
        PIPELINE,
        ("maxReplicas: 3", "maxReplicas: 0"),
        REFUSED,
        "spec.services[0].spec.scale.hpa.maxReplicas",
    ),
    (
        PIPELINE,
        ('AverageValue, averageValue: "4"', "Utilization, averageUtilization: 70"),
        "warning no-resource-request",
        "spec.services[0].spec.scale.hpa.metrics[0].resource.name",
    ),
    (PIPELINE, ("enabled: true\n    spec", "enabled: false\n    spec"), None, ""),
]
"""A resource, a change of its text, and the finding that comes of it with its place; None for none."""


def hpa_of(version, kind, name="web"):
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: {version}, kind: {kind}, name: {name}}}
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {{name: cpu, target: {{type: AverageValue, averageValue: "4"}}}}
"""


def definition(scale, served="v1"):
    return f"""\
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: models.example.com}}
spec:
  group: example.com
  names: {{kind: Model, plural: models}}
  scope: Namespaced
  versions:
  - name: {served}
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
    subresources: {{{scale}}}
"""


COUNTED = (
    "scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size, "
    "labelSelectorPath: .status.pods}"
)
UNCOUNTED = COUNTED.replace(", labelSelectorPath: .status.pods", "")
MODEL = hpa_of("example.com/v1", "Model")
KEDA_MODEL = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: example.com/v1, kind: Model, name: web}
  minReplicaCount: 1
  triggers:
  - {type: cron, metadata: {timezone: UTC, start: 0 8 * * *, end: 0 18 * * *, desiredReplicas: "3"}}
"""
ROLLOUT = (
    hpa_of("argoproj.io/v1alpha1", "Rollout")
    + "---\n"
    + LLAMA.replace("apps/v1", "argoproj.io/v1alpha1")
    .replace("kind: Deployment", "kind: Rollout")
    .replace("name: llama}", "name: web}")
)
REFERRING = f"""\
{hpa_of("argoproj.io/v1alpha1", "Rollout")}---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {{name: web}}
spec: {{workloadRef: {{apiVersion: apps/v1, kind: Deployment, name: llama}}}}
---
{LLAMA}"""
NO_TARGET, KIND = "error no-scale-target", "spec.scaleTargetRef.kind"
VERSION = "spec.scaleTargetRef.apiVersion"
PERCENT = ('AverageValue, averageValue: "4"', "Utilization, averageUtilization: 70")
REQUEST = "warning no-resource-request", "spec.metrics[0].resource.name"
SCALE_CASES = [
    (hpa_of("ray.io/v1", "RayCluster"), NO_TARGET, KIND),
    (hpa_of("ray.io/v1", "RayService"), NO_TARGET, KIND),
    (hpa_of("serving.kserve.io/v1beta1", "InferenceService"), NO_TARGET, KIND),
    (hpa_of("serving.kserve.io/v1alpha2", "LLMInferenceService"), NO_TARGET, KIND),
    (hpa_of("nvidia.com/v1alpha1", "DynamoGraphDeployment"), NO_TARGET, KIND),
    (hpa_of("apps.nvidia.com/v1alpha1", "NIMService"), NO_TARGET, KIND),
    (hpa_of("kubeai.org/v1", "Model"), NO_TARGET, KIND),
    (hpa_of("workloads.x-k8s.io/v1alpha2", "RoleBasedGroupSet"), NO_TARGET, KIND),
    (hpa_of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), None, ""),
    (hpa_of("orchestration.aibrix.ai/v1alpha1", "StormService"), None, ""),
    (hpa_of("nvidia.com/v1beta1", "DynamoGraphDeploymentScalingAdapter"), None, ""),
    (MODEL, None, ""),
    (MODEL + definition(COUNTED), None, ""),
    (MODEL + definition(UNCOUNTED), NO_TARGET, KIND),
    (MODEL + definition("status: {}"), NO_TARGET, KIND),
    (MODEL + definition(COUNTED, served="v2"), "note wrong-target-version", VERSION),
    (KEDA_MODEL + definition(COUNTED), None, ""),
    (KEDA_MODEL + definition(UNCOUNTED), NO_TARGET, KIND),
    (KEDA_MODEL + definition("status: {}"), NO_TARGET, KIND),
    (KEDA_MODEL + definition(COUNTED, served="v2"), "error wrong-target-version", VERSION),
    (ROLLOUT, None, ""),
    (ROLLOUT.replace("maxReplicas: 3", "maxReplicas: 4"), BELOW, "spec.maxReplicas"),
    (ROLLOUT.replace(*PERCENT), *REQUEST),
    (ROLLOUT.replace(TOLERATES, "tolerations: []"), KEPT, "spec.template.spec.tolerations"),
    (
        ROLLOUT.replace("spec:\n  selector", "spec:\n  replicas: 4\n  selector"),
        "warning replicas-owned",
        "spec.replicas",
    ),
    (ROLLOUT.replace("argoproj.io/v1alpha1, k", "apps/v1, k"), NO_TARGET, KIND),
    (REFERRING, None, ""),
    (REFERRING.replace("maxReplicas: 3", "maxReplicas: 4"), BELOW, "spec.maxReplicas"),
    (REFERRING.replace(*PERCENT), *REQUEST),
]
"""What an HPA or ScaledObject scales, and the finding that comes of it with its place; None for none."""


def with_formula(modifiers):
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: web}}
spec:
  scaleTargetRef: {{name: web}}
  minReplicaCount: 1
  advanced: {{scalingModifiers: {{{modifiers}}}}}
  triggers:
  - {{type: prometheus, name: waiting, metadata: {{query: sum(up), threshold: "1"}}}}
  - {{type: prometheus, name: busy_gpus, metadata: {{query: avg(up), threshold: "1"}}}}
  - {{type: prometheus, metadata: {{query: sum(up), threshold: "1"}}}}
  - {{type: cpu, name: cpus, metricType: AverageValue, metadata: {{value: "4"}}}}
"""


FORMULAS = [
    ("waiting + busy_gpus * 2", None),
    ("waiting > 3 ? max(waiting, busy_gpus) : 1e2", None),
    ("let total = waiting + busy_gpus; total / 2", None),
    ("float(waiting) ?? 0 + count([waiting, busy_gpus], {# > 1})", None),
    ("$env['waiting'] + 1 and not (busy_gpus in [1, 2])", None),
    ("waiting + busy-gpus", "busy"),
    ("waiting + bussy_gpus", "bussy_gpus"),
    ("waiting + cpus", "cpus"),
    ("max(waiting, trig_one)", "trig_one"),
    ("Waiting * 2", "Waiting"),
]
"""A formula, and the name in it that no trigger of use has; KEDA compiles it with expr-lang."""
MODIFIERS = [
    ('formula: waiting, target: "2"', None),
    ('formula: waiting, target: "0"', "target"),
    ("formula: waiting, target: many", "target"),
    ("formula: waiting", "target"),
    ('target: "2"', "formula"),
    ('formula: waiting, target: "2", metricType: Utilization', "metricType"),
    ('formula: waiting, target: "2", metricType: Value', None),
]
"""Settings beside a formula, and the one that KEDA refuses."""
