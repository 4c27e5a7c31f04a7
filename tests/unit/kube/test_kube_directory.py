# mypy: disable-error-code="assignment"
"""Names of objects from copies: begun when asked for, kept up, and never made up."""

import asyncio
from contextlib import asynccontextmanager
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.clock import WallClock
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.informers.directory import Collection, ObjectCopies, ObjectsUnavailableError

PODS = Collection("", "v1", "pods")
SETTINGS = KubeSettings(retry_s=0.01, max_retry_s=0.02)
ALL = parse_selector("")


def item(name, namespace="ml", **labels):
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


class Connection:
    """Lists what it is told to, and hands on the events that are put into it."""

    def __init__(self, *items) -> None:
        self.items = list(items)
        self.fault = None
        self.paths = []
        self.params = []
        self.events = asyncio.Queue()

    async def get(self, path, params=None, accept="application/json"):
        self.paths.append(path)
        self.params.append(params)
        if self.fault is not None:
            raise self.fault
        return {"metadata": {"resourceVersion": "1"}, "items": self.items}

    @asynccontextmanager
    async def watch(self, path, params):
        yield self._received()

    async def _received(self):
        while True:
            yield await self.events.get()

    async def send(self, kind, body) -> None:
        self.events.put_nowait({"type": kind, "object": body})
        await until(self.events.empty)


async def until(is_so) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)


@asynccontextmanager
async def running(connection, wait_s=1.0, settings=SETTINGS, **more):
    copies = ObjectCopies(connection, settings, WallClock(), wait_s, **more)
    task = asyncio.create_task(copies.run())
    await asyncio.sleep(0)
    try:
        yield copies
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_collection_is_listed_over_all_namespaces() -> None:
    assert PODS.path == "/api/v1/pods"
    assert Collection("apps", "v1", "deployments").path == "/apis/apps/v1/deployments"


async def test_names_are_selected_and_sorted() -> None:
    pods = [
        item("b", app="web"),
        item("a", app="web"),
        item("c", app="db"),
        item("x", "other", app="web"),
    ]
    async with running(Connection(*pods)) as copies:
        await copies.ready(PODS)
        assert copies.names(PODS, "ml", ALL) == ("a", "b", "c")
        assert copies.names(PODS, "ml", parse_selector("app=web")) == ("a", "b")
        assert copies.names(PODS, "none", ALL) == ()


async def test_records_come_with_labels_from_one_namespace_or_from_all() -> None:
    connection = Connection(item("b", app="web"), item("a"), item("x", "other", app="web"))
    async with running(connection) as copies:
        await copies.ready(PODS)
        found = copies.records(PODS, None, ALL)
        assert [(each.namespace, each.name) for each in found] == [
            ("ml", "a"),
            ("ml", "b"),
            ("other", "x"),
        ]
        web = parse_selector("app=web")
        assert [each.name for each in copies.records(PODS, None, web)] == ["b", "x"]
        (only,) = copies.records(PODS, "ml", web)
        assert only.labels == {"app": "web"}


async def test_a_collection_may_leave_objects_out_and_is_a_copy_of_its_own() -> None:
    connection = Connection(item("a"))
    some = Collection("", "v1", "pods", "status.phase=Running")
    async with running(connection) as copies:
        await copies.ready(PODS)
        await copies.ready(some)
        asked = [params.get("fieldSelector") for params in connection.params]
        assert asked == [None, "status.phase=Running"]
        assert [str(each.collection) for each in copies.states()] == [
            "pods",
            "pods(status.phase=Running)",
        ]


async def test_objects_without_a_namespace_are_found_without_one() -> None:
    nodes = Collection("", "v1", "nodes")
    async with running(Connection({"metadata": {"name": "n1"}})) as copies:
        await copies.ready(nodes)
        assert copies.names(nodes, None, ALL) == ("n1",)


@pytest.mark.parametrize(
    "fault", [ApiUnreachableError("it is away"), ApiStatusError(403, "forbidden")]
)
async def test_a_copy_that_is_not_kept_up_counts_for_a_while_then_not_until_it_is(fault) -> None:
    connection = Connection(item("a"))
    # The wait between two tries is far longer than the test: it is the question that makes it try.
    settings = KubeSettings(retry_s=0.01, max_retry_s=600.0)
    async with running(connection, settings=settings, max_age_s=0.5) as copies:
        await copies.ready(PODS)
        connection.fault = fault
        await connection.send("ERROR", {"code": 410, "message": "too old"})
        assert copies.names(PODS, "ml", ALL) == ("a",)
        assert not copies.states()[0].is_withheld
        await until(lambda: copies.states()[0].is_withheld)
        with pytest.raises(ObjectsUnavailableError, match=f"pods have not been kept up .*{fault}"):
            await copies.ready(PODS)
        with pytest.raises(ObjectsUnavailableError):
            copies.names(PODS, "ml", ALL)
        await asyncio.sleep(0.05)
        connection.fault = None
        connection.items = [item("b")]
        await copies.ready(PODS)
        assert copies.names(PODS, "ml", ALL) == ("b",)
        assert copies.states()[0].state.error is None


async def test_what_is_heard_of_a_copy_keeps_it_young_though_nothing_changes() -> None:
    connection = Connection(item("a"))
    async with running(connection, max_age_s=0.5) as copies:
        await copies.ready(PODS)
        before = copies.states()[0].state
        await connection.send("BOOKMARK", {"metadata": {"resourceVersion": "2"}})
        await until(lambda: copies.states()[0].state.proven_s > before.proven_s)
        assert copies.names(PODS, "ml", ALL) == ("a",)
        await until(lambda: copies.states()[0].is_withheld)


async def test_what_comes_goes_and_changes_is_followed() -> None:
    connection = Connection(item("a", app="web"))
    web = parse_selector("app=web")
    async with running(connection) as copies:
        await copies.ready(PODS)
        await connection.send("ADDED", item("b", app="web"))
        assert copies.names(PODS, "ml", web) == ("a", "b")
        await connection.send("MODIFIED", item("a", app="db"))
        assert copies.names(PODS, "ml", web) == ("b",)
        await connection.send("DELETED", item("b"))
        assert copies.names(PODS, "ml", web) == ()
        assert copies.names(PODS, "ml", ALL) == ("a",)
        (state,) = copies.states()
        assert (str(state.collection), state.objects) == ("pods", 1)


async def test_a_new_list_of_as_many_others_is_noticed() -> None:
    connection = Connection(item("a"))
    async with running(connection) as copies:
        await copies.ready(PODS)
        assert copies.names(PODS, "ml", ALL) == ("a",)
        connection.items = [item("b")]
        await connection.send("ERROR", {"code": 410, "message": "too old"})
        await until(lambda: len(connection.paths) == 2)
        assert copies.names(PODS, "ml", ALL) == ("b",)


async def test_one_copy_serves_all_who_ask() -> None:
    connection = Connection(item("a"))
    async with running(connection) as copies:
        await asyncio.gather(*(copies.ready(PODS) for _ in range(50)))
    assert connection.paths == ["/api/v1/pods"]


@pytest.mark.parametrize(
    "fault", [ApiUnreachableError("connection refused"), ApiStatusError(403, "pods is forbidden")]
)
async def test_objects_that_cant_be_listed_are_an_error_and_come_later(fault) -> None:
    connection = Connection(item("a"))
    connection.fault = fault
    async with running(connection) as copies:
        with pytest.raises(ObjectsUnavailableError, match=f"pods are not known: {fault}"):
            await copies.ready(PODS)
        with pytest.raises(ObjectsUnavailableError):
            copies.names(PODS, "ml", ALL)
        connection.fault = None
        await until(lambda: copies.states()[0].state.listed)
        assert copies.names(PODS, "ml", ALL) == ("a",)


async def test_a_list_that_does_not_come_is_waited_for_and_then_an_error() -> None:
    class Silent(Connection):
        async def get(self, path, params=None, accept="") -> None:
            await asyncio.Event().wait()

    async with running(Silent(), wait_s=0.01) as copies:
        expected = "pods are not known: the API server has not listed them yet"
        with pytest.raises(ObjectsUnavailableError, match=expected):
            await copies.ready(PODS)


async def test_a_copy_is_kept_while_the_api_server_is_away() -> None:
    connection = Connection(item("a"))
    async with running(connection) as copies:
        await copies.ready(PODS)
        connection.fault = ApiUnreachableError("connection refused")
        await connection.send("ERROR", {"code": 410, "message": "too old"})
        await until(lambda: copies.states()[0].state.error is not None)
        assert copies.names(PODS, "ml", ALL) == ("a",)


async def test_nothing_is_known_of_what_nobody_asked_for() -> None:
    async with running(Connection()) as copies:
        with pytest.raises(ObjectsUnavailableError, match="pods are not watched yet"):
            copies.names(PODS, "ml", ALL)
    with pytest.raises(ObjectsUnavailableError, match="the server is not running"):
        await copies.ready(PODS)


@pytest.mark.parametrize(
    "body",
    [{}, {"metadata": []}, {"metadata": {"name": 7}}, {"metadata": {"name": "a", "labels": [1]}}],
)
async def test_odd_objects_do_no_harm(body) -> None:
    async with running(Connection(body, item("b"))) as copies:
        await copies.ready(PODS)
        assert "b" in copies.names(PODS, "ml", ALL)


EVENTS = st.tuples(
    st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
    st.sampled_from("ab"),
    st.sampled_from(["ml", "prod"]),
    st.sampled_from(["web", "api"]),
)


@given(st.lists(EVENTS, max_size=12))
def test_every_answer_is_that_of_the_objects_there_are(events) -> None:
    async def run() -> None:
        connection, objects = Connection(item("a", app="web")), {("ml", "a"): "web"}
        async with running(connection) as copies:
            await copies.ready(PODS)
            for kind, name, namespace, app in events:
                await connection.send(kind, item(name, namespace, app=app))
                objects.pop((namespace, name), None)
                if kind != "DELETED":
                    objects[namespace, name] = app
                for place, wanted in product(("ml", "prod"), ("web", "api")):
                    found = copies.names(PODS, place, parse_selector(f"app={wanted}"))
                    expected = sorted(
                        n for (ns, n), a in objects.items() if (ns, a) == (place, wanted)
                    )
                    assert list(found) == expected

    asyncio.run(run())
