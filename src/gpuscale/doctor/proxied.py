"""What goes by way of the API server, which passes requests on to pods and Services."""

from yarl import URL

PODS, SERVICES = "pods/proxy", "services/proxy"
"""The rights that it takes."""


def pod_path(namespace: str, name: str, port: int, path: str) -> str:
    """Return where the API server passes a request on to a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{path}"


def service_path(address: URL, namespace: str, name: str, port: int, path: str) -> str:
    """Return where the API server passes a request on to what is behind a Service.

    Args:
        address: of what is behind it: whether it has TLS, and the path that its own paths begin with.
        namespace: of the Service.
        name: likewise.
        port: likewise.
        path: below the address.
    """
    tls = "https:" if address.scheme == "https" else ""
    below = address.raw_path.rstrip("/")
    return f"/api/v1/namespaces/{namespace}/services/{tls}{name}:{port}/proxy{below}{path}"


def missing_right(error: Exception, right: str) -> str:
    """Return a right if that is what an error is about, else an empty text.

    What is behind the API server may refuse too, and then it is not about a right of the cluster.
    """
    return right if f'"{right}"' in str(error) else ""
