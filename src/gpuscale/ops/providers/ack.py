"""ACK: the body of CreateClusterNodePool, and the call that sends it.

Source: Alibaba Cloud Container Service API (CreateClusterNodePool), node autoscaling pages.
"""

import json
from collections.abc import Sequence

from gpuscale.base.objects.taints import Taint
from gpuscale.ops.providers.files import PoolFile, command, ready_taint_notes, script, taint_object
from gpuscale.ops.providers.provider import NodeLabel, Pool, Provider

_NOTES = (
    "Adds a GPU node pool to an ACK cluster, whose id is the first argument.",
    "auto_scaling.type has to be gpu (it is cpu by default): at zero nodes it says that a node will "
    "have GPUs. gpushare pools have aliyun.com/gpu-mem instead of nvidia.com/gpu.",
    "ACK labels the nodes aliyun.accelerator/nvidia_name and brings driver and device plugin: "
    "devicePlugin.enabled stays false.",
    "A self-managed Cluster Autoscaler finds no groups by itself on Alibaba Cloud: pass it "
    "--nodes=MIN:MAX:SCALING-GROUP-ID.",
)

_STARTUP_TAINT = (
    "Don't let ACK bring the pool's taints to nodes that are there: it would put this one back on."
)


def _pool_files(pool: Pool) -> Sequence[PoolFile]:
    """Return the request body and the script that sends it."""
    body = json.dumps(_body(pool), indent=2) + "\n"
    call = command(
        ["aliyun cs POST", '"/clusters/${1:?id of the cluster}/nodepools"'],
        f"--region {pool.region}",
        "--header Content-Type=application/json",
        '--body "$(cat "$(dirname "$0")/node-pool.json")"',
    )
    notes = (*_NOTES, *ready_taint_notes(pool.ready_taint, _STARTUP_TAINT))
    return [PoolFile("node-pool.json", body), script("node-pool.sh", notes, call)]


def _body(pool: Pool) -> dict[str, object]:
    return {
        "nodepool_info": {"name": pool.name, "type": "ess"},
        "scaling_group": {
            "instance_types": [pool.instance_type],
            "vswitch_ids": list(pool.networks),
            "system_disk_category": "cloud_essd",
            "system_disk_size": pool.disk_gib,
            "multi_az_policy": "BALANCE",
            "spot_strategy": "SpotAsPriceGo" if pool.spot else "NoSpot",
        },
        "auto_scaling": {
            "enable": True,
            "type": "gpu",
            "min_instances": pool.min_nodes,
            "max_instances": pool.max_nodes,
        },
        "kubernetes_config": {
            "runtime": "containerd",
            "labels": [{"key": "gpuscale.dev/pool", "value": pool.name}],
            "taints": [taint_object(each) for each in (pool.taint, pool.ready_taint) if each],
        },
        "management": {"enable": True},
    }


def _pool_faults(pool: Pool) -> Sequence[str]:
    if not pool.networks:
        return ["found nodePool on ack without networks, expected ids of VSwitches"]
    return ()


ACK = Provider(
    name="ack",
    title="Alibaba Cloud Container Service for Kubernetes",
    node_labels=(NodeLabel("aliyun.accelerator/nvidia_name"),),
    has_device_plugin=True,
    taint=Taint("scaler", "gpu"),
    id_schemes=("alicloud",),
    label_prefixes=("alibabacloud.com/",),
    pool_files=_pool_files,
    pool_faults=_pool_faults,
)
