"""What an installer may need: rights within rendered roles, roles that are bound, and subjects."""

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.kube.rights import Right
from gpuscale.ops.install.cluster.rights import installer_role, needed_rights, parse_subject
from gpuscale.ops.install.rendering import outline
from gpuscale.ops.install.values import Values

RBAC = "rbac.authorization.k8s.io"
ROLE = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "Role",
    "metadata": {"name": "r", "namespace": "ml"},
    "rules": [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["update"]},
    ],
}
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "b"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
}


def test_a_role_can_only_be_made_by_who_has_its_rights() -> None:
    rights = set(needed_rights([ROLE]))
    assert Right("ml", "apps", "deployments", "list") in rights
    assert Right("ml", "", "secrets", "update", "s") in rights
    own = {right.verb for right in rights if right.resource == "roles" and right.name == "r"}
    assert own == {"create", "delete", "get", "patch"}


def test_a_role_of_others_is_bound_by_its_name() -> None:
    rights = set(needed_rights([BINDING], replaces=True))
    assert Right("", RBAC, "clusterroles", "bind", "system:auth-delegator") in rights
    assert Right("", RBAC, "clusterrolebindings", "update", "b") in rights


def test_secrets_are_listed_only_beside_service_accounts() -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "a", "namespace": "gpuscale"},
    }
    listed = {
        right.namespace
        for right in needed_rights([account, ROLE])
        if right.resource == "secrets" and right.verb == "list"
    }
    assert listed == {"gpuscale"}


def test_the_role_has_every_right_and_no_other() -> None:
    """Rules multiply: groups x resources x names x verbs have to be the rights that went in."""
    rights = needed_rights([ROLE, BINDING])
    found = set()
    for body in installer_role("i", "gpuscale", rights, parse_subject("User:alice")):
        place = body["metadata"].get("namespace", "")
        for rule in body.get("rules", ()):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        found.add(Right(place, rule["apiGroups"][0], resource, verb, name))
    assert found == set(rights)


@pytest.mark.parametrize(
    "text", ["alice", "User:", "Robot:x", "ServiceAccount:deployer", "ServiceAccount:/x", ""]
)
def test_a_subject_says_what_it_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected User:NAME, Group:NAME or ServiceAccount:"):
        parse_subject(text)
    account = parse_subject("ServiceAccount:ci/deployer")
    assert account == {"kind": "ServiceAccount", "namespace": "ci", "name": "deployer"}


def test_the_secret_of_a_server_elsewhere_takes_rights_before_its_certificate_is_made() -> None:
    api = {"externalName": "api.example.com"}
    values = Values.model_validate({"spec": {"metricsApi": api}})
    found = [
        right.verb
        for right in needed_rights(outline(values))
        if right.resource == "secrets" and right.name == "gpuscale-metrics-api-tls"
    ]
    assert found == ["create", "delete", "get", "patch"]
