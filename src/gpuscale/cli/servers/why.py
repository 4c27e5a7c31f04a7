"""`gpuscale metrics-api why`: why a metric has the value it has, or none.

Its flags are some of the server's and a few of its own, so its signature is made of both tables.
"""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.base.errors import UpstreamError, UsageError
from gpuscale.base.flags import Flag
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.options.cluster import cluster_settings, looking
from gpuscale.cli.options.parameters import parameter
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.server.metricsapi import GROUPS

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.offline_why import Document

_ASKED = "What and whom to ask"
_SERVER_GROUPS = ("Metrics", "Prometheus", "Cluster")
_SERVER_FLAGS = [flag for group in _SERVER_GROUPS for flag in GROUPS[group] if not flag.no_effect]


def why(**given: Any) -> None:  # noqa: ANN401 - typer fills the signature that is made below
    """Follow a metric from the rules to its value, and name the first hop that gives nothing.

    A server is asked by way of the cluster's API server, found as kubectl finds it, or by its address
    (--server, after kubectl port-forward). With --config or --prometheus-url no server is asked: the rules
    are followed from here. Exit code 0: there is a value; 1: there is none; 2: the input is wrong, or nothing
    answers.

    Example:  gpuscale metrics-api why pods/ml/web-0 gpu_util

    Example:  gpuscale metrics-api why 'pods/ml/*' gpu_util --selector app=web --server http://127.0.0.1:8080

    Example:  gpuscale metrics-api why external/ml queue_depth --config rules.yaml --prometheus-url http://127.0.0.1:9090
    """
    from gpuscale.server.metricsapi.offline_why import why_path
    from gpuscale.server.metricsapi.why import text_lines

    set_up_log(logging.ERROR)
    path = why_path(given["whose"], given["metric"], given["selector"], given["metric_selector"])
    with looking(), working("asking the metrics API"):
        document = asyncio.run(_asked(given, path))
    if given["output"] is not Output.TEXT:
        print_document(document, given["output"])
    else:
        try:
            lines = list(text_lines(document))
        except (KeyError, TypeError, AttributeError):
            raise UpstreamError(
                "the explanation has another form than this version knows"
            ) from None
        for line in lines:
            print(printable(line))
    if document.get("failedHop") is not None:
        raise typer.Exit(1)


async def _asked(given: Mapping[str, Any], path: str) -> "Document":
    from gpuscale.server.metricsapi.offline_why import ask_cluster, ask_own, ask_server

    flags = _server_flags(given)
    ways = [name for name in ("server", "kubeconfig") if given[name]]
    if len(ways) + bool(flags) > 1:
        flags_given = [f"--{name}" for name in (*ways, *list(flags)[:1])]
        raise UsageError(f"found {' and '.join(flags_given)}, expected one of them: whom to ask")
    if flags:
        return await ask_own(flags, path)
    if given["server"]:
        return await ask_server(given["server"], path)
    kubeconfig = Path(given["kubeconfig"]) if given["kubeconfig"] else None
    return await ask_cluster(cluster_settings(kubeconfig, given["context"] or None), path)


def _server_flags(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts of the server's flags that were given."""
    found: dict[str, list[str]] = {}
    for flag in _SERVER_FLAGS:
        value = given.get(flag.name.replace("-", "_"))
        if value:
            found[flag.name] = [value] if isinstance(value, str) else list(value)
    return found


def _argument(name: str, metavar: str, help_: str) -> inspect.Parameter:
    kind = Annotated[str, typer.Argument(metavar=metavar, help=help_)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)


def _option(
    names: tuple[str, ...],
    metavar: str,
    help_: str,
    default: object = "",
    kind: object = str,
) -> inspect.Parameter:
    option = typer.Option(*names, metavar=metavar, help=help_, rich_help_panel=_ASKED)
    return inspect.Parameter(
        names[0].removeprefix("--").replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _flag(flag: Flag) -> inspect.Parameter:
    return parameter(flag, "Follow the rules from here")


why.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _argument(
            "whose",
            "OBJECT",
            "pods/NAMESPACE/NAME (or any other kind; * for all), nodes/NAME, namespaces/NAME, "
            "external/NAMESPACE.",
        ),
        _argument("metric", "METRIC", "Its name in the metrics API."),
        _option(("--selector", "-l"), "SELECTOR", "Labels of the objects, for *."),
        _option(("--metric-selector",), "SELECTOR", "Labels of the series, as in the HPA."),
        _option(("--server",), "URL", "A gpuscale metrics-api, past the API server."),
        _option(("--kubeconfig",), "FILE", "Of the cluster to ask."),
        _option(("--context",), "NAME", "Of the kubeconfig."),
        _option(("--output", "-o"), "text|json|yaml", "What is printed.", Output.TEXT, Output),
        *(_flag(flag) for flag in _SERVER_FLAGS),
    ]
)
