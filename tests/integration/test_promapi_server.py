# mypy: disable-error-code="arg-type"
"""Rules, alerts, targets and status: held against the answers of a real Prometheus, and asked by promtool."""

import asyncio
import json
import socket
import subprocess
import time
import urllib.request

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.promapi.server_view import ServerView, TargetView
from gpuscale.series.promapi.shapes import TimeAxis
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.ruler.ruler import Ruler

NOW_MS = 1_700_000_000_000
RULES = """\
groups:
- name: g
  limit: 9
  rules:
  - {record: "job:up:sum", expr: "sum by(job)(up)", labels: {a: b}}
  - {record: plain, expr: "1"}
  - {record: bad, expr: "up * on() group_left up"}
  - alert: Down
    expr: up == 0
    keep_firing_for: 1m
    labels: {severity: page}
    annotations: {summary: "{{ $labels.job }} is down"}
  - {alert: Never, expr: up == 5, for: 1h}
  - {alert: Pending, expr: up == 1, for: 1h}
"""
PATHS = [
    "rules",
    "rules?type=alert",
    "rules?type=record",
    "rules?type=wrong",
    "alerts",
    "alertmanagers",
    "targets",
    "targets?state=active",
    "targets?state=dropped",
    "query_exemplars?query=up&start=0&end=1",
    "query_exemplars?query=up&start=2&end=1",
    "format_query?query=sum(up)by(job)",
    "format_query?query=sum(",
    "status/buildinfo",
    "status/config",
    "status/flags",
    "status/runtimeinfo",
    "status/tsdb",
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    """Answers of a Prometheus that scrapes itself and a port where nothing is, by path."""
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "rules.yml").write_text(RULES)
    jobs = {"self": [f"127.0.0.1:{port}"], "dead": ["127.0.0.1:1"]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": targets}]}
            for name, targets in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}") as answer:
                return 200, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def is_settled():
        try:
            rules = ask("rules")[1]["data"]["groups"][0]["rules"]
        except (OSError, IndexError):
            return False
        return {"firing", "pending"} <= {rule.get("state") for rule in rules}

    try:
        deadline = time.monotonic() + 60
        while not is_settled():
            assert time.monotonic() < deadline, "Prometheus did not scrape and evaluate"
            time.sleep(0.5)
        yield {path: ask(path) for path in PATHS}
    finally:
        process.terminate()
        process.wait()


def store_with_up():
    store = SeriesStore()
    for job, value in (("self", 1.0), ("dead", 0.0)):
        for at_ms in (NOW_MS - 2000, NOW_MS):
            store.append({"__name__": "up", "job": job, "instance": f"{job}:1"}, at_ms, value)
    return store


def targets():
    for job, health, error in (("self", "up", ""), ("dead", "down", "connection refused")):
        labels = {"job": job, "instance": f"{job}:1"}
        yield TargetView(f"http://{job}:1/metrics", labels, health, error, NOW_MS, 0.01, 15.0, 10.0)


@pytest.fixture
async def served():
    store = store_with_up()
    clock = ManualClock(NOW_MS)
    ruler = Ruler(load_rule_groups(RULES, "rules.yml"), store, QueryPool(), clock)
    view = ServerView(
        ruler,
        targets,
        {"query.lookback-delta": "5m"},
        lambda: {"global": {"scrape_interval": "15s"}},
        alertmanagers=("http://a:9093/api/v2/alerts",),
    )
    app = web.Application()
    add_routes(app, store, clock, view=view)
    async with TestServer(app) as server:
        await ruler.evaluate(NOW_MS)
        yield str(server.make_url("/")).rstrip("/")


async def ask(url, path):
    async with ClientSession() as session, session.get(f"{url}/api/v1/{path}") as answer:
        return answer.status, await answer.json()


def shape(value):
    """Return the types of a document: of a list those of all its items together."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, bool) or value is None:
        return str(value is not None)
    return "number" if isinstance(value, (int, float)) else "text"


def merged(shapes):
    found = {}
    for each in shapes:
        found |= each
    return found


def check_shape(ours, theirs, path) -> None:
    """Every key of theirs is in ours and has the same type; Prometheus 3 has some more."""
    if isinstance(theirs, list):
        assert isinstance(ours, list), path
        if theirs and ours and isinstance(theirs[0], dict):
            check_shape(merged(ours), merged(theirs), f"{path}[]")
    elif isinstance(theirs, dict):
        assert isinstance(ours, dict), path
        if path.endswith(("labels", "annotations", "Labels", "/status/flags.data")):
            return
        assert theirs.keys() - ours.keys() - OPTIONAL == set(), path
        for key in theirs.keys() & ours.keys():
            check_shape(ours[key], theirs[key], f"{path}.{key}")
    else:
        assert ours == theirs, path


OPTIONAL = {"keepFiringSince"}


@pytest.mark.prometheus
@pytest.mark.parametrize("path", PATHS)
async def test_answers_have_prometheus_shape(served, prometheus, path) -> None:
    status, body = await ask(served, path)
    assert status == prometheus[path][0]
    check_shape(shape(body), shape(prometheus[path][1]), f"/{path}")
    if status != 200:
        assert body["errorType"] == prometheus[path][1]["errorType"]


@pytest.mark.prometheus
async def test_rules_are_those_of_prometheus(served, prometheus) -> None:
    """Names, order, queries as Prometheus writes them, states, and which rule failed."""

    def told(body):
        (group,) = body["data"]["groups"]
        kept = ("name", "query", "type", "state", "duration", "keepFiringFor", "labels")
        rules = [{key: rule.get(key) for key in kept} for rule in group["rules"]]
        return group["name"], group["limit"], rules

    ours, theirs = (await ask(served, "rules"))[1], prometheus["rules"][1]
    assert told(ours) == told(theirs)
    health = [rule["health"] for rule in ours["data"]["groups"][0]["rules"]]
    assert health == [rule["health"] for rule in theirs["data"]["groups"][0]["rules"]]
    assert health.count("err") == 1
    assert "found duplicate series" in ours["data"]["groups"][0]["rules"][2]["lastError"]


async def test_alerts_say_since_when_and_with_which_value(served) -> None:
    _, body = await ask(served, "alerts")
    assert body["data"]["alerts"] == [
        {
            "labels": {
                "alertname": "Down",
                "instance": "dead:1",
                "job": "dead",
                "severity": "page",
            },
            "annotations": {"summary": "dead is down"},
            "state": "firing",
            "activeAt": "2023-11-14T22:13:20.000Z",
            "value": "0e+00",
        },
        {
            "labels": {"alertname": "Pending", "instance": "self:1", "job": "self"},
            "annotations": {},
            "state": "pending",
            "activeAt": "2023-11-14T22:13:20.000Z",
            "value": "1e+00",
        },
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("rule_name[]=Down&rule_name[]=plain", ["plain", "Down"]),
        ("type=record&rule_name[]=Down", []),
        ("file[]=other.yml", []),
        ("file[]=rules.yml&rule_group[]=g&type=alert", ["Down", "Never", "Pending"]),
        ("match[]={severity=%22page%22}", ["Down"]),
        ("match[]={a=~%22b%7Cc%22}&match[]={severity!=%22%22}", ["job:up:sum", "Down"]),
    ],
)
async def test_rules_are_chosen_by_parameters(served, query: str, names) -> None:
    status, body = await ask(served, f"rules?{query}")
    assert status == 200
    assert [rule["name"] for group in body["data"]["groups"] for rule in group["rules"]] == names


async def test_alerts_can_be_left_out(served) -> None:
    _, body = await ask(served, "rules?type=alert&exclude_alerts=true")
    assert [rule["alerts"] for rule in body["data"]["groups"][0]["rules"]] == [None, None, None]
    status, body = await ask(served, "rules?exclude_alerts=perhaps")
    assert (status, body["errorType"]) == (400, "bad_data")


async def test_targets_are_chosen_by_pool_and_state(served) -> None:
    _, body = await ask(served, "targets?scrapePool=dead")
    (target,) = body["data"]["activeTargets"]
    assert (target["health"], target["lastError"]) == ("down", "connection refused")
    assert (target["scrapeUrl"], target["scrapeInterval"]) == ("http://dead:1/metrics", "15s")
    _, body = await ask(served, "targets?state=dropped")
    assert body["data"]["activeTargets"] == []


async def test_the_size_of_the_store_is_counted_by_label(served) -> None:
    _, body = await ask(served, "status/tsdb?limit=2")
    # Two series of up, three of job:up:sum and plain, and two for each of two alerts.
    assert body["data"]["headStats"]["numSeries"] == 2 + 3 + 4
    assert body["data"]["seriesCountByMetricName"] == [
        {"name": "ALERTS", "value": 2},
        {"name": "ALERTS_FOR_STATE", "value": 2},
    ]
    assert body["data"]["labelValueCountByLabelName"][0] == {"name": "__name__", "value": 5}


async def test_times_are_the_callers_where_the_store_runs_faster() -> None:
    store, clock = store_with_up(), ManualClock(NOW_MS)
    ruler = Ruler(load_rule_groups(RULES, "rules.yml"), store, QueryPool(), clock)
    app = web.Application()
    axis = TimeAxis(NOW_MS - 100_000, 10.0)
    add_routes(app, store, clock, axis, view=ServerView(ruler))
    async with TestServer(app) as server:
        await ruler.evaluate(NOW_MS)
        _, body = await ask(str(server.make_url("/")).rstrip("/"), "alerts")
    # 100 s of the store are 10 s of the caller.
    assert body["data"]["alerts"][0]["activeAt"] == "2023-11-14T22:11:50.000Z"


async def test_a_server_without_rules_says_so() -> None:
    app = web.Application()
    add_routes(app, SeriesStore(), ManualClock(NOW_MS))
    async with TestServer(app) as server:
        url = str(server.make_url("/")).rstrip("/")
        assert (await ask(url, "rules"))[1]["data"] == {"groups": []}
        assert (await ask(url, "alerts"))[1]["data"] == {"alerts": []}
        assert (await ask(url, "targets"))[1]["data"]["activeTargets"] == []
        status = await asyncio.gather(
            *(ask(url, f"status/{each}") for each in ("config", "flags", "runtimeinfo", "tsdb"))
        )
        assert [code for code, _ in status] == [200] * 4
