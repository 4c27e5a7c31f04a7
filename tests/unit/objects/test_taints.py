"""Which taints are of the moment."""

import pytest

from gpuscale.base.objects.taints import READY_TAINT, moment_of, parse_startup_key
from taint_kin import KIN

STAY = [
    *(
        "nvidia.com/gpu",
        "amd.com/gpu",
        "sku",
        "scaler",
        "dedicated",
        "workload",
        "CriticalAddonsOnly",
    ),
    *(
        "kubernetes.azure.com/scalesetpriority",
        "cloud.google.com/gke-spot",
        "eks.amazonaws.com/compute-type",
    ),
    *("cloud.google.com/gke-preemptible", "cloud.google.com/gke-queued", "kubernetes.io/arch"),
    *(
        "node-role.kubernetes.io/control-plane",
        "rehearse.gpuscale.dev/run",
        "karpenter.sh/capacity-type",
    ),
]


@pytest.mark.parametrize(("key", "moment"), KIN)
def test_a_taint_of_the_moment_says_what_becomes_of_its_node(key, moment):
    assert moment_of(key) is moment


@pytest.mark.parametrize("key", STAY)
def test_a_pools_own_taint_stays(key):
    assert moment_of(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "karpenter.sh/disrupted",
        "karpenter.sh/unregistered",
        "ToBeDeletedByClusterAutoscaler",
        "nvidia.com/gpu",
        "sku",
    ],
)
def test_taints_that_stay_or_that_others_take_off_are_no_start_up_keys(key: str) -> None:
    with pytest.raises(ValueError, match="expected a key of your own that says start-up"):
        parse_startup_key(key)


@pytest.mark.parametrize("key", ["a=b", "a b", "/x", "x/", "gpu:NoSchedule", "x/" + "y" * 64])
def test_what_is_no_key_is_no_start_up_key(key: str) -> None:
    with pytest.raises(ValueError, match="expected the key of a taint"):
        parse_startup_key(key)


@pytest.mark.parametrize("key", [READY_TAINT, "gpuscale.dev/gpu-not-ready"])
def test_start_up_keys_of_ones_own_are_taken(key: str) -> None:
    assert parse_startup_key(key) == key
