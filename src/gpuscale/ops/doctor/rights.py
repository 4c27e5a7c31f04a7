"""RBAC of service accounts: the HPA controller's, and those of metrics servers.

Source: kubernetes v1.36 plugin/pkg/auth/authorizer/rbac/bootstrappolicy (system:auth-delegator,
    extension-apiserver-authentication-reader).
"""

from collections.abc import Mapping

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.hpa import MetricSpec, ObjectMetric
from gpuscale.hpa.terms import scale_path
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.metrics_api import HPA_ACCOUNT, group_of
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.doctor.snapshot import AccountRight, Snapshot
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, RESOURCE_GROUP

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DELEGATOR = "system:auth-delegator"
READER = "extension-apiserver-authentication-reader"
_SERVERS_NEED: tuple[tuple[Mapping[str, str], str], ...] = (
    (
        {"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"},
        DELEGATOR,
    ),
    (
        {"verb": "create", "group": "authorization.k8s.io", "resource": "subjectaccessreviews"},
        DELEGATOR,
    ),
    (
        {
            "verb": "get",
            "resource": "configmaps",
            "namespace": "kube-system",
            "name": "extension-apiserver-authentication",
        },
        READER,
    ),
)


class ControllerRights:
    """What the HPA controller may read; HPAs with the same metric share one access review.

    Args:
        client: to the API server.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[tuple[tuple[str, str], ...], tuple[bool | None, str]] = {}

    async def may_read(self, spec: MetricSpec, namespace: str) -> tuple[bool | None, str]:
        """Return whether the HPA controller may read a metric, with the API server's reason.

        None where the client may not ask that.
        """
        wanted = {"namespace": namespace, **metric_attributes(spec)}
        general = await self._ask(
            {"group": wanted["group"], "version": "*", "verb": wanted["verb"], "resource": "*"}
        )
        return general if general[0] else await self._ask(wanted)

    async def _ask(self, attributes: Mapping[str, str]) -> tuple[bool | None, str]:
        key = tuple(attributes.items())
        if key not in self._known:
            self._known[key] = await may(self._client, HPA_ACCOUNT, attributes)
        return self._known[key]


async def controller_may_read(
    client: KubeClient, spec: MetricSpec, namespace: str
) -> tuple[bool | None, str]:
    """Return whether the HPA controller may read a metric, with the API server's reason.

    None where the client may not ask that.
    """
    return await may(client, HPA_ACCOUNT, {"namespace": namespace, **metric_attributes(spec)})


async def may(
    client: KubeClient, who: tuple[str, str], attributes: Mapping[str, str]
) -> tuple[bool | None, str]:
    """Return whether a service account has a permission, with the API server's reason."""
    namespace, name = who
    groups = ["serviceaccounts", f"serviceaccounts:{namespace}", "authenticated"]
    question = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{name}",
            "groups": [f"system:{group}" for group in groups],
            "resourceAttributes": dict(attributes),
        },
    }
    try:
        status = (await client.ask(_REVIEWS, question)).get("status") or {}
    except GpuscaleError:
        return None, ""
    return status.get("allowed") is True, str(status.get("reason") or "")


async def server_rights(client: KubeClient, seen: Snapshot) -> tuple[AccountRight, ...]:
    """Return the permissions of metrics servers' accounts; those that can't be reviewed are left out."""
    servers = {
        (
            facts.namespace(body),
            body.child("spec")
            .child("template")
            .child("spec")
            .text("serviceAccountName", "default"),
        )
        for body, _, _ in facts.metrics_servers(seen)
    }
    # A server outside the cluster uses gpuscale's account too, which has its Service's name.
    servers |= {(facts.namespace(each), facts.name(each)) for each in facts.own_services(seen)}
    asked = [
        (account, attributes, role)
        for account in sorted(servers)
        for attributes, role in _SERVERS_NEED
    ]
    found = await at_once(_right(client, *each) for each in asked)
    return tuple(each for each in found if each is not None)


async def _right(
    client: KubeClient, account: tuple[str, str], attributes: Mapping[str, str], role: str
) -> AccountRight | None:
    allowed, _ = await may(client, account, attributes)
    if allowed is None:
        return None
    group = attributes.get("group", "")
    what = f"{attributes['verb']} {attributes['resource']}{'.' if group else ''}{group}"
    return AccountRight("/".join(account), what, role, allowed)


def metric_attributes(spec: MetricSpec) -> dict[str, str]:
    """Return the attributes of an access review for reading a metric."""
    group = group_of(spec)
    if group is None:
        return {"group": RESOURCE_GROUP, "version": "v1beta1", "verb": "list", "resource": "pods"}
    if group != CUSTOM_GROUP:
        return {"group": group, "version": "v1beta1", "verb": "list", "resource": spec.name}
    resource, name = "pods", "*"
    if isinstance(spec, ObjectMetric):
        kind = scale_path(spec.described_object, "-").split("/")[-3]
        resource, name = kind, spec.described_object.name
    attributes = {"resource": resource, "subresource": spec.name, "name": name}
    return {"group": group, "version": "v1beta2", "verb": "get", **attributes}
