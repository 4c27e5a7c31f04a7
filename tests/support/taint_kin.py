"""Taints of the moment, with what each says of its node; the source stands above each."""

from gpuscale.base.objects.taints import PassingTaint

GOING, NOT_YET, UNWELL = PassingTaint.GOING, PassingTaint.NOT_YET, PassingTaint.UNWELL
KIN = [
    # k8s.io/api core/v1 well_known_taints.go
    ("node.kubernetes.io/not-ready", UNWELL),
    ("node.kubernetes.io/unreachable", UNWELL),
    ("node.kubernetes.io/unschedulable", UNWELL),
    ("node.kubernetes.io/memory-pressure", UNWELL),
    ("node.kubernetes.io/disk-pressure", UNWELL),
    ("node.kubernetes.io/pid-pressure", UNWELL),
    ("node.kubernetes.io/network-unavailable", NOT_YET),
    ("node.kubernetes.io/out-of-service", GOING),
    # k8s.io/cloud-provider/api well_known_taints.go
    ("node.cloudprovider.kubernetes.io/uninitialized", NOT_YET),
    ("node.cloudprovider.kubernetes.io/shutdown", GOING),
    # Cluster Autoscaler utils/taints/taints.go
    ("ToBeDeletedByClusterAutoscaler", GOING),
    ("DeletionCandidateOfClusterAutoscaler", GOING),
    ("startup-taint.cluster-autoscaler.kubernetes.io/x", NOT_YET),
    ("ignore-taint.cluster-autoscaler.kubernetes.io/cilium-agent-not-ready", NOT_YET),
    ("status-taint.cluster-autoscaler.kubernetes.io/x", UNWELL),
    ("NodeWithImpairedVolumes", UNWELL),
    ("cloud.google.com/impending-node-termination", GOING),
    # Karpenter pkg/apis/v1/taints.go; /disruption before 1.0
    ("karpenter.sh/unregistered", NOT_YET),
    ("karpenter.sh/disrupted", GOING),
    ("karpenter.sh/disruption", GOING),
    # aws-node-termination-handler pkg/node/node.go
    ("aws-node-termination-handler/spot-itn", GOING),
    ("aws-node-termination-handler/scheduled-maintenance", GOING),
    ("aws-node-termination-handler/asg-lifecycle-termination", GOING),
    ("aws-node-termination-handler/rebalance-recommendation", GOING),
    # AKS node-auto-drain, node-auto-repair; the second until 2025
    ("remediator.kubernetes.azure.com/unschedulable", GOING),
    ("remediator.aks.microsoft.com/unschedulable", GOING),
    # Cilium, CSI drivers of AWS, Istio's CNI, Node Readiness Controller, Cluster API
    ("node.cilium.io/agent-not-ready", NOT_YET),
    ("ebs.csi.aws.com/agent-not-ready", NOT_YET),
    ("efs.csi.aws.com/agent-not-ready", NOT_YET),
    ("cni.istio.io/not-ready", NOT_YET),
    ("readiness.k8s.io/NetworkReady", NOT_YET),
    ("node.cluster.x-k8s.io/uninitialized", NOT_YET),
    # medik8s and KubeVirt
    ("medik8s.io/drain", GOING),
    ("kubevirt.io/drain", GOING),
    # Of tools that are not known, by their words
    ("example.com/draining", GOING),
    ("example.com/gpu-driver-not-ready", NOT_YET),
    ("example.com/gpu-unhealthy", UNWELL),
]
