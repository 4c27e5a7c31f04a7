"""The guide's HPA on a Service works as it stands, with node agents and without a Prometheus.

The guide describes a Service of dcgm-exporter and a mean that a Prometheus records. Here the installation
follows its agents' streams, records the mean itself, and calls the agents' Service as the guide does. All
else is as in `test_from_bare_cluster_to_nothing`: a real control plane, and the installation's own programs.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import own_network
from bare_cluster import IMAGE, Cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]

# A guide to GPU autoscaling on EKS, section 7; of 2022, hence v2beta2.
GUIDE = """
apiVersion: autoscaling/v2beta2
kind: HorizontalPodAutoscaler
metadata:
  name: vision-api-gpu-hpa
  namespace: default
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: vision-api
  minReplicas: 2
  maxReplicas: 12
  metrics:
  - type: Object
    object:
      metric:
        name: DCGM_FI_DEV_GPU_UTIL_AVG
      describedObject:
        kind: Service
        name: dcgm-exporter
      target:
        type: Value
        value: '30'
"""
# Kubernetes serves v2beta2 up to 1.25; the fields are the same.
MANIFEST = GUIDE.replace("v2beta2", "v2")
VALUES = {
    "apiVersion": "gpuscale.dev/v1alpha1",
    "kind": "Values",
    "spec": {
        "provider": "generic",
        "image": {"repository": IMAGE, "tag": "1"},
        "agent": {"serviceName": "dcgm-exporter"},
        "metricsApi": {"source": "streams"},
        "alerts": {"enabled": False},
        "dashboards": {"enabled": False},
    },
}


def test_the_guides_hpa_scales_on_a_service_without_a_prometheus(request):
    if not own_network.is_inside():
        if reason := own_network.missing():
            if os.environ.get("CI") and own_network.absent_programs():
                pytest.fail(reason)
            pytest.skip(reason)
        own_network.run_inside(request.node.nodeid, timeout_s=580)
        return
    with TemporaryDirectory(prefix="gpuscale-") as folder, Cluster(Path(folder)) as cluster:
        values = cluster.folder / "values.yaml"
        values.write_text(yaml.safe_dump(VALUES))
        out, _ = cluster.run("install", values, cluster.admin, "--yes")
        assert "Service gpuscale/dcgm-exporter created" in out
        assert not [line for line in out if "prometheus" in line.lower()]
        cluster.plane.apply(MANIFEST)
        cluster.wait(lambda: is_active(cluster), "the HPA to have a value")
        # A mean above 33 %, the target and its tolerance, asks for more pods than the two that there are.
        cluster.wait(lambda: wanted_at_work(cluster) > 2, "the HPA to scale up")
        # The stand-in's GPUs show 40 % when they are quiet, so a mean above the target stays.
        value = current(cluster)
        assert value is not None
        assert value > 30


def hpa(cluster):
    return cluster.plane.get("hpa", "vision-api-gpu-hpa")


def is_active(cluster):
    conditions = hpa(cluster).get("status", {}).get("conditions", ())
    active = {each["type"]: (each["status"], each["reason"]) for each in conditions}
    return active.get("ScalingActive") == ("True", "ValidMetricFound")


def current(cluster):
    for each in hpa(cluster)["status"].get("currentMetrics") or ():
        found = each.get("object", {})
        assert found["metric"]["name"] == "DCGM_FI_DEV_GPU_UTIL_AVG"
        assert found["describedObject"] == {"kind": "Service", "name": "dcgm-exporter"}
        return float(found["current"]["value"].removesuffix("m")) / (
            1000 if found["current"]["value"].endswith("m") else 1
        )
    return None


def wanted_at_work(cluster):
    cluster.work()
    return hpa(cluster).get("status", {}).get("desiredReplicas", 0)
