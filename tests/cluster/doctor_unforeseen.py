"""Forty more faults for the doctor, written down before it saw any of them; prints what it says of each.

    .venv/bin/python tests/cluster/doctor_unforeseen.py

docs/doctor-faults.md has what came out, judged by hand. Those marked `kin` are kin of a check that there was.
"""

# ruff: noqa: E501, T201 - commands as one types them

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_doctor_faults import FaultyCluster

SETTLE_S = 45.0


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: commands that make it in its namespace, and what is right to say."""

    name: str
    do: str
    right: str
    undo: str = ""
    """Of one that is of the whole cluster: these are made one after another."""


def template(patch):
    return f"""workload web; patch deployment/web '{{"spec":{{"template":{{"spec":{patch}}}}}}}'"""


def metrics(*each):
    return f"""workload web; patch hpa/web '{{"spec":{{"metrics":[{",".join(each)}]}}}}'"""


def pods_metric(name, selector=""):
    chosen = f',"selector":{{"matchLabels":{{{selector}}}}}' if selector else ""
    return (
        f'{{"type":"Pods","pods":{{"metric":{{"name":"{name}"{chosen}}},'
        '"target":{"type":"AverageValue","averageValue":"60"}}}'
    )


def object_metric(kind, version, name):
    return (
        '{"type":"Object","object":{"metric":{"name":"DCGM_FI_DEV_GPU_UTIL"},"describedObject":'
        f'{{"apiVersion":"{version}","kind":"{kind}","name":"{name}"}},'
        '"target":{"type":"Value","value":"30"}}}'
    )


def status(conditions, containers, phase="Running", kind="containerStatuses"):
    return (
        "workload web; k rollout status deployment/web --timeout=90s; "
        "k patch --subresource=status --type=merge $(k get pods -o name | head -1) -p "
        f"""'{{"status":{{"phase":"{phase}","{kind}":[{containers}],"conditions":[{conditions}]}}}}'"""
    )


UNREADY = '{"type":"Ready","status":"False"}'
BOX = '"name":"model","ready":false,"image":"none","imageID":""'
POD = """spec: {restartPolicy: Never, tolerations: [{operator: Exists}], containers: [{name: model, image: none,
  resources: {limits: {nvidia.com/gpu: 1}}}]}"""
HPA_ROLE = "clusterrole system:controller:horizontal-pod-autoscaler"
FAULTS = (
    Fault(
        "daemonset-target",
        """workload web; patch hpa/web '{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"DaemonSet",
        "name":"web"}}}'""",
        "a DaemonSet can't be scaled (or: there is none of this name)",
    ),
    Fault(
        "terminating-namespace",
        """workload web; k create configmap keep
        patch configmap/keep '{"metadata":{"finalizers":["example.com/keep"]}}'
        kubectl delete namespace $NS --wait=false""",
        "the namespace is being deleted; its finalizers hold it",
    ),
    Fault(
        "gpu-on-init",
        """workload web; k patch deployment web --type=json -p '[{"op":"replace","path":
        "/spec/template/spec/containers/0/resources","value":{}},{"op":"add","path":"/spec/template/spec/initContainers",
        "value":[{"name":"warm","image":"none","resources":{"limits":{"nvidia.com/gpu":1}}}]}]'""",
        "only the init container asks for a GPU, the model's container does not",
    ),
    Fault(
        "paused-deployment",
        """workload web 0; k delete deployment web; workload paused 1; k delete deployment paused
        k create -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: paused}
spec:
  paused: true
  selector: {matchLabels: {app: paused}}
  template: {metadata: {labels: {app: paused}}, spec: {containers: [{name: model, image: none,
    resources: {limits: {nvidia.com/gpu: 1}}}]}}
Y
k delete hpa web""",
        "the Deployment is paused, so no pods are made",
    ),
    Fault(
        "admission-policy",
        """kubectl create -f - <<Y
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-gpu}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "false", message: "no GPUs on Mondays"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-gpu}
spec:
  policyName: no-gpu
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}
Y
sleep 3; workload web""",
        "ReplicaFailure with the policy's message; change the template or the policy",
    ),
    Fault(
        "runtime-class",
        template('{"runtimeClassName":"nvidia"}'),
        "RuntimeClass nvidia is not there",
    ),
    Fault(
        "kind-typo",
        """workload web; patch hpa/web '{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deploymnet",
        "name":"web"}}}'""",
        "there is no such kind; Deployment is meant",
    ),
    Fault(
        "metric-case",
        metrics(pods_metric("dcgm_fi_dev_gpu_util")),
        "ask for DCGM_FI_DEV_GPU_UTIL",
    ),
    Fault(
        "metric-selector",
        metrics(pods_metric("DCGM_FI_DEV_GPU_UTIL", '"modelName":"H999"')),
        "no series has modelName=H999",
    ),
    Fault(
        "gpu-quota-zero",
        "k create quota gpus --hard=requests.nvidia.com/gpu=0; workload web",
        "exceeded quota: gpus; raise it",
    ),
    Fault(
        "statefulset-quota",
        """k create quota pods --hard=pods=1; k create -f - <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 2
  serviceName: web
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {tolerations: [{operator: Exists}],
    containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}}
Y""",
        "exceeded quota: pods, of StatefulSet web",
    ),
    Fault(
        "object-deployment-gone",
        metrics(object_metric("Deployment", "apps/v1", "gateway")),
        "there is no Deployment gateway",
    ),
    Fault(
        "service-account",
        template('{"serviceAccountName":"model"}'),
        "service account model is not there",
    ),
    Fault(
        "tolerance",
        """workload web; patch hpa/web '{"spec":{"behavior":{"scaleUp":{"tolerance":"900m"}}}}'""",
        "with a tolerance of 0.9 and a target of 60 % the metric never gets to 114 %",
    ),
    Fault(
        "bare-pod",
        f"""workload web; k create -f - <<Y
apiVersion: v1
kind: Pod
metadata: {{name: debug, labels: {{app: web}}}}
{POD.replace("nvidia.com/gpu: 1", "cpu: 1")}
Y
k rollout status deployment/web --timeout=90s""",
        "pod debug is not of the Deployment, and counts for its HPA",
    ),
    Fault(
        "object-without-series",
        "k create service clusterip web --tcp=80; "
        + metrics(object_metric("Service", "v1", "web")),
        "no series for Service web: which label maps it",
    ),
    Fault(
        "two-exporters",
        """k create -f - <<Y
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: dcgm-exporter}
spec:
  selector: {matchLabels: {x: dcgm}}
  template: {metadata: {labels: {x: dcgm}}, spec: {tolerations: [{operator: Exists}],
    containers: [{name: exporter, image: nvidia/dcgm-exporter}]}}
Y""",
        "two exporters measure the GPUs of gpu-1",
    ),
    Fault(
        "two-budgets",
        """workload web; k create poddisruptionbudget one --selector=app=web --max-unavailable=1
        k create poddisruptionbudget two --selector=app=web --max-unavailable=1""",
        "a pod of two budgets can't be evicted",
    ),
    Fault(
        "job-refused",
        f"""k create quota pods --hard=pods=0; k create -f - <<Y
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec: {{template: {{{POD.replace(chr(10), " ")}}}}}
Y""",
        "exceeded quota: pods, of Job train",
    ),
    Fault(
        "other-namespace",
        "workload gpuscale-metrics-api; k delete deployment gpuscale-metrics-api",
        "there is no such Deployment here; it is in namespace gpuscale",
    ),
    Fault(
        "pods-metric-cpu",
        metrics(pods_metric("cpu")),
        "no metric cpu here; type Resource is meant, or another name",
    ),
    Fault(
        "node-name-gone",
        template('{"nodeName":"gpu-9"}'),
        "nodeName gpu-9 in the template is no node",
    ),
    Fault(
        "resource-typo",
        """workload web; k patch deployment web --type=json -p '[{"op":"replace",
        "path":"/spec/template/spec/containers/0/resources/limits","value":{"nvidia.com/gpus":1}}]'""",
        "no node offers nvidia.com/gpus; nvidia.com/gpu is meant",
    ),
    Fault(
        "rdma",
        "workload web; k set resources deployment web --limits=nvidia.com/gpu=1,rdma/hca=1",
        "no node offers rdma/hca",
    ),
    Fault(
        "host-port",
        """workload web 2; k patch deployment web --type=json -p '[{"op":"add",
        "path":"/spec/template/spec/containers/0/ports","value":[{"containerPort":80,"hostPort":8080}]}]'""",
        "kin: the host port is taken on the node",
    ),
    Fault(
        "anti-affinity",
        """workload web 2; patch deployment/web '{"spec":{"template":{"spec":{"affinity":{"podAntiAffinity":{
        "requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"app":"web"}},
        "topologyKey":"kubernetes.io/hostname"}]}}}}}}'""",
        "kin: anti-affinity between its pods",
    ),
    Fault(
        "topology",
        template(
            '{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":'
            '"DoNotSchedule","labelSelector":{"matchLabels":{"app":"web"}}}]}'
        ),
        "kin: no node has the label zone",
    ),
    Fault(
        "memory",
        "workload web; k set resources deployment web --requests=memory=100Ti --limits=nvidia.com/gpu=1",
        "kin: no node has that much memory",
    ),
    Fault(
        "affinity-expression",
        template(
            '{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":'
            '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpu.model","operator":"In",'
            '"values":["H300"]}]}]}}}}'
        ),
        "kin: no node has gpu.model in (H300)",
    ),
    Fault(
        "gate",
        template('{"schedulingGates":[{"name":"example.com/queue"}]}'),
        "kin: held by the gate example.com/queue",
    ),
    Fault("scheduler-gone", template('{"schedulerName":"volcano"}'), "kin: scheduler volcano"),
    Fault(
        "volume-gone",
        template('{"volumes":[{"name":"m","persistentVolumeClaim":{"claimName":"models"}}]}'),
        "kin: there is no claim models",
    ),
    Fault(
        "claim-template-gone",
        template('{"resourceClaims":[{"name":"g","resourceClaimTemplateName":"gpu"}]}'),
        "kin: there is no claim template gpu",
    ),
    Fault(
        "secret-gone",
        status(
            UNREADY,
            f'{{{BOX},"restartCount":0,"state":{{"waiting":{{"reason":"CreateContainerConfigError",'
            '"message":"secret \\"model-key\\" not found"}}}',
        ),
        "kin: secret model-key is not there",
    ),
    Fault(
        "oom",
        status(
            '{"type":"Ready","status":"True"}',
            f'{{{BOX.replace("false", "true")},"restartCount":2,"state":{{"running":{{}}}},"lastState":'
            '{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}',
        ),
        "kin: the container was killed for want of memory",
    ),
    Fault(
        "flux",
        """workload web; kubectl apply --server-side --force-conflicts --field-manager=kustomize-controller -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec: {replicas: 1}
Y""",
        "kin: Flux sets the replicas",
    ),
    Fault(
        "pod-security",
        "kubectl label namespace $NS pod-security.kubernetes.io/enforce=restricted; workload web",
        "kin: PodSecurity refuses the pods",
    ),
    Fault(
        "controller-may-not-scale",
        """kubectl get clusterrole system:controller:horizontal-pod-autoscaler -o json > /tmp/hpa-role-$$.json
        cp /tmp/hpa-role-$$.json /tmp/hpa-role.json
        python3 -c 'import json; b=json.load(open("/tmp/hpa-role.json"));
b["rules"]=[r for r in b["rules"] if "*/scale" not in r.get("resources",[])];
b["metadata"]={"name":b["metadata"]["name"]}; print(json.dumps(b))' | kubectl replace -f -
        sleep 15""",
        "the HPA controller may not read or write scale",
        """python3 -c 'import json; b=json.load(open("/tmp/hpa-role.json"));
b["metadata"]={"name":b["metadata"]["name"]}; print(json.dumps(b))' | kubectl replace -f -""",
    ),
    Fault(
        "broken-rules",
        """kubectl patch configmap -n gpuscale gpuscale-metrics-api --type=merge -p '{"data":{"rules.yaml":"rules: [{"}}'""",
        "the rules in the ConfigMap are no YAML; the server goes on with the old ones until its restart",
        "true",
    ),
    Fault(
        "no-hpa-controller",
        "STOP kube-controller-manager",
        "nothing looks at HPAs: the controller manager does not run",
        "CONT",
    ),
)


class UnforeseenCluster(FaultyCluster):
    """A cluster with all faults at once."""

    names = tuple(fault.name for fault in FAULTS)


def main() -> None:
    """Make every fault, and print what doctor says of each."""
    chosen = [each for each in FAULTS if not sys.argv[1:] or each.name in sys.argv[1:]]
    with (
        tempfile.TemporaryDirectory(prefix="gs-") as folder,
        UnforeseenCluster(Path(folder)) as cluster,
    ):
        cluster.healthy()
        for fault in chosen:
            if not fault.undo:
                cluster.plane.kubectl("create", "namespace", fault.name)
                try:
                    cluster.run_in(fault.name, fault.do)
                except AssertionError as error:
                    print(f"== {fault.name}: commands failed: {error}", flush=True)
        wait(cluster, SETTLE_S)
        report = cluster.report()
        for fault in chosen:
            if not fault.undo:
                show(fault, report, f"/{fault.name}/")
        before = {(each.check.id, each.where) for each in report.findings}
        for fault in (each for each in chosen if each.undo):
            if fault.do.startswith("STOP"):
                cluster.plane.kill(fault.do.split()[1])
            else:
                cluster.run_in("default", fault.do)
            wait(cluster, SETTLE_S)
            after = cluster.report()
            print(f"== {fault.name}: {fault.right}")
            for each in after.findings:
                if (each.check.id, each.where) not in before:
                    tell(each)
            if fault.undo != "CONT":
                cluster.run_in("default", fault.undo)


def wait(cluster, seconds):
    """Keep Prometheus' data fresh for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cluster.sample()
        time.sleep(1)


def show(fault, report, place):
    """Print what a report says of a fault."""
    print(f"== {fault.name}: {fault.right}")
    said = False
    for root in report.findings:
        for each in (root, *root.same):
            wheres = [each.where, *(one.where for one in each.consequences)]
            if any(place in f"{where}/" for where in wheres):
                tell(each)
                said = True
    if not said:
        print("   nothing", flush=True)


def tell(finding):
    """Print a finding."""
    print(f"   {finding.check.id} {finding.where}: {finding.what}")
    print(f"      | {finding.evidence[:220]}")
    print(f"      -> {finding.fix.say}  $ {finding.fix.command[:160]}")
    for each in finding.consequences:
        print(f"      also {each.check.id} {each.where}", flush=True)


if __name__ == "__main__":
    main()
