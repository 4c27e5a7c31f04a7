# mypy: disable-error-code="arg-type, attr-defined, call-overload, has-type, index, misc"
"""A dashboard's charts from before it began, as a Prometheus API has them."""

from functools import partial

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.ops.dashboard import Dashboard, recorded_points
from gpuscale.ops.doctor import PrometheusReader
from gpuscale.ops.top.picture import GpuRow, Picture, WorkloadRow
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.storage.store import SeriesStore

NOW_MS = 1_700_000_040_000
BEFORE_MS = NOW_MS - 120_000
HPA = {"namespace": "prod", "horizontalpodautoscaler": "chat"}
OTHER = {"metric_name": "other", "metric_target_type": "average"}
QUEUE = {"metric_name": "queue", "metric_target_type": "average"}
TOTAL = {"metric_name": "queue", "metric_target_type": "value"}
SAMPLES = [
    ("kube_horizontalpodautoscaler_status_desired_replicas", HPA, 3),
    ("kube_horizontalpodautoscaler_status_current_replicas", HPA, 2),
    ("kube_horizontalpodautoscaler_status_target_metric", {**HPA, **QUEUE}, 31.5),
    ("kube_horizontalpodautoscaler_status_target_metric", {**HPA, **TOTAL}, 63),
    ("kube_horizontalpodautoscaler_status_target_metric", {**HPA, **OTHER}, 900),
    ("kube_horizontalpodautoscaler_spec_target_metric", {**HPA, **QUEUE}, 20),
    ("kube_horizontalpodautoscaler_spec_target_metric", {**HPA, **OTHER}, 1000),
    ("kube_horizontalpodautoscaler_status_desired_replicas", {**HPA, "namespace": "hidden"}, 7),
    ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}, 40),
    ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "1"}, 50),
]
GPU = GpuRow("gpu-a", "0", "GPU-0", "NVIDIA L4", 96.0, 1.0, 2.0, 3.0, 4.0, (), ())
CHAT = WorkloadRow(
    *("prod", "chat", "Deployment/chat", "25/20", 1.25, 1, 9, 3, 4, 3, 0, "fine"),
    signal="queue",
    value=25.0,
    target_value=20.0,
)


class Reader:
    looks = 0

    async def look(self) -> Picture:
        self.looks += 1
        return Picture(NOW_MS + 5000 * self.looks, "cluster test", (GPU,), workloads=(CHAT,))


@pytest.fixture
async def prometheus():
    store = SeriesStore()
    for name, labels, value in SAMPLES:
        store.append({"__name__": name, **labels}, BEFORE_MS, value)
    app = web.Application()
    add_routes(app, store, ManualClock(NOW_MS))
    async with TestServer(app) as server:
        yield server


async def test_the_hours_before_are_of_the_metric_that_decides(prometheus) -> None:
    reader = PrometheusReader(None, str(prometheus.make_url("")).rstrip("/"))
    board = Dashboard(Reader(), ManualClock(NOW_MS), 5, past=partial(recorded_points, reader))
    await board.look()
    await board.look()
    series = board.document()["series"]
    assert board.state()["unseen"] == []
    assert series["t"] == sorted(set(series["t"]))
    assert series["t"][-2:] == [NOW_MS / 1000 + 5, NOW_MS / 1000 + 10]
    first = {name: values[0] for name, values in series.items() if name != "t"}
    assert {name: value for name, value in first.items() if value is not None} == {
        "hpa/prod/chat/desired": 3,
        "hpa/prod/chat/current": 2,
        "hpa/prod/chat/value": 31.5,  # the average, as the target is one; not the total
        "hpa/prod/chat/target": 20,
        "use/all GPUs": 45,
    }
    assert series["hpa/prod/chat/value"][-1] == 25


async def test_without_an_answer_it_is_said_and_charts_begin_now() -> None:
    reader = PrometheusReader(None, "http://127.0.0.1:1")
    board = Dashboard(Reader(), ManualClock(NOW_MS), 5, past=partial(recorded_points, reader))
    await board.look()
    (told,) = board.state()["unseen"]
    assert told.startswith("charts of the hours before: http://127.0.0.1:1 does not answer")
    assert len(board.document()["series"]["t"]) == 1
