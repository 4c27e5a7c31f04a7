"""Error messages of the controller's client: the server's, or its own for a status code.

Source: k8s.io/apimachinery v0.36 pkg/api/errors/errors.go (NewGenericServerResponse), pkg/api/meta/errors.go
(NoKindMatchError); k8s.io/client-go v0.36 rest/request.go (newUnstructuredResponseError).
"""

from gpuscale.kube.client import ApiStatusError, ApiUnreachableError

_TIMEOUT = 504
_BY_CODE = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "unknown",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    _TIMEOUT: "the server was unable to return a response in the time allotted, "
    "but may still be processing the request",
}


def refusal_text(error: ApiStatusError | ApiUnreachableError, asked: str) -> str:
    """Return the error message of the controller's client for a refused request.

    Args:
        error: of our own request; one without an answer counts as one that took too long.
        asked: resource with its group, and name, such as `pods.custom.metrics.k8s.io *`.
    """
    if error.said:
        return error.said
    code = _TIMEOUT if error.code is None else error.code
    text = _BY_CODE.get(code)
    if text is None and code >= 500:
        text = 'an error on the server ("unknown") has prevented the request from succeeding'
    if text is None:
        text = (
            f"the server responded with the status code {code} but did not return more information"
        )
    return f"{text} (get {asked})"


def no_kind_text(kind: str, group: str) -> str:
    """Return the error message for a kind that a group doesn't have."""
    return f'no matches for kind "{kind}" in group "{group}"'
