"""Kubernetes' types as schemas: names, types, what is required, and what is said of each field."""

from gpuscale.kube.schemas import kind_schema_name, schemas_of

ROOT = "#/components/schemas/"


def test_a_kind_brings_all_that_it_is_made_of() -> None:
    found = schemas_of([("autoscaling", "v2", "HorizontalPodAutoscaler")], ROOT)
    name = kind_schema_name("autoscaling", "v2", "HorizontalPodAutoscaler")
    assert name is not None
    (spec,) = found[name]["properties"]["spec"]["allOf"]
    body = found[spec["$ref"].removeprefix(ROOT)]
    assert body["required"] == ["maxReplicas", "scaleTargetRef"]
    assert body["properties"]["maxReplicas"]["type"] == "integer"
    assert "upper limit" in body["properties"]["maxReplicas"]["description"]
    items = body["properties"]["metrics"]["items"]
    assert "object" in found[items["$ref"].removeprefix(ROOT)]["properties"]
    references = {
        text.partition('"')[0] for each in map(str, found.values()) for text in each.split(ROOT)[1:]
    }
    assert {each.partition("'")[0] for each in references} == found.keys() - {name}


def test_a_name_that_python_reserves_is_that_of_the_wire() -> None:
    found = schemas_of([("networking.k8s.io", "v1", "NetworkPolicy")], ROOT)
    assert "from" in found["io.k8s.networking_v1.NetworkPolicyIngressRule"]["properties"]


def test_a_port_may_be_a_number_or_a_name() -> None:
    found = schemas_of([("", "v1", "Service")], ROOT)
    port = found["io.k8s.core_v1.ServicePort"]["properties"]["targetPort"]
    assert port["x-kubernetes-int-or-string"] is True


def test_kinds_of_other_projects_have_no_schema() -> None:
    assert kind_schema_name("keda.sh", "v1alpha1", "ScaledObject") is None
    assert schemas_of([("keda.sh", "v1alpha1", "ScaledObject")], ROOT) == {}
