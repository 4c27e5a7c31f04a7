"""The explanation as an answer: behind the metric's own path, so that who may read it may ask why.

`?why` on the path of a metric asks; `why=json`, `why=text` or `why=html` says in which form. A path of its
own would not get through the API server's aggregation, and would need permissions of its own.
"""

import json
from typing import TYPE_CHECKING

from aiohttp import web

from gpuscale.base.objects.selectors import Selector
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.requests import selector_of

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.provider import MetricsProvider
    from gpuscale.server.metricsapi.why.hops import Explanation

PARAMETER = "why"


def asks_why(request: web.Request) -> bool:
    """Return whether a request is about the way of a value, and not about the value."""
    return PARAMETER in request.query


async def why_response(
    request: web.Request,
    provider: "MetricsProvider",
    target: CustomTarget | ExternalTarget,
    series: Selector,
) -> web.Response:
    """Return the explanation in the form that is asked for.

    Args:
        request: for a metric.
        provider: answers it.
        target: the metric.
        series: conditions on the labels of its series.

    Raises:
        RequestError: the selector of the objects is wrong.
    """
    # Imported late, as few servers are ever asked this.
    from gpuscale.server.metricsapi.why.custom import why_custom
    from gpuscale.server.metricsapi.why.external import why_external

    if isinstance(target, CustomTarget):
        objects = selector_of(request, "labelSelector")
        explanation = await why_custom(provider, target, objects, series)
    else:
        explanation = await why_external(provider, target, series)
    return why_answer(request, explanation, discovered=provider.relisted_ms is not None)


def why_answer(
    request: web.Request, explanation: "Explanation", *, discovered: bool = True
) -> web.Response:
    """Return an explanation in the requested form."""
    from gpuscale.server.metricsapi.why.text import page, text_lines

    document = {**explanation.document(), "discovered": discovered}
    form = _form(request)
    if form == "json":
        text = json.dumps(document, ensure_ascii=False) + "\n"
        return _answer(text, "application/json")
    if form == "html":
        return _answer(page(document), "text/html")
    return _answer("\n".join(text_lines(document)) + "\n", "text/plain")


def _form(request: web.Request) -> str:
    asked = request.query[PARAMETER]
    if asked in {"json", "text", "html"}:
        return asked
    return "html" if "text/html" in request.headers.get("Accept", "") else "text"


def _answer(text: str, content_type: str) -> web.Response:
    return web.Response(
        body=text.encode("utf-8", "backslashreplace"),
        headers={
            "Content-Type": f"{content_type}; charset=utf-8",
            "Content-Security-Policy": "default-src 'none'",
            "X-Content-Type-Options": "nosniff",
        },
    )
