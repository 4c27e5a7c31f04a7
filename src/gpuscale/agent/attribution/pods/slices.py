"""Where an API server has its ResourceSlices."""

from gpuscale.kube.client import ApiStatusError, Reads

_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")


async def slices_path(connection: Reads) -> str:
    """Return the path of all ResourceSlices, in the newest version that is understood.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused; code 404 where there are none.
    """
    versions = (await connection.get(_GROUP)).get("versions")
    served = versions if isinstance(versions, list) else []
    names = {each.get("version") for each in served if isinstance(each, dict)}
    for version in _VERSIONS:
        if version in names:
            return f"{_GROUP}/{version}/resourceslices"
    raise ApiStatusError(404, "the API server has no ResourceSlices that are understood")
