# mypy: disable-error-code="arg-type"
"""`gpuscale metrics-api why` against a real Prometheus, each hop broken once, and by way of an API server."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiohttp import web

from gpuscale.base.errors import NotFoundError, UnavailableError, UpstreamError
from gpuscale.server.metricsapi.offline_why.asking import ask_own, ask_server
from gpuscale.server.metricsapi.offline_why.target import why_path
from gpuscale.testing.prometheus import serve

pytestmark = pytest.mark.prometheus
RULES = """
rules:
- seriesQuery: '{__name__=~"DCGM_.*",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: requests_total
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  resources: {template: <<.Resource>>}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[30s])) by (<<.GroupBy>>)
- seriesQuery: ungrouped
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>})
- seriesQuery: ratio
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>} * 0 / 0) by (<<.GroupBy>>)
- seriesQuery: broken
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) +
externalRules:
- {seriesQuery: depth, resources: {namespaced: false}, metricsQuery: 'sum(depth{<<.LabelMatchers>>})'}
"""
HERE = {"namespace": "ml", "pod": "web-0"}
SECONDS_AGO = 20


def samples():
    now_ms = int(time.time() * 1000) - SECONDS_AGO * 1000
    exporter = {"namespace": "gpu-operator", "pod": "exporter-1"}
    exported = {**exporter, "exported_namespace": "ml", "exported_pod": "web-0"}
    return [
        ({"__name__": name, **labels}, now_ms, value)
        for name, labels, value in (
            ("DCGM_FI_DEV_FB_USED", HERE, 50.0),
            ("DCGM_FI_DEV_GPU_UTIL", exported, 60.0),
            ("DCGM_FI_DEV_ENC_UTIL", HERE, 4294967295.0),
            ("DCGM_FI_DEV_SM_CLOCK", {"namespace": "ml"}, 1.0),
            ("requests_total", HERE, 5.0),
            ("ungrouped", HERE, 5.0),
            ("ratio", HERE, 5.0),
            ("broken", HERE, 5.0),
            ("depth", {"q": "a"}, 42.0),
        )
    ]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    with serve(samples(), tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture
def flags(prometheus, tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(RULES)
    return {"config": [str(tmp_path / "rules.yaml")], "prometheus-url": [prometheus.url]}


def failed_hop(document):
    (hop,) = [hop for hop in document["hops"] if hop["state"] == "failed"]
    assert hop["hop"] == document["failedHop"]
    return hop


@pytest.mark.parametrize(
    ("whose", "metric", "hop", "said"),
    [
        (
            "pods/ml/web-0",
            "DCGM_FI_DEV_FB_USD",
            "rule",
            "No rule gives a custom metric of this name",
        ),
        ("pods/ml/web-0", "requests_total", "rule", "A series of this name is there, and no rule"),
        ("pods/ml/web-0", "DCGM_FI_DEV_SM_CLOCK", "series", "the series query takes none of them"),
        ("services/ml/web", "DCGM_FI_DEV_FB_USED", "labels", "No label of the series names"),
        ("pods/ml/*", "DCGM_FI_DEV_FB_USED", "objects", "It is not known which objects there are"),
        ("pods/ml/web-0", "DCGM_FI_DEV_GPU_UTIL", "query", 'None of 1 series has namespace="ml"'),
        (
            "pods/ml/web-0",
            "DCGM_FI_DEV_ENC_UTIL",
            "query",
            "a series of web-0 is left out: DCGM_FI_DEV_ENC_UTIL can't be 4294967295: it is 0 to 100 %",
        ),
        ("pods/ml/web-0", "requests_per_second", "query", "and the query makes no row of them"),
        ("pods/ml/web-0", "broken", "query", "bad_data"),
        ("pods/ml/web-0", "ungrouped", "rows", "None of 1 row has the label pod"),
        ("pods/ml/web-0", "ratio", "value", "None of the rows is a value to scale by"),
        ("external/ml", "ungrouped", "rule", "No rule gives an external metric of this name"),
    ],
)
async def test_each_hop_that_gives_nothing(
    flags, whose: str, metric: str, hop: str, said: str
) -> None:
    found = failed_hop(await ask_own(flags, why_path(whose, metric)))
    assert found["hop"] == hop
    assert said in found["said"]
    assert found["fix"]


async def test_the_label_that_holds_the_name_is_reported(flags) -> None:
    hop = failed_hop(await ask_own(flags, why_path("pods/ml/web-0", "DCGM_FI_DEV_GPU_UTIL")))
    assert hop["fix"] == (
        "Map exported_namespace and exported_pod in resources.overrides, or scrape the exporter with "
        "honorLabels: true, which keeps the labels it gives."
    )


async def test_a_value_and_the_age_of_its_samples(flags) -> None:
    document = await ask_own(flags, why_path("pods/ml/web-0", "DCGM_FI_DEV_FB_USED"))
    assert document["failedHop"] is None
    (value,) = document["values"]
    assert (value["of"], value["value"]) == ("web-0", "50")
    # Prometheus says of a row when it was evaluated; the samples were taken before.
    assert value["ageMs"] >= SECONDS_AGO * 1000
    assert document["query"] == 'avg(DCGM_FI_DEV_FB_USED{namespace="ml",pod="web-0"}) by (pod)'


async def test_an_external_value(flags) -> None:
    document = await ask_own(flags, why_path("external/ml", "depth"))
    assert (document["failedHop"], document["values"][0]["value"]) == (None, "42")


async def test_a_prometheus_that_is_not_there(flags) -> None:
    flags["prometheus-url"] = ["http://127.0.0.1:1"]
    hop = failed_hop(await ask_own(flags, why_path("pods/ml/web-0", "DCGM_FI_DEV_FB_USED")))
    assert hop["hop"] == "series"
    assert "http://127.0.0.1:1 does not answer" in hop["said"]


# The command


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", "metrics-api", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=cwd,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )


def test_the_command(flags, tmp_path: Path) -> None:
    given = ("--config=rules.yaml", f"--prometheus-url={flags['prometheus-url'][0]}")
    result = run("why", "pods/ml/web-0", "DCGM_FI_DEV_GPU_UTIL", *given, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    assert (
        result.stdout
        == """\
DCGM_FI_DEV_GPU_UTIL of pods ml/web-0: no value. The first hop that gives nothing is: query

  ok  rule     rules.yaml:3 (rule 1) gives it of DCGM_FI_DEV_GPU_UTIL
  ok  series   1 series had a sample within 10 min
  ok  labels   the rule finds pods by pod and namespaces by namespace
  ??  objects  whether there is such an object is not known here
  NO  query    0 rows. None of 1 series has namespace="ml".
               1 of 1 have another value there
               1 of 1 have it in exported_namespace
               -> Map exported_namespace and exported_pod in resources.overrides, or scrape the exporter \
with honorLabels: true, which keeps the labels it gives.
  -   rows
  -   value

Query
  avg(DCGM_FI_DEV_GPU_UTIL{namespace="ml",pod="web-0"}) by (pod)
"""
    )
    result = run("why", "pods/ml/web-0", "DCGM_FI_DEV_FB_USED", "-o", "json", *given, cwd=tmp_path)
    assert (result.returncode, json.loads(result.stdout)["failedHop"]) == (0, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("why", "pods", "m"), "found 'pods', expected pods/NAMESPACE/NAME, nodes/NAME, "
         "namespaces/NAME or external/NAMESPACE"),
        (("why", "pods/a/b", "m", "--server", "x"),
         "--server: found 'x', expected an http:// or https:// address"),
        (("why", "pods/a/b", "m", "--server", "http://x", "--config", "y"),
         "found --server and --config, expected one of them: whom to ask"),
        (("--config", "x", "why", "pods/a/b", "m"),
         "found --config before why, expected it after"),
        (("why", "pods/a/b", "m", "--kubeconfig", "none"),
         "none: no usable kubeconfig: No such file or directory"),
    ],
)  # fmt: skip
def test_wrong_input(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"gpuscale: {message}\n"


# Servers that can't say why


async def answering(status, body):
    async def answer(_request):
        return web.Response(status=status, text=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (200, '{"kind": "MetricValueList"}', UpstreamError,
         "found an answer of kind 'MetricValueList', expected a MetricExplanation: what serves the "
         "metrics there is not gpuscale, or an older one"),
        (404, '{"kind": "Status", "message": "no such metric"}', NotFoundError,
         "the server answered 404: no such metric"),
        (403, '{"kind": "Status", "message": "you may not"}', UpstreamError,
         "the server answered 403: you may not"),
        (502, "<html>", UpstreamError, "the server answered 502 with no JSON object"),
    ],
)  # fmt: skip
async def test_servers_that_cant_say_why(status: int, body: str, error, message: str) -> None:
    runner, url = await answering(status, body)
    try:
        with pytest.raises(error) as caught:
            await ask_server(url, why_path("pods/a/b", "m"))
    finally:
        await runner.cleanup()
    assert str(caught.value) == message


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(UnavailableError) as caught:
        await ask_server("http://user:secret@127.0.0.1:1", why_path("pods/a/b", "m"))
    assert str(caught.value).startswith("http://127.0.0.1:1 does not answer: ")


# Permissions: who may read the metric may ask why


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SERVER = _load(Path(__file__).with_name("test_metrics_api_server.py"))
world = SERVER.world
server = SERVER.server


async def test_why_takes_the_permission_of_the_metric(world, server) -> None:
    one = f"{SERVER.CUSTOM}/namespaces/ml/pods/web-0/gpu_util"
    status, body = await server.as_hpa(one)
    assert status == 200
    status, body = await server.as_hpa(f"{one}?why=json")
    assert (status, body["kind"], body["failedHop"]) == (200, "MetricExplanation", None)
    first, *again = world.cluster.access_reviews
    assert first["resourceAttributes"]["subresource"] == "gpu_util"
    assert again == []  # The second request has the first one's permission, which is remembered.


async def test_who_may_not_read_the_metric_may_not_ask_why(world, server) -> None:
    world.cluster.allowed = lambda _spec: False
    status, body = await server.as_hpa(f"{SERVER.PODS}?why=json")
    assert (status, body["reason"]) == (403, "Forbidden")


async def test_objects_of_the_cluster_are_matched_and_missed(world, server) -> None:
    await world.cluster.put("/api/v1/pods", "web-9", "ml", {"app": "web"})

    async def is_missed():
        _, body = await server.as_hpa(f"{SERVER.PODS}?why=json&labelSelector=app%3Dweb")
        return (body["matched"], body["missed"]) == (["web-0", "web-1"], ["web-9"])

    await SERVER.until(is_missed)
    _, body = await server.as_hpa(f"{SERVER.CUSTOM}/namespaces/ml/pods/web-9/gpu_util?why=json")
    assert body["failedHop"] == "query"
    _, body = await server.as_hpa(f"{SERVER.CUSTOM}/namespaces/ml/pods/no/gpu_util?why=json")
    assert body["failedHop"] == "objects"
