"""Which resources are GPUs, by how each vendor documents the name; the module has the sources."""

import pytest

from gpuscale.base.objects.gpu_resources import (
    GpuKind,
    class_resources,
    counts_gpus,
    gpu_kind,
    has_fraction,
    shares_by,
)

WHOLE, PARTITION, SHARE = GpuKind.WHOLE, GpuKind.PARTITION, GpuKind.SHARE
UNITS, QUALIFIER = GpuKind.UNITS, GpuKind.QUALIFIER


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", WHOLE),
        ("nvidia.com/gpu-a100", WHOLE),
        ("nvidia.com/vgpu", WHOLE),
        ("amd.com/gpu", WHOLE),
        ("gpu.intel.com/xe", WHOLE),
        ("gpu.intel.com/i915", WHOLE),
        ("aliyun.com/gpu", WHOLE),
        ("metax-tech.com/gpu", WHOLE),
        ("example.com/vgpu", WHOLE),
        ("nvidia.com/mig-1g.5gb", PARTITION),
        ("nvidia.com/mig-3g.20gb.me", PARTITION),
        ("amd.com/cpx_nps4", PARTITION),
        ("nvidia.com/gpu.shared", SHARE),
        ("nvidia.com/mig-1g.5gb.shared", SHARE),
        ("volcano.sh/vgpu-number", SHARE),
        ("aliyun.com/gpu-mem", UNITS),
        ("volcano.sh/gpu-memory", UNITS),
        ("tencent.com/vcuda-core", UNITS),
        ("koordinator.sh/gpu-core", UNITS),
        ("nvidia.com/gpumem", QUALIFIER),
        ("nvidia.com/gpumem-percentage", QUALIFIER),
        ("nvidia.com/gpucores", QUALIFIER),
        ("nvidia.com/priority", QUALIFIER),
        ("volcano.sh/vgpu-memory", QUALIFIER),
        ("volcano.sh/vgpu-cores", QUALIFIER),
        ("aliyun.com/gpu-core.percentage", QUALIFIER),
        ("aliyun.com/gpu-count", QUALIFIER),
        ("gpu.intel.com/millicores", QUALIFIER),
        ("gpu.intel.com/i915_monitoring", None),
        ("nvidia.com/hostdev", None),
        ("example.com/disk.shared", None),
        ("rdma/hca", None),
        ("google.com/tpu", None),
        ("aws.amazon.com/neuron", None),
        ("cpu", None),
        ("gpu", None),
        ("", None),
    ],
)
def test_a_resource_is_known_by_its_name(resource, kind):
    assert gpu_kind(resource) is kind
    assert counts_gpus(resource) is (kind in (WHOLE, PARTITION, SHARE))


def test_a_device_class_serves_its_own_name_and_the_one_it_is_given():
    # resource.k8s.io/v1: the implicit resource is deviceclass.resource.kubernetes.io/NAME.
    implicit = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    assert class_resources("gpu.nvidia.com", "") == (implicit,)
    assert class_resources("gpu.nvidia.com", "nvidia.com/gpu") == (implicit, "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("annotations", "labels", "expected"),
    [
        ({"gpu-fraction": "0.5"}, {}, True),
        ({"gpu-memory": "4096"}, {}, True),
        ({}, {"runai-gpu-group": "a"}, True),
        ({"gpu": "1"}, {"app": "web"}, False),
    ],
)
def test_a_fraction_is_known_by_its_annotation_or_label(annotations, labels, expected):
    assert has_fraction(annotations, labels) is expected


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        (
            {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
            {},
            True,
        ),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, {}, True),
        ({"nvidia.com/mig-1g.5gb.count": "7"}, {}, True),
        ({"nvidia.com/gpu.slices.gi": "1"}, {}, True),
        ({"nvidia.com/mig.config": "all-1g.5gb"}, {}, True),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, {}, True),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, {}, True),
        ({"ack.node.gpu.schedule": "cgpu"}, {}, True),
        ({"gpushare": "true"}, {}, True),
        ({}, {"hami.io/node-nvidia-register": "[]"}, True),
        # What NVIDIA's discovery writes of a node that shares nothing.
        (
            {
                "nvidia.com/gpu.replicas": "1",
                "nvidia.com/gpu.sharing-strategy": "none",
                "nvidia.com/mig.capable": "true",
                "nvidia.com/mig.strategy": "single",
                "nvidia.com/mig.config": "all-disabled",
                "nvidia.com/mps.capable": "false",
            },
            {},
            False,
        ),
        ({"ack.node.gpu.schedule": "topology"}, {}, False),
    ],
)
def test_a_node_that_shares_its_gpus_is_known_by_who_hands_them_out(labels, annotations, expected):
    assert shares_by(labels, annotations) is expected
