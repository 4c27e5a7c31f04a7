"""Faults for the doctor, each in a namespace of its own: commands that make it, and commands of its fix.

`$NS` is the namespace; `workload NAME` makes a Deployment and an HPA of it there.
"""

# ruff: noqa: E501 - commands as one types them

from dataclasses import dataclass

PRELUDE = """
k() { kubectl -n "$NS" "$@"; }
patch() { k patch "$1" --type=merge -p "$2"; }
workload() { k create -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: ${2:-1}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      tolerations: [{operator: Exists}]
      containers:
      - {name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: $1}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: $1}
  minReplicas: 1
  maxReplicas: 4
  metrics:
  - type: Pods
    pods:
      metric: {name: DCGM_FI_DEV_GPU_UTIL}
      target: {type: AverageValue, averageValue: "60"}
Y
}
"""
COMMAND = "the command of the finding"
"""For a cure: what doctor itself says to run."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Args:
        name: of its namespace.
        do: commands that make it.
        check: that names it, as the only cause in the namespace.
        says: words of the finding.
        fix: words of its fix.
        cure: what the fix says, as commands; None where it takes what a test has not.
    """

    name: str
    do: str
    check: str
    says: str
    fix: str
    cure: str | None = COMMAND


FAULTS = (
    Fault(
        "object",
        """workload web; patch hpa/web '{"spec":{"metrics":[{"type":"Object","object":{"metric":{"name":
        "DCGM_FI_DEV_GPU_UTIL"},"describedObject":{"apiVersion":"v1","kind":"Service","name":"gpuscale-node-agent"},
        "target":{"type":"Value","value":"30"}}}]}}'""",
        "described-object-absent",
        "it is in namespace gpuscale",
        "Name a Service of namespace object",
        "k create service clusterip gpuscale-node-agent --tcp=9400",
    ),
    Fault(
        "overlap",
        """workload web; workload other; k delete deployment other --wait=true
        k get deployment web -o json | sed 's/"name": "web"/"name": "other"/' |
          python3 -c 'import json,sys; b=json.load(sys.stdin); b["metadata"]={"name":"other"}; print(json.dumps(b))' |
          k create -f -""",
        "selectors-overlap",
        "Deployment other and Deployment web",
        "a label of its own",
        "k delete hpa,deployment other; workload other",
    ),
    Fault(
        "version",
        """workload web; patch hpa/web '{"spec":{"scaleTargetRef":{"apiVersion":"extensions/v1beta1",
        "kind":"Deployment","name":"web"}}}'""",
        "wrong-target-version",
        "extensions/v1beta1",
        "apps/v1",
    ),
    Fault(
        "owned",
        """workload web; k rollout status deployment/web --timeout=60s
        rs=$(k get rs -l app=web -o jsonpath='{.items[0].metadata.name}')
        patch hpa/web '{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"'$rs'"}}}'""",
        "target-is-owned",
        "belongs to Deployment owned/web",
        "Name Deployment web",
    ),
    Fault(
        "unit",
        """workload web; patch hpa/web '{"spec":{"metrics":[{"type":"Pods","pods":{"metric":{"name":
        "DCGM_FI_DEV_GPU_UTIL"},"target":{"type":"AverageValue","averageValue":"600m"}}}]}}'""",
        "wrong-unit",
        "600m",
        "60",
        """patch hpa/web '{"spec":{"metrics":[{"type":"Pods","pods":{"metric":{"name":
        "DCGM_FI_DEV_GPU_UTIL"},"target":{"type":"AverageValue","averageValue":"60"}}}]}}'""",
    ),
    Fault(
        "mig",
        """workload web; k patch deployment web --type=json -p '[{"op":"replace",
        "path":"/spec/template/spec/containers/0/resources/limits","value":{"nvidia.com/mig-1g.10gb":1}}]'""",
        "resource-not-offered",
        "nodes offer nvidia.com/gpu",
        "Ask for nvidia.com/gpu",
        """k patch deployment web --type=json -p '[{"op":"replace",
        "path":"/spec/template/spec/containers/0/resources/limits","value":{"nvidia.com/gpu":1}}]'""",
    ),
    Fault(
        "claims",
        """k create -f - <<Y
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
Y
workload web; k patch deployment web --type=json -p '[{"op":"replace",
"path":"/spec/template/spec/containers/0/resources","value":{"claims":[{"name":"g"}]}},
{"op":"add","path":"/spec/template/spec/resourceClaims","value":[{"name":"g","resourceClaimTemplateName":"gpu"}]}]'""",
        "claim-not-allocated",
        "DeviceClass gpu.nvidia.com",
        "dynamic resource allocation",
        """kubectl create -f - <<Y
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpu-1}
spec:
  driver: gpu.nvidia.com
  nodeName: gpu-1
  pool: {name: gpu-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
Y""",
    ),
    Fault(
        "image",
        """workload web; k rollout status deployment/web --timeout=60s
        k patch --subresource=status --type=merge $(k get pods -o name | head -1) -p '{"status":{"phase":"Pending",
        "containerStatuses":[{"name":"model","ready":false,"restartCount":0,"image":"none","imageID":"","state":{"waiting":
        {"reason":"ImagePullBackOff","message":"pull access denied"}}}],"conditions":[{"type":"Ready","status":"False"}]}}'""",
        "container-waiting",
        "ImagePullBackOff: pull access denied",
        "Correct the image of container model",
        "k set image deployment/web model=there",
    ),
    Fault(
        "huge",
        "workload web; k set resources deployment web --limits=nvidia.com/gpu=128",
        "larger-than-any-node",
        "asks for 128 nvidia.com/gpu, and the largest node has 64",
        "at most 64 a pod",
        "k set resources deployment web --limits=nvidia.com/gpu=1",
    ),
    Fault(
        "selector",
        """workload web
        patch deployment/web '{"spec":{"template":{"spec":{"nodeSelector":{"nvidia.com/gpu.product":"A100"}}}}}'""",
        "no-matching-node",
        "has the label nvidia.com/gpu.product=A100",
        "label the nodes",
        "kubectl label node gpu-1 nvidia.com/gpu.product=A100",
    ),
    Fault(
        "volume",
        """k create -f - <<Y
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models}
spec: {accessModes: [ReadOnlyMany], storageClassName: none, resources: {requests: {storage: 1Gi}}}
Y
workload web
patch deployment/web '{"spec":{"template":{"spec":{"volumes":[{"name":"m","persistentVolumeClaim":{"claimName":"models"}}]}}}}'
""",
        "volume-not-bound",
        "there is no StorageClass none",
        "Make StorageClass none",
        """kubectl create -f - <<Y
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: none}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: models}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: none
  capacity: {storage: 1Gi}
  hostPath: {path: /models}
Y""",
    ),
    Fault(
        "zero",
        "workload web 0",
        "hpa-paused",
        "0 replicas, which pauses its HPA",
        "replicas to 1",
    ),
    Fault(
        "quota",
        "k create quota pods --hard=pods=1; workload web 3",
        "pods-refused",
        "exceeded quota: pods",
        "Raise ResourceQuota pods",
        """patch quota/pods '{"spec":{"hard":{"pods":"9"}}}'""",
    ),
    Fault(
        "resource",
        """workload web; k patch hpa web --type=json -p '[{"op":"add","path":"/spec/metrics/-","value":{"type":"Resource",
        "resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}}}]'""",
        "no-resource-metrics",
        "Nothing serves metrics.k8s.io",
        "metrics-server",
    ),
    Fault(
        "limits",
        """k create -f - <<Y
apiVersion: v1
kind: LimitRange
metadata: {name: one}
spec: {limits: [{type: Container, max: {nvidia.com/gpu: 1}}]}
Y
workload web; k set resources deployment web --limits=nvidia.com/gpu=2""",
        "pods-refused",
        "maximum nvidia.com/gpu usage per Container is 1",
        "LimitRange of the namespace",
        "k delete limitrange one",
    ),
    Fault(
        "webhook",
        """kubectl create -f - <<Y
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: blocker}
webhooks:
- name: b.example.com
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  clientConfig: {url: "https://127.0.0.1:1/x"}
Y
sleep 2; workload web""",
        "pods-refused",
        "b.example.com",
        "webhook b.example.com",
        "kubectl delete validatingwebhookconfiguration blocker",
    ),
    Fault(
        "priority",
        """workload web; patch deployment/web '{"spec":{"template":{"spec":{"priorityClassName":"gpu-high"}}}}'""",
        "pods-refused",
        "no PriorityClass with name gpu-high was found",
        "Make PriorityClass gpu-high",
        "kubectl create priorityclass gpu-high --value=1",
    ),
    Fault(
        "argo",
        """workload web; kubectl apply --server-side --force-conflicts --field-manager=argocd-controller -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec: {replicas: 1}
Y""",
        "replicas-owned",
        "Argo CD sets spec.replicas of Deployment web",
        "Take spec.replicas out of the manifest in Git",
        """kubectl apply --server-side --field-manager=argocd-controller -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
Y""",
    ),
    Fault(
        "disabled",
        """workload web; patch hpa/web '{"spec":{"behavior":{"scaleDown":{"selectPolicy":"Disabled"}}}}'""",
        "scale-down-disabled",
        "never scales down",
        "scaleDown.selectPolicy",
    ),
    Fault(
        "budget",
        "workload web; k create poddisruptionbudget web --selector=app=web --max-unavailable=0",
        "pdb-blocks",
        "maxUnavailable: 0",
        "maxUnavailable: 1",
    ),
)
POOL_AT_ZERO = """
kubectl create namespace $NS
kubectl create -f - <<Y
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: h100}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: h100}
      taints: [{key: example.com/h100, value: "true", effect: NoSchedule}]
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]
Y
workload web
patch deployment/web '{"spec":{"template":{"spec":{"tolerations":null,"nodeSelector":{"karpenter.sh/nodepool":"h100"}}}}}'
k delete pods -l app=web --wait=true
until pod=$(k get pods -l app=web -o jsonpath='{.items[0].metadata.name}') && [ -n "$pod" ]; do sleep 0.2; done
k create -f - <<Y
apiVersion: v1
kind: Event
metadata: {name: karpenter}
involvedObject: {apiVersion: v1, kind: Pod, namespace: $NS, name: $pod}
source: {component: karpenter}
type: Warning
reason: FailedScheduling
message: 'Failed to schedule pod, incompatible with nodepool "h100", daemonset overhead={}, did not tolerate taint
  (taint=example.com/h100=true:NoSchedule)'
Y
"""
"""A workload that chooses a NodePool at zero and does not tolerate its taint, with Karpenter's word on it."""
