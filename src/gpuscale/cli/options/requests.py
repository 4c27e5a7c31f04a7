"""The options for the request of a load, and for its objectives."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.options.durations import seconds_of

if TYPE_CHECKING:
    from gpuscale.load import Lengths, LoadRequest, Slo, TokenBodies
    from gpuscale.load.plans import PlannedRequest

Method = Annotated[str, typer.Option("--method", "-X", help="GET, POST, ...")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="A header.")
]
Data = Annotated[
    str | None, typer.Option("--data", "-d", help="The body, or @FILE. The method is POST.")
]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="For each answer.")]
CaFile = Annotated[str | None, typer.Option("--cacert", metavar="FILE", help="CA of the server.")]
Insecure = Annotated[bool, typer.Option("--insecure", "-k", help="Take any certificate.")]


def request_of(
    url: str | None,
    method: str,
    headers: list[str],
    data: str | None,
    timeout: str,
    ca_file: str | None,
    plan: "tuple[PlannedRequest, ...]" = (),
    lengths: "tuple[Lengths, ...]" = (),
    model: str | None = None,
    *,
    is_insecure: bool,
) -> "LoadRequest":
    """Return the request; the command line overrides a plan.

    The requests of a plan are sent in turn, unless the command line has a URL, method or body of its own.

    With token lengths each request has a body of its own: of a template in `data`, or for a model of an
    OpenAI-compatible server.

    Raises:
        UsageError: an option can't be used, or there is no URL.
    """
    from gpuscale.load import LoadRequest

    planned = plan[0] if plan else None
    are_planned = url is None and data is None and method == "GET" and model is None
    if url is None and planned is None:
        raise UsageError("found no URL, expected one such as http://host/predict?query=Music")
    pairs = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header: found {header!r}, expected NAME: VALUE")
        pairs.append((name.strip(), value.strip()))
    own = tuple(pairs)
    pairs[:0] = [*planned.headers] if planned is not None else []
    if method.upper() == "HEAD" or not method.isalpha():
        raise UsageError(f"--method: found {method!r}, expected one such as GET or POST")
    body = b"" if planned is None else planned.body
    if planned is not None and method == "GET":
        method = planned.method
    if data is not None:
        body = _body(data)
        method = "POST" if method == "GET" else method
    target, pairs = _without_credentials(url or (planned.url if planned is not None else ""), pairs)
    bodies = _bodies(target, body, lengths, model)
    if bodies is not None:
        method = "POST" if method == "GET" else method
        if not any(name.lower() == "content-type" for name, _ in pairs):
            pairs.append(("Content-Type", "application/json"))
    request = LoadRequest(
        url=target,
        method=method.upper(),
        headers=tuple(pairs),
        body=body,
        bodies=bodies,
        timeout_s=seconds_of("--timeout", timeout),
        ca_file=ca_file,
        is_insecure=is_insecure,
    )
    if not are_planned or bodies is not None:
        return request
    others = []
    for each in plan[1:]:
        target, pairs = _without_credentials(each.url, [*each.headers, *own])
        others.append(
            replace(request, url=target, method=each.method, headers=tuple(pairs), body=each.body)
        )
    return replace(request, others=tuple(others))


def _without_credentials(
    url: str, headers: list[tuple[str, str]]
) -> tuple[str, list[tuple[str, str]]]:
    """Return a URL without user and password, which become a header."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, headers  # the sender reports its fault
    given, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, headers
    if not any(name.lower() == "authorization" for name, _ in headers):
        basic = b64encode(unquote(given).encode()).decode()
        headers = [*headers, ("Authorization", f"Basic {basic}")]
    return parts._replace(netloc=place).geturl(), headers


def _bodies(
    url: str, body: bytes, lengths: "tuple[Lengths, ...]", model: str | None
) -> "TokenBodies | None":
    """Return bodies with token lengths; None where the requests are all the same."""
    from gpuscale.load import TokenBodies, has_places, openai_template

    template = body.decode(errors="replace")
    if model is None and not has_places(template):
        return None
    if model is not None and template:
        raise UsageError("found --model and --data, expected one of them: both say what is asked")
    if not lengths:
        raise UsageError("found no tokens, expected --tokens such as 512:128, or a trace with them")
    if model is None:
        return TokenBodies(template, lengths)
    try:
        return TokenBodies(openai_template(urlsplit(url).path, model), lengths)
    except ValueError as error:
        raise UsageError(f"--model: {error}") from None


def _body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"--data: {data[1:]}: {error.strerror or error}") from None


def slo_of(texts: list[str]) -> "Slo":
    """Return what `--promise` says, once or several times, as far as a client can see it.

    Raises:
        UsageError: a text is none, or of what only a server knows.
    """
    from gpuscale.base.promises import promise_terms
    from gpuscale.load import Slo

    terms = promise_terms("--promise", texts, ("latency", "errors")) if texts else ()
    percentiles = tuple(
        (round(100 * (1 - each.allowed), 6), 1000 * each.limit_s)
        for each in terms
        if each.measure == "latency"
    )
    errors = [100 * each.allowed for each in terms if each.measure == "errors"]
    return Slo(percentiles, errors[0] if errors else None)
