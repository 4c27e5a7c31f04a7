"""Requests that are passed on, to members that behave and to members that don't."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from gpuscale.base.clock import ManualClock
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.federation.federation import Federation
from gpuscale.server.metricsapi.federation.member import MAX_AT_ONCE
from gpuscale.server.metricsapi.federation.settings import KEDA_LABEL, MemberSettings
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_767_323_045_000
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
RULES = load_rules(
    """
rules:
- seriesQuery: gpu_util
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- {seriesQuery: queue_depth, resources: {namespaced: false}, metricsQuery: 'queue_depth{<<.LabelMatchers>>}'}
- {seriesQuery: now_and_then, resources: {namespaced: false}, metricsQuery: 'now_and_then'}
- seriesQuery: '{__name__=~"open_.*"}'
  resources: {namespaced: false}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
""",
    "rules.yaml",
)


class Directory:
    def names(self, resource, namespace, selector):
        return ("web-0",)


def value(metric="other", amount="7"):
    item = {"metricName": metric, "metricLabels": None, "timestamp": "2026-01-02T03:04:05Z"}
    return {**item, "value": amount}


def listing(*items, kind="ExternalMetricValueList", group="external.metrics.k8s.io"):
    return {"kind": kind, "apiVersion": f"{group}/v1beta1", "metadata": {}, "items": list(items)}


class Member:
    """Another metrics API: what it is to answer, and what it was asked."""

    def __init__(self) -> None:
        self.asked = []
        self.connections = set()
        self.authorization = []
        self.answer = self.usual
        self.is_away = False

    async def usual(self, request):
        return web.json_response(listing(value(request.path.rsplit("/", 1)[-1])))

    async def handle(self, request):
        if request.path.count("/") == 3:
            if self.is_away:
                return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
            return web.json_response(
                {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": "/".join(request.path.split("/")[2:]),
                    "resources": [
                        {"name": "theirs", "namespaced": True, "kind": "X", "verbs": ["get"]},
                        {"name": "queue_depth", "namespaced": True, "kind": "X", "verbs": ["get"]},
                        "nonsense",
                    ],
                }
            )
        self.asked.append(request.path_qs)
        self.connections.add(request.transport.get_extra_info("peername"))
        self.authorization.append(request.headers.get("Authorization"))
        return await self.answer(request)


@asynccontextmanager
async def serving(member):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", member.handle)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


@asynccontextmanager
async def front(*settings, relisted=True):
    store = SeriesStore()
    store.append({"__name__": "queue_depth"}, NOW_MS, 42.0)
    store.append({"__name__": "gpu_util", "namespace": "prod", "pod": "web-0"}, NOW_MS, 42.0)
    provider = MetricsProvider(RULES, EmbeddedSource(store), Directory(), ManualClock(NOW_MS))
    if relisted:
        await provider.relist()
    federation = Federation(settings, provider)
    app = web.Application()
    add_routes(app, provider, lambda _: [*federation.checks()], federation=federation)
    async with TestClient(TestServer(app)) as client:
        yield client, federation
    await federation.close()


async def get(client, path, **options):
    async with client.get(path, **options) as response:
        return response.status, json.loads(await response.text())


async def test_ours_are_answered_here_and_the_rest_is_passed_on() -> None:
    member = Member()
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        status, ours = await get(client, f"{EXTERNAL}/namespaces/prod/queue_depth")
        assert (status, ours["items"][0]["value"]) == (200, "42")
        status, theirs = await get(
            client, f"{EXTERNAL}/namespaces/prod/other?labelSelector=a%3Db&pretty=1&watch=0"
        )
        assert (status, theirs["items"][0]["value"]) == (200, "7")
        for _ in range(5):
            assert (await get(client, f"{EXTERNAL}/namespaces/prod/another"))[0] == 200
        assert len(member.connections) == 1
        # Nothing of the query but selectors goes on.
        assert member.asked[0] == f"{EXTERNAL}/namespaces/prod/other?labelSelector=a%3Db"


async def test_a_metric_of_our_rules_stays_ours_while_its_series_are_away() -> None:
    member = Member()
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        status, body = await get(client, f"{EXTERNAL}/namespaces/prod/now_and_then")
        assert (status, body["reason"]) == (404, "NotFound")
        # A rule that leaves names open gives it up once discovery has found no such series.
        status, _ = await get(client, f"{EXTERNAL}/namespaces/prod/open_question")
        assert status == 200
        assert member.asked == [f"{EXTERNAL}/namespaces/prod/open_question"]


async def test_what_may_be_ours_waits_for_the_first_discovery() -> None:
    member = Member()
    async with (
        serving(member) as url,
        front(MemberSettings("old", url), relisted=False) as (client, _),
    ):
        status, body = await get(client, f"{EXTERNAL}/namespaces/prod/open_question")
        assert status == 503
        assert "discovery has not ended yet" in body["message"]
        assert (await get(client, f"{EXTERNAL}/namespaces/prod/other"))[0] == 200


async def test_the_longest_pattern_wins_and_a_selector_comes_first() -> None:
    short, long, keda = Member(), Member(), Member()
    async with (
        serving(short) as a,
        serving(long) as b,
        serving(keda) as c,
        front(
            MemberSettings("short", a, metrics=("http_*",)),
            MemberSettings("long", b, metrics=("http_requests*", "http_errors")),
            MemberSettings("keda", c, metrics=(), selectors=(KEDA_LABEL,)),
        ) as (client, _),
    ):
        path = f"{EXTERNAL}/namespaces/prod"
        for metric in ("http_a", "http_requests", "http_errors"):
            assert (await get(client, f"{path}/{metric}"))[0] == 200
        selector = "labelSelector=scaledobject.keda.sh%2Fname%3Dweb"
        assert (await get(client, f"{path}/s0-queue_depth?{selector}"))[0] == 200
        assert (await get(client, f"{path}/http_requests?{selector}"))[0] == 200
        assert short.asked == [f"{path}/http_a"]
        assert long.asked == [f"{path}/http_requests", f"{path}/http_errors"]
        assert [each.partition("?")[0] for each in keda.asked] == [
            f"{path}/s0-queue_depth",
            f"{path}/http_requests",
        ]
        status, body = await get(client, f"{path}/nobodys")
        assert (status, body["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("metric", ["%2e%2e", "..%2F..%2Fapi", "x" * 600])
async def test_no_path_of_a_client_leads_elsewhere(metric: str) -> None:
    member = Member()
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        path = URL(f"{EXTERNAL}/namespaces/prod/{metric}", encoded=True)
        async with client.get(path) as response:
            assert response.status == 404
        assert member.asked == []


async def test_lists_are_merged_and_say_what_is_missing() -> None:
    member = Member()
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, federation):
        old = federation.members["old"]
        assert await old.look()
        _, body = await get(client, EXTERNAL)
        assert [each["name"] for each in body["resources"]] == ["queue_depth", "theirs"]
        _, body = await get(client, CUSTOM)
        assert {"pods/gpu_util", "theirs"} <= {each["name"] for each in body["resources"]}
        accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
        _, body = await get(client, "/apis", headers=accept)
        names = {
            resource["resource"]
            for group in body["items"]
            for version in group["versions"]
            for resource in version["resources"]
        }
        assert "theirs" in names

        member.is_away = True
        assert not await old.look()
        _, body = await get(client, EXTERNAL)
        assert [each["name"] for each in body["resources"]] == ["queue_depth", "theirs"]
        async with client.get(EXTERNAL) as response:
            (warning,) = response.headers.getall("Warning")
            assert warning.startswith('299 gpuscale "old: ')
        async with client.get("/readyz?verbose") as response:
            assert response.status == 200
            assert "[+]member-old ok: " in await response.text()


def wrong(answer):
    async def handle(_):
        return answer()

    return handle


HOSTILE = {
    "a page": lambda: web.Response(text="<html>", content_type="text/html"),
    "protobuf": lambda: web.Response(
        body=b"k8s\0", content_type="application/vnd.kubernetes.protobuf"
    ),
    "a redirect": lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}),
    "another kind": lambda: web.json_response(listing(value(), kind="PodList")),
    "another group": lambda: web.json_response(listing(value(), group="apps")),
    "another metric": lambda: web.json_response(listing(value("queue_depth"))),
    "no quantity": lambda: web.json_response(listing(value(amount="many"))),
    "a number that is none": lambda: web.Response(
        text=json.dumps(listing(value(amount=float("nan")))), content_type="application/json"
    ),
    "beyond 64 bits": lambda: web.json_response(listing(value(amount="1e40"))),
    "labels of labels": lambda: web.json_response(listing({**value(), "metricLabels": {"a": {}}})),
    "no time": lambda: web.json_response(listing({**value(), "timestamp": "soon"})),
    "items that are none": lambda: web.json_response(listing("a", "b")),
    "deep JSON": lambda: web.Response(text="[" * 100_000, content_type="application/json"),
    "an error without a Status": lambda: web.json_response({"error": "x"}, status=500),
    "compressed": lambda: web.Response(
        body=b"\0", headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
    ),
    "one huge header": lambda: web.json_response(listing(value()), headers={"X-A": "a" * 100_000}),
    "many headers": lambda: web.json_response(
        listing(value()), headers={f"X-{number}": "a" for number in range(5000)}
    ),
    "too large": lambda: web.Response(
        body=b" " * (9 * 1024 * 1024), content_type="application/json"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_not_of_the_api_is_no_data(name: str) -> None:
    member = Member()
    member.answer = wrong(HOSTILE[name])
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        status, body = await get(client, f"{EXTERNAL}/namespaces/prod/other")
        assert (status, body["kind"], body["reason"]) == (503, "Status", "ServiceUnavailable")
        assert "the metrics API old gave no answer" in body["message"]


@pytest.mark.parametrize("chunk", [b" " * 65_536, b""], ids=["endless", "silent"])
async def test_an_answer_that_does_not_end_is_cut_off(chunk: bytes) -> None:
    async def endless(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(chunk or b" ")
            await asyncio.sleep(0 if chunk else 0.05)

    member = Member()
    member.answer = endless
    async with (
        serving(member) as url,
        front(MemberSettings("old", url, timeout_s=0.5)) as (client, federation),
    ):
        status, body = await get(client, f"{EXTERNAL}/namespaces/prod/other")
        assert status == 503
        assert ("more than 8388608 bytes" if chunk else "within 0.5 s") in body["message"]
        assert federation.members["old"].counts.in_flight == 0


async def test_a_member_that_is_down_is_left_alone_and_found_again() -> None:
    member = Member()
    member.answer = wrong(HOSTILE["a page"])
    path = f"{EXTERNAL}/namespaces/prod/other"
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, federation):
        for _ in range(20):
            assert (await get(client, path))[0] == 503
        assert len(member.asked) == 3
        _, body = await get(client, path)
        assert "was not asked: it does not answer since" in body["message"]
        # Ours go on, and the list, which still comes, closes the circuit.
        assert (await get(client, f"{EXTERNAL}/namespaces/prod/queue_depth"))[0] == 200
        member.answer = member.usual
        deadline = time.monotonic() + 20
        while (await get(client, path))[0] != 200:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        counts = federation.members["old"].counts.results
        assert counts["failed"] == 3
        assert counts["ok"] == 1


async def test_a_member_that_hangs_holds_only_so_many_and_never_ours() -> None:
    held, all_here = asyncio.Event(), asyncio.Semaphore(0)

    async def hang(request):
        all_here.release()
        await held.wait()
        return await Member().usual(request)

    member = Member()
    member.answer = hang
    path = f"{EXTERNAL}/namespaces/prod"
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, federation):
        asking = [asyncio.create_task(get(client, f"{path}/other")) for _ in range(MAX_AT_ONCE)]
        for _ in range(MAX_AT_ONCE):
            await all_here.acquire()
        status, body = await get(client, f"{path}/other")
        assert (status, "requests to it are on their way" in body["message"]) == (503, True)
        assert (await get(client, f"{path}/queue_depth"))[0] == 200
        held.set()
        assert {(await each)[0] for each in asking} == {200}
        assert federation.members["old"].counts.in_flight == 0


@pytest.mark.parametrize(
    ("code", "given"), [(404, 404), (400, 400), (500, 500), (401, 503), (403, 503)]
)
async def test_a_refusal_goes_on_with_the_members_name(code: int, given: int) -> None:
    async def refuse(_):
        status = {"kind": "Status", "apiVersion": "v1", "message": "so\x1b[31m", "code": code}
        return web.json_response({**status, "reason": "Why"}, status=code)

    member = Member()
    member.answer = refuse
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, federation):
        status, body = await get(client, f"{EXTERNAL}/namespaces/prod/other")
        assert (status, body["code"]) == (given, given)
        assert body["message"].startswith("old: so\\x1b[31m")
        assert ("refuses gpuscale's own account" in body["message"]) is (code in (401, 403))
        assert not federation.members["old"].circuit.is_open


async def test_custom_metrics_are_of_the_objects_that_were_asked_for() -> None:
    def item(name="web-0", namespace="prod", metric="http"):
        described = {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "/v1"}
        return {
            "describedObject": described,
            "metricName": metric,
            "timestamp": "2026-01-02T03:04:05Z",
            "value": "5",
            "secret": "no field of the API",
        }

    member = Member()
    path = f"{CUSTOM}/namespaces/prod/pods/web-0/http"
    answers = {200: item(), 503: item(name="other")}
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        for code, each in answers.items():
            body = listing(each, kind="MetricValueList", group="custom.metrics.k8s.io")
            member.answer = wrong(lambda body=body: web.json_response(body))
            status, found = await get(client, f"{path}?metricLabelSelector=a%3Db")
            assert status == code
            if code == 200:
                assert "secret" not in found["items"][0]
                assert found["items"][0]["describedObject"]["name"] == "web-0"
        status, _ = await get(client, f"{CUSTOM}/namespaces/prod/pods/web-0/gpu_util")
        assert status == 200


async def test_why_names_the_owner_and_what_it_answered() -> None:
    member = Member()
    async with serving(member) as url, front(MemberSettings("old", url)) as (client, _):
        path = f"{EXTERNAL}/namespaces/prod/other?why=json"
        _, found = await get(client, path)
        owner, answer, _ = found["hops"]
        assert owner["said"] == "the metrics API old: its name fits *"
        assert answer["said"].startswith("it answered in ")
        assert found["values"] == [{"of": "no labels", "value": "7", "ageMs": 0}]
        member.answer = wrong(HOSTILE["a page"])
        _, found = await get(client, path)
        assert found["failedHop"] == "member"
        async with client.get(path.replace("json", "text")) as response:
            assert "the metrics API old gave no answer" in await response.text()
