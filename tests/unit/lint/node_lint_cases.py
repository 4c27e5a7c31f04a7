"""Files of nodes and GPU pods, one pair a check: what it names, and its kin that is right."""


def node_pool(
    requirements, more="", name="gpu", taint="", labels="", group="karpenter.k8s.aws", version="v1"
):
    taints = f"\n      taints: [{taint}]" if taint else ""
    given = f"\n    metadata: {{labels: {labels}}}" if labels else ""
    lines = "".join(f"\n      - {each}" for each in requirements)
    return f"""\
apiVersion: karpenter.sh/{version}
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:{given}
    spec:
      nodeClassRef: {{group: {group}, kind: Any, name: gpu}}{taints}
      requirements:{lines or " []"}
{more}"""


def one_of(key, *values):
    return f"{{key: {key}, operator: In, values: [{', '.join(values)}]}}"


def types(*names):
    return one_of("node.kubernetes.io/instance-type", *names)


LATE = "  disruption: {consolidateAfter: 10m}\n"
SOLD = one_of("karpenter.sh/capacity-type", "on-demand", "spot")


def costing(kind):
    labels = "metadata: {labels: {app: web}"
    cost = 'annotations: {controller.kubernetes.io/pod-deletion-cost: "-5"}'
    return pods(kind=kind).replace(labels, f"{labels}, {cost}", 1)


def pods(
    resources="{limits: {nvidia.com/gpu: 1}}", more="", kind="Deployment", name="web", labels=""
):
    api = {"Job": "batch/v1", "Pod": "v1"}.get(kind, "apps/v1")
    lines = "".join(f"\n      {line}" for line in more.splitlines())
    selector = "" if kind == "Job" else "\n  selector: {matchLabels: {app: web}}"
    marked = f", labels: {labels}" if labels else ""
    return f"""\
apiVersion: {api}
kind: {kind}
metadata: {{name: {name}{marked}}}
spec:{selector}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:{lines}
      containers:
      - {{name: main, image: web, resources: {resources}}}
"""


def hpa(most=4):
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  maxReplicas: {most}
  metrics:
  - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}
"""


def groups(group, managed=True):
    key = "managedNodeGroups" if managed else "nodeGroups"
    lines = "".join(f"\n  {line}" for line in group.splitlines())
    return f"""\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {{name: c, region: us-east-1}}
{key}:{lines}
"""


SCALED = "iam: {withAddonPolicies: {autoScaler: true}}"
LABELLED = "labels: {k8s.amazonaws.com/accelerator: nvidia-l4}"
GROUP = f"- name: gpu\n  instanceType: g6.xlarge\n  minSize: 0\n  maxSize: 4\n  {SCALED}\n  "
LARGE = GROUP.replace("g6.xlarge", "p5.48xlarge")
TAINT = "taints: [{key: team, value: ml, effect: NoSchedule}]"
TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
CHART = "cloudProvider: aws\nextraArgs:\n  "
TEAM = "{key: team, value: ml, effect: NoSchedule}"
TOLERATES = f"tolerations: [{TEAM}]"
CHOOSES = "nodeSelector: {workload: web}"


def plugin(more=""):
    return pods("{}", more, "DaemonSet", "nvidia-device-plugin")


def sharing(how="timeSlicing", more=""):
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: plugin}}
data:
  any: |
    version: v1
    sharing:
      {how}:
        resources: [{{name: nvidia.com/gpu, replicas: 4}}]
{more}"""


def queue(quota=8, resource="nvidia.com/gpu", covered=None, more=""):
    return f"""\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: team}}
spec:{more}
  resourceGroups:
  - coveredResources: [{covered or resource}]
    flavors: [{{name: any, resources: [{{name: {resource}, nominalQuota: {quota}}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: ml}}
spec: {{clusterQueue: team}}
"""


def claim(request, version="v1"):
    return f"""\
apiVersion: resource.k8s.io/{version}
kind: ResourceClaimTemplate
metadata: {{name: one}}
spec: {{spec: {{devices: {{requests: [{request}]}}}}}}
"""


CLAIMS = "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]"
QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
spec: {hard: {requests.nvidia.com/gpu: 3}}
"""
STATEFUL = pods(kind="StatefulSet").replace(
    "spec:\n  selector",
    "spec:\n  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce]}}]\n"
    "  selector",
    1,
)
QUEUED = "{kueue.x-k8s.io/queue-name: ml}"
NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec:
  role: nodes
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  amiSelectorTerms: [{alias: al2023@v20260801}]
"""
AGENT_POOL = """\
apiVersion: containerservice.azure.com/v1api20250201
kind: ManagedClustersAgentPool
metadata: {name: gpu}
spec: {enableAutoScaling: SCALES, gpuProfile: {nvidia: {managementMode: Managed}}}
"""


def files(**texts):
    return {f"{name}.yaml": text for name, text in texts.items()}


_PLUGIN = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin}
spec:
  template:
    spec:
      containers:
      - {name: c, image: "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", args: [--mig-strategy=single]}
"""
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {productName: {string: A100}}}]
"""
_ANY = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.nvidia.com
"""
_TEMPLATE = (
    _ANY + "          selectors: [{cel: {expression: "
    '\'device.attributes["gpu.nvidia.com"].productName.startsWith("MODEL")\'}}]\n'
)
LWS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: llm}
spec:
  leaderWorkerTemplate:
    size: SIZE
    workerTemplate:
      spec:
        containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
_EIGHT = groups(LARGE.replace("maxSize: 4", "maxSize: 1") + LABELLED)
_POD_GROUP = """\
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: LEAST}
"""
_MEMBERS = pods(kind="Job").replace(
    "labels: {app: web}", "labels: {app: web, scheduling.x-k8s.io/pod-group: gang}"
)
_CLAIMING = pods("{claims: [{name: gpu}]}", CLAIMS, kind="Job")
NODE_CASES = {
    # The API server's own validation, by Karpenter's CRD: numbers, percentages, one of two fields, names.
    "refused-manifest/node-pool": (
        files(
            p=node_pool(
                [
                    "{key: karpenter.k8s.aws/instance-gpu-count, operator: In, values: [1]}",
                    "{key: a, operator: In, values: []}",
                    "{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: [many]}",
                    "{key: karpenter.sh/nodepool, operator: Exists}",
                ],
                "  weight: 200\n"
                "  disruption:\n"
                "    consolidationPolicy: WhenUnderutilized\n"
                "    consolidateAfter: soon\n"
                "    budgets: [{nodes: 120%}, {nodes: '1', schedule: '@daily'}]\n",
            )
        ),
        files(
            p=node_pool(
                [one_of("karpenter.k8s.aws/instance-gpu-count", '"1"')],
                "  weight: 100\n"
                "  disruption:\n"
                "    consolidationPolicy: WhenEmpty\n"
                "    consolidateAfter: 1h30m\n"
                "    budgets: [{nodes: 100%}, {nodes: '1', schedule: '@daily', duration: 8h}]\n",
            )
        ),
    ),
    "refused-manifest/node-class": (
        files(
            c=NODE_CLASS.replace(
                "role: nodes", "role: nodes\n  instanceProfile: p\n  amiFamily: AL2"
            )
            .replace("[{alias: al2023@v20260801}]", "[{alias: al2023@v20260801}, {id: ami-1}]")
            .replace("subnetSelectorTerms: [{tags: {a: b}}]", "subnetSelectorTerms: []")
        ),
        files(c=NODE_CLASS),
    ),
    "refused-manifest/gpus": (
        files(
            a=pods("{limits: {nvidia.com/gpu: 500m}}", kind="Job", name="a"),
            b=pods("{requests: {nvidia.com/gpu: 1}}", kind="Job", name="b"),
            c=pods("{requests: {amd.com/gpu: 1}, limits: {amd.com/gpu: 2}}", kind="Job", name="c"),
        ),
        files(
            a=pods("{limits: {nvidia.com/gpu: 1000m}}", kind="Job"),
            b=pods("{requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: '2'}}", kind="Job"),
            c=pods("{limits: {nvidia.com/gpu: $GPUS}}", kind="Job"),
            # The API server takes null for 0.
            d=pods("{requests: {nvidia.com/gpu: }, limits: {nvidia.com/gpu: }}", kind="Job"),
        ),
    ),
    "refused-manifest/claims": (
        files(
            a=pods("{claims: [{name: other}]}", CLAIMS, kind="Job"),
            b=pods("{}", "resourceClaims: [{name: gpu, source: {}}]", kind="Job"),
            c=claim("{name: g, deviceClassName: gpu.nvidia.com}"),
            d=claim("{name: g, exactly: {deviceClassName: gpu.nvidia.com}}", "v1beta1"),
        ),
        files(
            a=pods("{claims: [{name: gpu}]}", CLAIMS, kind="Job"),
            c=claim("{name: g, exactly: {deviceClassName: gpu.nvidia.com}}"),
            d=claim("{name: g, deviceClassName: gpu.nvidia.com}", "v1beta1"),
        ),
    ),
    "refused-manifest/queue": (
        files(q=queue(covered="cpu")),
        files(q=queue()),
    ),
    "unknown-field/node-pool": (
        files(p=node_pool([SOLD], "  minNodes: 1\n  limit: {cpu: 1}\n")),
        files(p=node_pool([SOLD], "  limits: {cpu: 1}\n")),
    ),
    # Complaint Azure/karpenter-provider-azure#1005.
    "label-after-boot": (
        files(
            p=node_pool(
                ["{key: nvidia.com/gpu.product, operator: Exists}"], group="karpenter.azure.com"
            )
        ),
        files(
            p=node_pool(
                [one_of("nvidia.com/gpu.product", "NVIDIA-L4"), "{key: team, operator: Exists}"]
            )
        ),
    ),
    "consolidates-at-once": (
        files(p=node_pool([types("g6.xlarge"), SOLD])),
        files(
            a=node_pool([types("g6.xlarge"), SOLD], LATE, "a"),
            b=node_pool([types("m5.large"), SOLD], name="b"),
            c=node_pool(
                [types("g6.xlarge"), SOLD], "  disruption: {consolidationPolicy: WhenEmpty}\n", "c"
            ),
            d=node_pool(
                [types("g6.xlarge"), SOLD], "  disruption: {budgets: [{nodes: '0'}]}\n", "d"
            ),
        ),
    ),
    "single-type": (
        files(
            p=node_pool([types("g6.xlarge"), one_of("karpenter.sh/capacity-type", "spot")], LATE)
        ),
        files(
            a=node_pool([types("g6.xlarge"), SOLD], LATE, "a"),
            b=node_pool(
                [types("g6.xlarge", "g5.xlarge"), one_of("karpenter.sh/capacity-type", "spot")],
                LATE,
                "b",
            ),
        ),
    ),
    # aws-node and kube-proxy are on each EKS node (karpenter-provider-aws#6884).
    "few-pods": (
        files(c=f"{NODE_CLASS}  kubelet: {{maxPods: 1}}\n"),
        files(c=f"{NODE_CLASS}  kubelet: {{maxPods: 58}}\n"),
    ),
    "old-karpenter": (
        files(p=node_pool([SOLD], version="v1beta1")),
        files(p=node_pool([SOLD])),
    ),
    "no-accelerator-label": (
        files(g=groups(GROUP)),
        files(
            a=groups(GROUP + LABELLED),
            b=groups(GROUP.replace("minSize: 0", "minSize: 1")),
            c=groups(GROUP.replace("g6.xlarge", "m5.large")),
            d=groups(GROUP.replace(SCALED, "")),
        ),
    ),
    # Cluster Autoscaler's extractTaintsFromAsg takes a tag's value with an effect alone.
    "taint-not-in-template": (
        files(
            a=groups(f"{GROUP}{LABELLED}\n  {TAINT}\n  propagateASGTags: true", managed=False),
            b=groups(
                f'{GROUP}{LABELLED}\n  {TAINT}\n  tags: {{{TEMPLATE}/taint/team: "ml"}}',
                managed=False,
            ),
        ),
        files(
            a=groups(f"{GROUP}{LABELLED}\n  {TAINT}"),
            b=groups(
                f'{GROUP}{LABELLED}\n  {TAINT}\n  tags: {{{TEMPLATE}/taint/team: "ml:NoSchedule"}}',
                managed=False,
            ),
        ),
    ),
    "label-not-in-template": (
        files(
            g=groups(GROUP + LABELLED.replace("}", ", workload: web}"), managed=False),
            w=pods(more=CHOOSES),
        ),
        files(
            a=groups(GROUP + LABELLED.replace("}", ", workload: web}")),
            b=groups(
                f"{GROUP}{LABELLED.replace('}', ', workload: web}')}\n  propagateASGTags: true",
                managed=False,
            ),
            w=pods(more=CHOOSES),
        ),
    ),
    # One of twenty GPU nodes of EKS takes 330 s: table 4.2 of the reports that the check names.
    "short-provision-time": (
        files(v=f"{CHART}max-node-provision-time: 5m\n"),
        files(v=f"{CHART}max-node-provision-time: 6m\n", w=f"{CHART}expander: random\n"),
    ),
    "no-prices": (
        files(v=f"{CHART}expander: priority,price\n"),
        files(
            v=f"{CHART}expander: least-waste\n", w=CHART.replace("aws", "gce") + "expander: price\n"
        ),
    ),
    "retired-gpu-setting": (
        files(
            a=AGENT_POOL.replace("SCALES", "true"),
            b="apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: gpu}\n"
            "spec: {tags: {SkipGPUDriverInstall: 'true'}}\n",
            c="apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: AzureManagedMachinePool\n"
            "metadata:\n  name: gpu\n  annotations:\n"
            "    infrastructure.cluster.x-k8s.io/custom-header-UseGPUDedicatedVHD: 'true'\n",
        ),
        files(
            a=AGENT_POOL.replace("SCALES", "false"),
            b="apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: gpu}\n"
            "spec: {tags: {team: ml}}\n",
        ),
    ),
    "zones-of-volumes": (
        files(
            g=groups(f"{GROUP}{LABELLED}\n  availabilityZones: [us-east-1a, us-east-1b]"),
            w=STATEFUL,
        ),
        files(
            a=groups(f"{GROUP}{LABELLED}\n  availabilityZones: [us-east-1a]"),
            b=groups(f"{GROUP}{LABELLED}\n  availabilityZones: [us-east-1a, us-east-1b]"),
            w=pods(),
        ),
    ),
    "large-nodes-stay": (
        files(g=groups(LARGE + LABELLED), w=pods()),
        files(
            g=groups(LARGE + LABELLED),
            a=pods("{limits: {nvidia.com/gpu: 8}}", name="a"),
            b=pods(more="schedulerName: packing", name="b"),
        ),
    ),
    "no-mig-resources": (
        files(p=_PLUGIN, a=pods("{limits: {nvidia.com/mig-1g.10gb: 1}}", name="a")),
        files(
            p=_PLUGIN.replace("=single", "=mixed"),
            a=pods("{limits: {nvidia.com/mig-1g.10gb: 1}}", name="a"),
        ),
    ),
    "no-deletion-cost": (
        files(a=costing("StatefulSet")),
        files(a=pods(kind="StatefulSet"), b=costing("Pod")),
    ),
    "no-deletion-cost/in-a-template": (files(a=costing("Deployment")), files(a=pods())),
    "several-shares": (
        files(
            a=pods("{limits: {nvidia.com/gpu.shared: 2}}", name="a"),
            b=pods("{limits: {nvidia.com/gpu: 2}}", name="b"),
            c=sharing("mps"),
        ),
        files(
            a=pods("{limits: {nvidia.com/gpu.shared: 1}}", name="a"),
            b=pods("{limits: {nvidia.com/gpu: 1}}", name="b"),
            c=sharing(),
        ),
    ),
    "several-shares/whole": (
        files(b=pods("{limits: {nvidia.com/gpu: 2}}"), c=sharing()),
        files(b=pods("{limits: {nvidia.com/gpu: 2}}")),
    ),
    # karpenter#729, and Azure/AKS#3427 for Cluster Autoscaler.
    "shares-unseen": (
        files(p=node_pool([types("g6.xlarge"), SOLD], LATE), c=sharing()),
        files(
            p=groups(f'{GROUP}{LABELLED}\n  tags: {{{TEMPLATE}/resources/nvidia.com/gpu: "4"}}'),
            c=sharing(),
        ),
    ),
    "claims-under-karpenter": (
        files(p=node_pool([SOLD]), w=pods("{claims: [{name: gpu}]}", CLAIMS, kind="Job")),
        files(g=groups(GROUP + LABELLED), w=pods("{claims: [{name: gpu}]}", CLAIMS, kind="Job")),
    ),
    # kube-scheduler: cannot allocate all claims.
    "claim-without-device": (
        files(s=SLICE, t=_TEMPLATE.replace("MODEL", "H100"), w=_CLAIMING),
        files(s=SLICE, t=_TEMPLATE.replace("MODEL", "A100"), w=_CLAIMING),
    ),
    "claim-without-device/none": (
        files(s=SLICE.replace("devices", "sharedCounters"), t=_ANY, w=_CLAIMING),
        files(t=_TEMPLATE.replace("MODEL", "H100"), w=_CLAIMING),
    ),
    # A group of 2 pods with 8 GPUs each, of nodes that have 8 in all.
    "larger-than-any-node/group": (
        files(p=_EIGHT, w=LWS.replace("SIZE", "2")),
        files(p=_EIGHT, w=LWS.replace("SIZE", "1")),
    ),
    "larger-than-any-node/pod group": (
        files(p=_EIGHT, g=_POD_GROUP.replace("LEAST", "9"), w=_MEMBERS),
        files(p=_EIGHT, g=_POD_GROUP.replace("LEAST", "8"), w=_MEMBERS),
    ),
    # As Karpenter's event says: did not tolerate taint.
    "untolerated-pool": (
        files(
            p=node_pool([types("g6.xlarge"), SOLD], LATE, taint=TEAM),
            w=pods(more="nodeSelector: {karpenter.sh/nodepool: gpu}"),
        ),
        files(
            p=node_pool([types("g6.xlarge"), SOLD], LATE, taint=TEAM),
            a=pods(more=f"nodeSelector: {{karpenter.sh/nodepool: gpu}}\n{TOLERATES}", name="a"),
            b=pods(more="nodeSelector: {karpenter.sh/nodepool: other}", name="b"),
        ),
    ),
    "no-tolerated-pool": (
        files(p=node_pool([types("g6.xlarge"), SOLD], LATE, taint=TEAM), w=pods()),
        # The admission plugin of EKS, AKS and GKE adds the toleration of the resource's own taint.
        files(
            p=node_pool(
                [types("g6.xlarge"), SOLD], LATE, taint="{key: nvidia.com/gpu, effect: NoSchedule}"
            ),
            q=node_pool([types("g6.xlarge"), SOLD], LATE, "open"),
            w=pods(),
        ),
    ),
    "kept-from-pool": (
        files(p=node_pool([types("g6.xlarge"), SOLD], LATE, taint=TEAM), d=plugin()),
        files(
            p=node_pool([types("g6.xlarge"), SOLD], LATE, taint=TEAM),
            a=plugin("tolerations: [{operator: Exists}]"),
            b=plugin("nodeSelector: {karpenter.sh/nodepool: other}"),
        ),
    ),
    # karpenter-provider-aws#8064: g4dn.4xlarge has 16 vCPUs and one T4.
    "fits-no-pool": (
        files(
            p=node_pool([types("g4dn.2xlarge", "g4dn.4xlarge"), SOLD], LATE),
            w=pods("{requests: {cpu: 17}, limits: {nvidia.com/gpu: 2}}"),
        ),
        files(
            p=node_pool([types("g4dn.2xlarge", "g4dn.12xlarge"), SOLD], LATE),
            f=node_pool(
                [one_of("karpenter.k8s.aws/instance-family", "g6f"), SOLD],
                f"  limits: {{nvidia.com/gpu: 16}}\n{LATE}",
                "parts",
            ),
            q=node_pool(
                [types("m9.large"), SOLD], f"  limits: {{nvidia.com/gpu: 16}}\n{LATE}", "unknown"
            ),
            a=pods("{requests: {cpu: 17}, limits: {nvidia.com/gpu: 2}}", name="a"),
            b=pods("{limits: {nvidia.com/gpu: 8}}", name="b"),
        ),
    ),
    "fits-no-pool/count": (
        files(
            p=node_pool([one_of("karpenter.k8s.aws/instance-gpu-count", '"1"', '"4"'), SOLD], LATE),
            w=pods("{limits: {nvidia.com/gpu: 8}}"),
        ),
        files(
            p=node_pool([one_of("karpenter.k8s.aws/instance-gpu-count", '"4"', '"8"'), SOLD], LATE),
            w=pods("{limits: {nvidia.com/gpu: 8}}"),
        ),
    ),
    "label-unknown-at-zero": (
        files(
            p=node_pool([types("g6.xlarge"), SOLD], LATE),
            w=pods(more="nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}"),
        ),
        files(
            p=node_pool(
                [types("g6.xlarge"), SOLD], LATE, labels="{nvidia.com/gpu.product: NVIDIA-L4}"
            ),
            a=pods(more="nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}", name="a"),
            b=pods(more="nodeSelector: {karpenter.k8s.aws/instance-gpu-name: l4}", name="b"),
        ),
    ),
    "label-of-running-nodes": (
        files(
            g=groups(GROUP + LABELLED),
            w=pods(more="nodeSelector: {nvidia.com/gpu.present: 'true'}"),
        ),
        files(
            g=groups((GROUP + LABELLED).replace("minSize: 0", "minSize: 1")),
            w=pods(more="nodeSelector: {nvidia.com/gpu.present: 'true'}"),
        ),
    ),
    # 500 replicas of one GPU over a NodePool of 8.
    "pools-below-max": (
        files(
            p=node_pool([types("g6.xlarge"), SOLD], f"  limits: {{nvidia.com/gpu: 8}}\n{LATE}"),
            w=pods(),
            h=hpa(500),
        ),
        files(
            p=node_pool([types("g6.xlarge"), SOLD], f"  limits: {{nvidia.com/gpu: 8}}\n{LATE}"),
            w=pods(),
            h=hpa(8),
        ),
    ),
    # A group of 4 nodes with a GPU each.
    "pools-below-max/group": (
        files(g=groups(GROUP + LABELLED), w=pods(), h=hpa(5)),
        files(
            g=groups(GROUP + LABELLED),
            p=node_pool([types("g6.xlarge"), SOLD], LATE),
            w=pods(),
            h=hpa(5),
        ),
    ),
    "quota-below-max": (
        files(q=QUOTA, w=pods(), h=hpa(4)),
        files(q=QUOTA, w=pods(), h=hpa(3)),
    ),
    "uncovered-resource": (
        files(q=queue(resource="cpu"), w=pods(kind="Job", labels=QUEUED)),
        files(q=queue(), w=pods(kind="Job", labels=QUEUED)),
    ),
    # Ten pods of one GPU in a queue of eight.
    "above-quota": (
        files(
            q=queue(),
            w=pods(kind="Job", labels=QUEUED).replace("spec:", "spec:\n  parallelism: 10", 1),
        ),
        files(
            q=queue(more="\n  cohort: all"),
            w=pods(kind="Job", labels=QUEUED).replace("spec:", "spec:\n  parallelism: 10", 1),
        ),
    ),
}
