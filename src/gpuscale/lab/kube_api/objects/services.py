"""Services."""

from copy import deepcopy
from typing import Any

from gpuscale.base.objects.workloads import Service
from gpuscale.lab.kube_api.objects.run import Json, Run, address

_HEADLESS = "None"
_NODE_PORTS = 30_000
"""Where Kubernetes' range of node ports begins."""


def service_body(run: Run, service: Service, number: int) -> Json:
    """Return a Service; nothing listens at its addresses.

    Args:
        run: it belongs to.
        service: of the simulation.
        number: counts Services, for an address.
    """
    meta = service.metadata
    written = deepcopy(dict(run.manifest("Service", meta.key).get("spec", {})))
    kind = written.get("type", "ClusterIP")
    # Only a headless Service can do without ports.
    is_headless = written.get("clusterIP") == _HEADLESS or not written.get("ports")
    ip = _HEADLESS if is_headless else address(10, 96, number)
    spec: Json = {"sessionAffinity": "None", "type": kind, **written}
    if kind != "ExternalName":
        spec |= {
            "clusterIP": ip,
            "clusterIPs": [ip],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        }
    ports = [_port(each, kind, number, index) for index, each in enumerate(spec.get("ports") or ())]
    if ports:
        spec["ports"] = ports
    if service.selector:
        spec["selector"] = dict(service.selector)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": run.metadata("Service", meta),
        "spec": spec,
        "status": {"loadBalancer": {}},
    }


def _port(port: dict[str, Any], kind: str, number: int, index: int) -> Json:
    body: Json = {"protocol": "TCP", "targetPort": port.get("port"), **port}
    if kind in {"NodePort", "LoadBalancer"}:
        body.setdefault("nodePort", _NODE_PORTS + (number * 16 + index) % 2768)
    return body
