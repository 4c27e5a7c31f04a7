"""Whatever a path asks for and whatever a server answers, it ends in a value or in a declared error."""

import json

from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.server.metricsapi.wire.paths import (
    BadPathError,
    CustomTarget,
    ExternalTarget,
    NoRouteError,
    custom_target,
    external_target,
    split_path,
)
from gpuscale.server.sources.http.metrics_client import HttpMetricsClient
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource

WORDS = st.sampled_from(["namespaces", "metrics", "pods", "*", "%2A", "%ff", "", "a.b", "m", "é"])
NUMBERS = st.integers() | st.floats() | st.sampled_from(["1", "NaN", "+Inf", "x", "1k", "5Mi"])
SCALARS = NUMBERS | st.none() | st.booleans() | st.text(max_size=5)
KEYS = st.sampled_from(
    [
        "status",
        "data",
        "resultType",
        "result",
        "metric",
        "value",
        "values",
        "items",
        "describedObject",
        "name",
        "timestamp",
        "windowSeconds",
        "metricLabels",
        "message",
    ]
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
RESULT = st.fixed_dictionaries(
    {
        "resultType": st.sampled_from(["vector", "scalar", "matrix", "string", "other"]),
        "result": ANY
        | st.lists(
            st.fixed_dictionaries(
                {"metric": ANY, "value": st.lists(SCALARS, max_size=2)},
                optional={"values": st.lists(st.lists(SCALARS, max_size=2), max_size=2)},
            ),
            max_size=2,
        ),
    }
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"describedObject": ANY, "timestamp": SCALARS, "value": SCALARS},
        optional={"windowSeconds": SCALARS, "metricLabels": ANY},
    ),
    max_size=2,
)


@given(st.lists(WORDS | st.text(max_size=4), max_size=7).map("/".join))
@settings(deadline=None)
def test_any_path_is_a_target_or_has_no_route(path) -> None:
    for read in (custom_target, external_target):
        try:
            target = read(split_path(path))
        except (NoRouteError, BadPathError):
            continue
        assert isinstance(target, (CustomTarget, ExternalTarget))
        assert target.metric


async def answered(text: str, ask) -> None:
    """Ask a server that answers everything with `text`."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        await ask(str(server.make_url("")))


async def ask_prometheus(url: str) -> None:
    async with PrometheusSource(PrometheusSettings(url)) as source:
        for call in (source.series("m", 0), source.query("m", 0)):
            try:
                await call
            except GpuscaleError as error:
                assert str(error)  # noqa: PT017 - any answer may be right or wrong


async def ask_metrics(url: str) -> None:
    async with HttpMetricsClient(url) as client:
        calls = (
            client.pod_values("n", "a=b", "m"),
            client.object_value("n", CrossVersionObjectReference("Service", "s", "v1"), "m"),
            client.external_values("n", "m"),
        )
        for call in calls:
            try:
                await call
            except GpuscaleError as error:
                assert str(error)  # noqa: PT017 - any answer may be right or wrong


@given(st.fixed_dictionaries({"status": st.just("success"), "data": ANY | RESULT}))
@at_most(60)
async def test_any_answer_of_a_prometheus_is_a_value_or_an_error(answer) -> None:
    await answered(json.dumps(answer), ask_prometheus)


@given(ANY | st.fixed_dictionaries({"items": ANY | ITEMS}))
@at_most(60)
async def test_any_answer_of_a_metrics_api_is_a_reading_or_an_error(answer) -> None:
    await answered(json.dumps(answer), ask_metrics)


async def test_a_deeply_nested_answer_is_an_error() -> None:
    await answered("[" * 100_000, ask_prometheus)
    await answered("[" * 100_000, ask_metrics)
