"""Other metrics APIs behind the installation's own: what the values file takes, and what it makes of them."""

import pytest
from install_values import rendered, values
from pydantic import ValidationError

from gpuscale.ops.install.cluster.plan import federates
from gpuscale.server.metricsapi.federation.settings import member_of_flag

CA = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
KEDA = {"name": "keda", "caBundle": CA}
OLD = {"name": "old", "target": "other/adapter:6443", "insecure": True, "groups": ["custom"]}


def objects(*members, external=True):
    teams = {"rulesConfigMaps": "team=ml"} if external and not members else {}
    spec = values(metricsApi={"external": external, "federate": list(members), **teams})
    return {(each["kind"], each["metadata"]["name"]): each for each in rendered(spec)}


def test_the_server_gets_a_flag_a_right_and_the_ca_of_each() -> None:
    found = objects(KEDA, OLD)
    pod = found["Deployment", "gpuscale-metrics-api"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    flags = [each for each in container["args"] if each.startswith("--federate=")]
    assert flags == [
        "--federate=keda,caFile=/etc/gpuscale/federation/keda/ca.crt",
        "--federate=old=other/adapter:6443,groups=custom,insecure",
    ]
    for flag in flags:
        assert member_of_flag(flag.removeprefix("--federate=")).url.startswith("https:")
    name = "gpuscale-metrics-api-federation"
    assert found["ConfigMap", name]["data"] == {"keda.crt": CA}
    (volume,) = (each for each in pod["volumes"] if each["name"] == "federation")
    assert volume["configMap"]["items"] == [{"key": "keda.crt", "path": "keda/ca.crt"}]
    (rule,) = found["ClusterRole", name]["rules"]
    assert set(rule["apiGroups"]) == {"custom.metrics.k8s.io", "external.metrics.k8s.io"}
    assert ("ClusterRoleBinding", name) in found


def test_an_installation_without_them_has_nothing_of_it() -> None:
    assert not [name for _, name in objects() if "federation" in name]


def test_an_api_is_taken_over_from_a_service_that_goes_on_to_be_asked() -> None:
    body = objects(KEDA, OLD)["APIService", "v1beta1.external.metrics.k8s.io"]

    def before(namespace, name):
        return {"kind": "APIService", "spec": {"service": {"namespace": namespace, "name": name}}}

    assert federates(body, before("keda", "keda-operator-metrics-apiserver"))
    assert federates(body, before("other", "adapter"))
    assert not federates(body, before("other", "keda-operator-metrics-apiserver"))
    assert not federates(body, {"kind": "APIService", "spec": {}})
    alone = objects()["APIService", "v1beta1.external.metrics.k8s.io"]
    assert not federates(alone, {"kind": "APIService", "spec": {}})


@pytest.mark.parametrize(
    ("members", "external", "reason"),
    [
        ([KEDA], False, "expected external: true"),
        ([{"name": "keda"}], True, "found keda without a CA"),
        ([{"name": "keda", "caBundle": "text"}], True, "expected PEM"),
        ([{"name": "other", "insecure": True}], True, "found 'other' without an address"),
        ([{**KEDA, "target": "keda/a"}], True, "expected NAMESPACE/SERVICE:PORT"),
        ([KEDA, KEDA], True, "found keda twice"),
        (
            [{**OLD, "name": "a"}, {**OLD, "name": "b"}],
            True,
            "found * of custom.metrics.k8s.io for a and b",
        ),
    ],
)
def test_what_the_server_would_refuse_is_refused(members, external: bool, reason: str) -> None:
    with pytest.raises(ValidationError) as raised:
        objects(*members, external=external)
    assert reason in str(raised.value)


def test_keda_may_scale_beside_our_external_metrics_when_it_is_behind_them() -> None:
    scale = {"workload": {"name": "web"}, "target": 50, "maxReplicas": 4, "autoscaler": "keda"}

    def given(*members):
        return values(scale=[scale], metricsApi={"external": True, "federate": list(members)})

    assert rendered(given(KEDA))
    with pytest.raises(ValidationError, match=r"or keda in metricsApi\.federate"):
        rendered(given())
