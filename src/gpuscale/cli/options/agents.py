"""The option that names node agents which are asked directly."""

from collections.abc import Sequence
from typing import Annotated

import typer

from gpuscale.base.errors import UsageError

AgentUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", metavar="NODE=URL", help="A node's agent, past the API server; may come again."
    ),
]


def agent_urls(given: Sequence[str]) -> dict[str, str]:
    """Return the agents' addresses, by node.

    Raises:
        UsageError: one is malformed.
    """
    found = {}
    for each in given:
        node, equals, url = each.partition("=")
        if not node or not equals or not url.startswith(("http://", "https://")):
            raise UsageError(
                f"--agent: found {each!r}, expected a node and its agent's address, "
                "such as gpu-1=http://127.0.0.1:9400"
            )
        found[node] = url
    return found
