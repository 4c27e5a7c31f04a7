"""Which taints are of the moment."""

import pytest

from gpuscale.base.objects.taints import moment_of
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
