"""The API groups and versions that are served."""

CUSTOM_GROUP = "custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta1", "v1beta2")
"""The first is preferred, as upstream has it. Upstream's group document leaves v1beta2 out, though it
serves it; here both are listed."""
EXTERNAL_GROUP = "external.metrics.k8s.io"
EXTERNAL_VERSIONS = ("v1beta1",)
RESOURCE_GROUP = "metrics.k8s.io"
RESOURCE_VERSIONS = ("v1beta1",)
_VERSIONS = {
    CUSTOM_GROUP: CUSTOM_VERSIONS,
    EXTERNAL_GROUP: EXTERNAL_VERSIONS,
    RESOURCE_GROUP: RESOURCE_VERSIONS,
}
GROUPS = tuple(_VERSIONS)
"""All that can be served."""


def versions_of(group: str) -> tuple[str, ...]:
    """Return the versions of a group, the preferred one first; none of a group that is not served."""
    return _VERSIONS.get(group, ())
