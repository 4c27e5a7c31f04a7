"""A cluster without a Prometheus: pictures of it become rows, and `report` tells what happened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuscale.cli.keeping import MinuteKeeper
from gpuscale.hpa.cluster.catalogue import parse_instance_types
from gpuscale.ops.history.pictures import PictureTaker
from gpuscale.ops.history.reading import History
from gpuscale.ops.history.recalling import recall_charts, recall_past
from gpuscale.ops.history.writing import MIB, HistoryWriter
from gpuscale.ops.money.prices import PriceBook
from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, NodeRow, Picture, WorkloadRow

START_S = 1_767_225_600
MINUTE_S = 60
TYPES = parse_instance_types(
    "name,gpuModel,gpus,cpu,memory,pricePerHour,spotPricePerHour\nm9.xlarge,NVIDIA L4,2,4,16Gi,3,1\n",
    "own.csv",
    {},
)
GPU = GpuRow(
    "a", "0", "GPU-0", "NVIDIA L4", 80.0, 1000.0, 24000.0, 70.0, 40.0, ("prod/chat-1",), ()
)
NODE = NodeRow("a", "m9.xlarge", "gpu", "Ready", 2, 1, 40.0, 60.0, (), is_spot=True)
HPA = WorkloadRow("prod", "chat", "Deployment/chat", "5/5", 1.0, 1, 4, 2, 2, 2, 0, "fine", "queue")
SCALED = EventRow((START_S + 70) * 1000, "Normal", "SuccessfulRescale", "hpa/prod/chat", "to 4", 1)


def picture(second: int, **changes) -> Picture:
    quiet = Picture((START_S + second) * 1000, "cluster c", (GPU,), (NODE,), (HPA,), (), ())
    return replace(quiet, **changes)


def test_a_minute_of_pictures(tmp_path: Path) -> None:
    taker = PictureTaker(PriceBook(TYPES))
    idle = replace(GPU, use_percent=20.0, power_watts=None)
    taker.add(picture(5))
    taker.add(picture(20, gpus=(idle,)))
    with HistoryWriter(tmp_path / "kept", 64 * MIB) as writer:
        writer.write(taker.take(START_S * 1000))
    with History(str(tmp_path / "kept")) as history:
        asked = (
            "SELECT pod, use_min, use_mean, use_max, use_count, power_mean, power_count FROM gpus"
        )
        with history.ask(asked) as answer:
            # (80 + 20) / 2; of power one picture said nothing
            assert list(answer.rows) == [("chat-1", 20, 50, 80, 2, 70, 1)]
        with history.ask("SELECT node, pool, spot, hour_price FROM nodes") as answer:
            assert list(answer.rows) == [("a", "gpu", True, 1)]


def test_what_happened_is_told_without_a_prometheus(tmp_path: Path) -> None:
    """Each minute is one picture; the fault of each is over in the next."""
    lost = replace(GPU, use_percent=None, faults=("Xid 79",))
    minutes: list[dict[str, Any]] = [
        {},
        {"workloads": (replace(HPA, wanted=4, times_target=2.0, running=4),), "events": (SCALED,)},
        {"workloads": (replace(HPA, wanted=4, times_target=None, running=4),), "events": (SCALED,)},
        {"nodes": (replace(NODE, status="NotReady"),)},
        {"gpus": (lost,), "nodes": ()},
        {"jobs": (JobRow("lab", "train", 0, 0, 0, 2, 1, 60.0, "Failed"),)},
    ]
    taker = PictureTaker(PriceBook(TYPES))
    with HistoryWriter(tmp_path / "kept", 64 * MIB) as writer:
        for number, changes in enumerate(minutes):
            taker.add(picture(number * MINUTE_S + 30, **changes))
            writer.write(taker.take((START_S + number * MINUTE_S) * 1000))
        writer.write(taker.take((START_S + 6 * MINUTE_S) * 1000))  # a minute without a look
    with History(str(tmp_path / "kept")) as history:
        past = recall_past(history, START_S, START_S + 8 * MINUTE_S)
        with history.ask("SELECT count(*) FROM events") as answer:
            assert list(answer.rows) == [(1,)]  # an event that is still listed is kept once
    told = {(each.kind, each.about): each.what for each in past.incidents}
    assert told == {
        ("scaled", "hpa/prod/chat"): "scaled from 4 to 2 replicas",
        ("at-maximum", "hpa/prod/chat"): "wanted more than its maximum of 4 replicas",
        (
            "no-metric",
            "hpa/prod/chat",
        ): "could not scale: no metric had a value (ScalingActive was False)",
        ("node-not-ready", "node/a"): "was not Ready",
        ("nodes", "nodes"): "GPU nodes: 0 to 1",
        ("gpu-error", "gpu/a/0"): "had Xid 79",
        ("job-failed", "job/lab/train"): "2 pods failed",
    }
    ups = [each.what for each in past.incidents if each.kind == "scaled"]
    assert ups[0] == "scaled from 2 to 4 replicas: queue was at 200 % of its target"
    assert past.unseen == (
        "2026-01-01 00:06 to 2026-01-01 00:08: no minutes of it are kept",
        "exporter-away: there is no series up",
    )


def test_an_hpa_that_nobody_looked_at_has_not_scaled() -> None:
    taker = PictureTaker(PriceBook({}))
    taker.add(picture(30, workloads=(replace(HPA, wanted=0, times_target=None),)))
    asked = [row[1] for row in taker.take(START_S * 1000)["answers"]]
    assert not {"report/scaled", "report/no-metric"} & set(asked)


def test_charts_of_the_hours_before(tmp_path: Path) -> None:
    taker = PictureTaker(PriceBook({}))
    shared = replace(GPU, use_percent=20.0, index="1", owners=("prod/chat-1", "prod/chat-2"))
    with HistoryWriter(tmp_path / "kept", 64 * MIB) as writer:
        taker.add(picture(30, gpus=(GPU, shared)))
        writer.write(taker.take(START_S * 1000))
        taker.add(picture(90, workloads=(replace(HPA, wanted=4, value=7.5, pending=1),)))
        writer.write(taker.take((START_S + MINUTE_S) * 1000))
    with History(str(tmp_path / "kept")) as history:
        points = recall_charts(history, START_S, START_S + 2 * MINUTE_S)
        assert not recall_charts(history, START_S - 600, START_S - 1)
    (first_s, first), (second_s, second) = points
    assert (first_s, second_s) == (START_S, START_S + MINUTE_S)
    assert first["use/all GPUs"] == (80 + 20) / 2  # a GPU counts once, whoever shares it
    assert (first["hpa/prod/chat/desired"], second["hpa/prod/chat/desired"]) == (2, 4)
    assert (second["hpa/prod/chat/value"], second["replicas/prod/chat/pending"]) == (7.5, 1)


async def test_a_minute_is_kept_once_it_is_over_and_a_kill_loses_none(tmp_path: Path) -> None:
    now_s = float(START_S + 20)
    writer = HistoryWriter(tmp_path / "kept", 64 * MIB)
    keeper = MinuteKeeper(PriceBook({}), writer, lambda: now_s)
    for second in (20, 21, 22, 30):  # of looks every second, one in five
        keeper.add(picture(second))
    keeper.decided(SCALED, ("2 pods x 2 rounds up to 4.", "Scale from 2 to 4."))
    await keeper.keep()
    now_s = START_S + 61
    await keeper.keep()
    keeper.add(picture(65))
    # It is not closed, as after a kill: what is read is the journal.
    with History(str(tmp_path / "kept")) as history:
        with history.ask("SELECT use_count FROM gpus") as answer:
            assert list(answer.rows) == [(2,)]
        with history.ask("SELECT about, message FROM events WHERE kind = 'Decision'") as answer:
            told = ("hpa/prod/chat", "2 pods x 2 rounds up to 4. Scale from 2 to 4.")
            assert list(answer.rows) == [told]
    await keeper.keep(at_end=True)
    writer.close()
    with (
        History(str(tmp_path / "kept")) as history,
        history.ask("SELECT count(*) FROM gpus") as answer,
    ):
        assert list(answer.rows) == [(2,)]
