"""The release of Kubernetes that files are for, where no cluster says it."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError

if TYPE_CHECKING:
    from gpuscale.hpa.terms import KubernetesVersion

_FLAG = "--kubernetes-version"

KubernetesVersionText = Annotated[
    str | None,
    typer.Option(
        _FLAG,
        metavar="VERSION",
        help="Release of the cluster, such as 1.37, which says what feature gates are on.",
        show_default="any",
    ),
]


def read_kubernetes_version(text: str | None) -> "KubernetesVersion | None":
    """Return the release that was named; None where none was.

    Raises:
        UsageError: it is no version.
    """
    from gpuscale.hpa.terms import parse_version

    if text is None:
        return None
    try:
        return parse_version(text)
    except ValueError as error:
        raise UsageError(f"{_FLAG}: {error}") from None
