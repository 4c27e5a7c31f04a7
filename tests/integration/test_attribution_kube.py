# mypy: disable-error-code="arg-type"
"""The node watcher against an API server over real HTTP."""

import asyncio
import contextlib
import importlib.util
import math
import sys
import time
from pathlib import Path

import pytest

from gpuscale.agent.attribution.pods.node_pods import NodeWatcher
from gpuscale.agent.attribution.settings import NodeSettings
from gpuscale.base.clock import WallClock
from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.objects.meta import OwnerReference
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "kube" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake = _load("fake_api_server")
POD, NODE, SLICES = fake.POD, fake.NODE, fake.SLICES
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "bert-5d4f", "uid": "u-rs"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly-28", "uid": "u-job"}


@pytest.fixture
async def server():
    server = fake.FakeApiServer()
    await server.start()
    yield server
    await server.stop()


def settings(server, folder, **more):
    quick = {"timeout_s": 2.0, "retry_s": 0.02, "max_retry_s": 0.1, **more}
    return KubeSettings(server.kubeconfig(folder), **quick)


@contextlib.asynccontextmanager
async def watching(settings, pod_labels=()):
    watcher = NodeWatcher(NodeSettings("n1", settings, pod_labels), WallClock())
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.wait({task})
        await watcher.close()


async def until(condition, seconds=30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it waits for whatever a view shows
            await asyncio.sleep(0.005)


def names(watcher):
    return sorted(each.name for each in watcher.view.pods)


def watches(server, path):
    return [query for asked, query, _ in server.requests if asked == path and query.get("watch")]


def lists(server, path):
    return [query for asked, query, _ in server.requests if asked == path and "watch" not in query]


async def test_pods_of_this_node_are_listed_then_followed(server, tmp_path: Path) -> None:
    await server.put(POD, fake.pod("bert-0"))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: names(watcher) == ["bert-0"])
        await server.put(POD, fake.pod("tune-0"))
        await until(lambda: names(watcher) == ["bert-0", "tune-0"])
        await server.put(POD, fake.pod("tune-0", phase="Succeeded"))
        await until(lambda: any(each.is_ended for each in watcher.view.pods))
        await server.delete(POD, fake.pod("bert-0"))
        await until(lambda: names(watcher) == ["tune-0"])
    (listed,) = lists(server, POD)
    assert listed == {"fieldSelector": "spec.nodeName=n1", "limit": "500"}
    (watched,) = watches(server, POD)
    assert watched == {
        "fieldSelector": "spec.nodeName=n1",
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "101",
        "timeoutSeconds": "300",
    }


async def test_long_lists_come_in_pages(server, tmp_path: Path) -> None:
    for number in range(5):
        await server.put(POD, fake.pod(f"p-{number}"))
    async with watching(settings(server, tmp_path, page_size=2)) as watcher:
        await until(lambda: len(watcher.view.pods) == 5)
    assert [query.get("continue") for query in lists(server, POD)] == [None, "2", "4"]


async def test_watch_goes_on_from_the_last_bookmark(server, tmp_path: Path) -> None:
    async with watching(settings(server, tmp_path, watch_s=1)) as watcher:
        await until(lambda: watcher.view.has_pods)
        await until(lambda: watches(server, POD))
        await server.send(POD, fake.bookmark(150))
        await until(lambda: len(watches(server, POD)) > 1)
        assert watches(server, POD)[1]["resourceVersion"] == "150"
        assert len(lists(server, POD)) == 1


async def test_version_that_is_too_old_is_listed_anew(server, tmp_path: Path) -> None:
    await server.put(POD, fake.pod("bert-0"))
    async with watching(settings(server, tmp_path, watch_s=1)) as watcher:
        await until(lambda: names(watcher) == ["bert-0"])
        server.objects[POD].clear()
        server.forget_history()
        await until(lambda: names(watcher) == [])
        assert watcher.view.error is None
    assert len(lists(server, POD)) == 2


async def test_last_pods_stay_while_the_server_is_away(server, tmp_path: Path) -> None:
    await server.put(POD, fake.pod("bert-0"))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: names(watcher) == ["bert-0"] and watches(server, POD))
        await server.stop()
        await until(lambda: watcher.view.error is not None)
        assert names(watcher) == ["bert-0"]
        assert isinstance(watcher.view.error, ApiUnreachableError)
        assert watcher.view.error_since_ms is not None
        await server.start()
        await until(lambda: watcher.view.error is None)
        await server.put(POD, fake.pod("tune-0"))
        await until(lambda: names(watcher) == ["bert-0", "tune-0"])


async def test_server_that_comes_late_is_found(server, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    await server.stop()
    async with watching(config) as watcher:
        await until(lambda: watcher.view.error is not None)
        assert not watcher.view.has_pods
        await server.start()
        await until(lambda: watcher.view.has_pods)


async def test_refusal_is_reported(server, tmp_path: Path) -> None:
    server.refusals[POD] = (403, 'pods is forbidden: User "x" cannot list resource "pods"')
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.error is not None)
        error = watcher.view.error
        assert isinstance(error, ApiStatusError)
        assert error.code == 403
        assert str(error) == (
            f"the API server at http://127.0.0.1:{server.port} answered /api/v1/pods with 403: "
            'pods is forbidden: User "x" cannot list resource "pods"'
        )


async def test_server_that_ends_every_watch_is_not_hammered(server, tmp_path: Path) -> None:
    server.watches_end_at_once = True
    config = settings(server, tmp_path, retry_s=0.1, max_retry_s=10)
    async with watching(config) as watcher:
        await until(lambda: watcher.view.has_pods)
        began = time.monotonic()
        await asyncio.sleep(0.5)
    # Waits of at least half of 0.1, 0.2, 0.4 s and so on: the n-th is over after 0.05 * (2**n - 1) s.
    waits = math.floor(math.log2((time.monotonic() - began) / 0.05 + 1))
    assert len(watches(server, POD)) <= 2 + waits


async def test_odd_objects_and_events_hide_nothing(server, tmp_path: Path) -> None:
    await server.put(POD, fake.pod("bert-0"))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: names(watcher) == ["bert-0"] and watches(server, POD))
        await server.send(POD, {"type": "ADDED", "object": "nonsense"})
        await server.send(POD, {"type": "WHAT", "object": {}})
        await server.put(POD, {"metadata": {"namespace": "ml", "name": "odd-0"}, "spec": 7})
        await server.put(POD, fake.pod("tune-0"))
        await until(lambda: "tune-0" in names(watcher))
        assert names(watcher) == ["bert-0", "odd-0", "tune-0"]
        assert watcher.view.error is None


async def test_text_that_is_no_json_is_reported(server, tmp_path: Path) -> None:
    server.others[POD] = ["no", "object"]
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.error is not None)
        assert str(watcher.view.error).endswith("answered /api/v1/pods with no JSON object")


async def test_body_beyond_the_bound_is_refused(server, tmp_path: Path) -> None:
    await server.put(POD, fake.pod("p" * 5000))
    async with watching(settings(server, tmp_path, max_body_bytes=4000)) as watcher:
        await until(lambda: watcher.view.error is not None)
        assert str(watcher.view.error).endswith("answered /api/v1/pods with more than 4000 bytes")


async def test_line_beyond_the_bound_is_refused(server, tmp_path: Path) -> None:
    async with watching(settings(server, tmp_path, max_line_bytes=4000)) as watcher:
        await until(lambda: watches(server, POD))
        await server.put(POD, fake.pod("p" * 300_000))
        await until(lambda: watcher.view.error is not None)
        assert "more than 4000 bytes" in str(watcher.view.error)


async def test_labels_are_kept_by_expression(server, tmp_path: Path) -> None:
    labels = {"app": "bert", "team": "nlp", "secret": "x"}
    await server.put(POD, fake.pod("bert-0", labels=labels))
    async with watching(settings(server, tmp_path), ("^app$", "team")) as watcher:
        await until(lambda: names(watcher) == ["bert-0"])
        assert watcher.view.pods[0].labels == {"app": "bert", "team": "nlp"}


def test_expression_that_is_not_re2_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a regular expression of RE2"):
        NodeWatcher(NodeSettings("n1", KubeSettings(tmp_path / "none"), ("(?=x)",)), WallClock())


async def test_owners_are_rolled_up(server, tmp_path: Path) -> None:
    above = {"apiVersion": "x", "controller": True, "uid": "u"}
    server.others["/apis/apps/v1/namespaces/ml/replicasets/bert-5d4f"] = {
        "metadata": {"ownerReferences": [{**above, "kind": "Deployment", "name": "bert"}]}
    }
    server.others["/apis/batch/v1/namespaces/ml/jobs/nightly-28"] = {
        "metadata": {"ownerReferences": [{**above, "kind": "CronJob", "name": "nightly"}]}
    }
    await server.put(POD, fake.pod("bert-0", controller=REPLICA_SET))
    await server.put(POD, fake.pod("bert-1", controller=REPLICA_SET))
    await server.put(POD, fake.pod("nightly-0", controller=JOB))
    await server.put(POD, fake.pod("db-0", controller={"kind": "StatefulSet", "name": "db"}))
    await server.put(POD, fake.pod("alone"))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.owners)
        assert watcher.view.owners == {
            "uid-bert-0": OwnerReference("Deployment", "bert"),
            "uid-bert-1": OwnerReference("Deployment", "bert"),
            "uid-nightly-0": OwnerReference("CronJob", "nightly"),
            "uid-db-0": OwnerReference("StatefulSet", "db"),
        }
    asked = [headers["Accept"] for path, _, headers in server.requests if "replicasets" in path]
    assert asked == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"]


async def test_owners_are_told_from_names_where_the_server_refuses(server, tmp_path: Path) -> None:
    refusal = (403, "forbidden")
    server.refusals["/apis/apps/v1/namespaces/ml/replicasets/bert-5d4f"] = refusal
    server.refusals["/apis/batch/v1/namespaces/ml/jobs/nightly-28"] = refusal
    hashed = {"pod-template-hash": "5d4f"}
    await server.put(POD, fake.pod("bert-0", controller=REPLICA_SET, labels=hashed))
    await server.put(POD, fake.pod("nightly-0", controller=JOB))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.owners)
        assert watcher.view.owners == {
            "uid-bert-0": OwnerReference("Deployment", "bert"),
            "uid-nightly-0": OwnerReference("Job", "nightly-28"),
        }


async def test_owner_that_can_not_be_asked_for_now_is_told_from_its_name(
    server, tmp_path: Path
) -> None:
    path = "/apis/apps/v1/namespaces/ml/replicasets/bert-5d4f"
    server.refusals[path] = (503, "later")
    hashed = {"pod-template-hash": "5d4f"}
    await server.put(POD, fake.pod("bert-0", controller=REPLICA_SET, labels=hashed))
    other = {**REPLICA_SET, "name": "web-5d4f", "uid": "u-web"}
    await server.put(POD, fake.pod("web-0", controller=other, labels=hashed))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: len(watcher.view.owners) == 2)
        assert watcher.view.owners["uid-web-0"] == OwnerReference("Deployment", "web")
        assert not [asked for asked, _, _ in server.requests if "web-5d4f" in asked]
        above = {"kind": "Rollout", "name": "bert", "uid": "u", "controller": True}
        server.others[path] = {"metadata": {"ownerReferences": [above]}}
        del server.refusals[path]
        await server.put(POD, fake.pod("tune-0"))
        await until(lambda: watcher.view.owners["uid-bert-0"].kind == "Rollout")


async def test_node_resources_are_followed(server, tmp_path: Path) -> None:
    await server.put(NODE, fake.node({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}))
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.node)
        await server.put(NODE, fake.node({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}))
        await until(lambda: watcher.view.node.allocatable == {"nvidia.com/gpu": 7})
    assert lists(server, NODE)[0]["fieldSelector"] == "metadata.name=n1"


async def test_resource_slices_are_followed_once_they_are_wanted(server, tmp_path: Path) -> None:
    server.others["/apis/resource.k8s.io"] = {
        "versions": [{"version": "v1beta1"}, {"version": "v1"}]
    }
    attributes = {"attributes": {"uuid": {"string": "GPU-a"}}}
    devices = [{"name": "gpu-0", **attributes}]
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "n1"}, "devices": devices}
    await server.put(SLICES, {"metadata": {"name": "n1-gpus"}, "spec": spec})
    async with watching(settings(server, tmp_path)) as watcher:
        await until(lambda: watcher.view.has_pods)
        assert not lists(server, SLICES)
        watcher.want_claims()
        await until(lambda: watcher.view.claim_devices)
        assert watcher.view.claim_devices == {("gpu.nvidia.com", "n1", "gpu-0"): "GPU-a"}


async def test_cluster_without_resource_slices_is_reported(server, tmp_path: Path) -> None:
    async with watching(settings(server, tmp_path)) as watcher:
        watcher.want_claims()
        await until(lambda: watcher.view.claims_error is not None)
        assert watcher.view.error is None


async def test_token_is_sent(server, tmp_path: Path) -> None:
    async with KubeClient(settings(server, tmp_path)) as connection:
        await connection.get(NODE, {"limit": "1"})
    assert server.requests[0][2]["Authorization"] == "Bearer secret"


async def test_hanging_server_is_given_up_on_in_time(tmp_path: Path) -> None:
    async def hang(reader, writer) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        done.set()

    done = asyncio.Event()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    api = fake.FakeApiServer()
    api.port = server.sockets[0].getsockname()[1]
    async with KubeClient(settings(api, tmp_path, timeout_s=0.1)) as connection:
        with pytest.raises(ApiUnreachableError) as caught:
            await connection.get(POD)
    await done.wait()
    server.close()
    assert str(caught.value) == (
        f"the API server at http://127.0.0.1:{api.port} gave no answer to /api/v1/pods in time"
    )


def test_missing_kubeconfig_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(UsageError) as caught:
        KubeClient(KubeSettings(path))
    assert str(caught.value) == (f"{path}: no usable kubeconfig: No such file or directory")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "it holds no mapping", id="empty"),
        pytest.param("[]", "it holds no mapping", id="list"),
        pytest.param("{}", "field 'clusters' is missing", id="no-clusters"),
        pytest.param("clusters: 3", "'int' object is not iterable", id="odd-clusters"),
        pytest.param(
            "clusters: []\ncontexts: []",
            "found no current context, and there is none in it; name one with --context",
            id="no-context",
        ),
    ],
)
def test_kubeconfig_of_another_shape_is_reported(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        KubeClient(KubeSettings(path))
    assert str(caught.value) == f"{path}: no usable kubeconfig: {reason}"


def test_kubeconfig_that_is_no_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: [\n")
    with pytest.raises(ConfigError, match=f"{path}:2: "):
        KubeClient(KubeSettings(path))


def test_no_service_account_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        KubeClient(KubeSettings())
    assert str(caught.value).endswith("run in a pod that has one, or name a kubeconfig")


async def test_kubeconfig_without_a_user_is_used_without_credentials(
    server, tmp_path: Path
) -> None:
    server.token = "x"
    path = server.kubeconfig(tmp_path)
    path.write_text(path.read_text().replace(', "user": "u"', ""))
    async with KubeClient(KubeSettings(path)) as connection:
        with pytest.raises(ApiStatusError) as caught:
            await connection.get(POD)
    assert caught.value.code == 401
