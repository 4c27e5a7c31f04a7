"""A kept history of 30 days of 1 000 GPUs at a minute: its size, and what questions cost.

The rows are made by DuckDB and written by the compactor's own function, a file for each table and day,
as merged days have them; GPUs of 20 teams go up and down by the day, with noise. What the writer takes
is measured on an hour. Times are CPU seconds, of all threads together: wall-clock times say little on a
machine that others use too. On two idle cores a question takes less than that.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import harness
from gpuscale.ops.history.duck import connect, load_journals, write_parquet
from gpuscale.ops.history.questions import ask_use
from gpuscale.ops.history.reading import History
from gpuscale.ops.history.recalling import recall_past
from gpuscale.ops.history.tables import TABLES, hours_of
from gpuscale.ops.history.writing import MIB, HistoryWriter

Question = Callable[[History], object]
GPUS, DAYS, HPAS = 1_000, 30, 100
START_S = 1_767_225_600
DAY_S, HOUR_S = 86_400, 3600
GPU_ROWS = """
SELECT make_timestamp(({start} + m * 60)::BIGINT * 1000000) AS time,
  'node-' || g // 8 AS node, (g % 8)::VARCHAR AS gpu, 'GPU-' || md5(g::VARCHAR) AS uuid,
  'NVIDIA H100 80GB HBM3' AS model, 'team-' || g % 20 AS namespace,
  'infer-' || g || '-7c9d8f6b5-' || substr(md5((g + {day})::VARCHAR), 1, 5) AS pod,
  'main' AS container, 1 AS owners,
  greatest(0, u - 20 - 10 * random())::INT AS use_min, u + random() AS use_mean,
  least(100, u + 10 * random())::INT AS use_max, 4 AS use_count,
  40000 + g AS memory_min, 40000 + g + (random() < 0.1)::INT * random() * 100 AS memory_mean,
  40100 + g AS memory_max, 4 AS memory_count, 81559 AS memory_total,
  300 + 3 * u AS power_min, 320 + 3 * u + random() * 20 AS power_mean,
  350 + 3 * u AS power_max, 4 AS power_count
FROM (
  SELECT m, g, 50 + 40 * sin(m / 229.0 + g) + 5 * random() AS u
  FROM range(1440) a(m), range({gpus}) b(g)
)
"""
ANSWERS = """
SELECT make_timestamp(({start} + m * 60)::BIGINT * 1000000) AS time, 'report/' || q AS question,
  '{{"horizontalpodautoscaler": "hpa-' || h || '", "metric_name": "queue", "namespace": "team-'
    || h % 20 || '"}}' AS labels,
  CASE q WHEN 'scaled' THEN (5 + 4 * sin((m + h) / 100.0))::INT
    ELSE 1 + 0.3 * sin((m + h) / 100.0) END AS value
FROM range(1, 1441) a(m), range({hpas}) b(h), (VALUES ('scaled'), ('metrics')) c(q)
"""


def make(folder: Path) -> None:
    with HistoryWriter(folder, 1 << 40) as writer:
        writer.write(
            {"kept": [(START_S * 1000, (START_S + DAYS * DAY_S) * 1000, "minutes", "made up")]}
        )
    for day in range(DAYS):
        with connect(1024) as connection:
            load_journals(connection, ())
            start = START_S + day * DAY_S
            date = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d")
            for table, rows in (
                ("gpus", GPU_ROWS.format(start=start, day=day, gpus=GPUS)),
                ("gpu_hours", ""),
                ("answers", ANSWERS.format(start=start, hpas=HPAS)),
            ):
                columns = TABLES[table].columns
                of_hours = hours_of("FROM new_gpus")
                connection.execute(f"INSERT INTO new_{table} {rows or of_hours}")
                place = folder / table / f"day={date}"
                place.mkdir(parents=True)
                ordered = (
                    f"SELECT {', '.join(columns)} FROM new_{table} ORDER BY {TABLES[table].order}"
                )
                write_parquet(connection, ordered, place / f"{day + 2:08}.parquet")


def written(folder: Path) -> None:
    """Write an hour of minutes, and make Parquet files of it."""
    shutil.rmtree(folder, ignore_errors=True)
    text, means = ("node-{}", "NVIDIA H100 80GB HBM3", "team", "main"), [1.0, 2.0, 3.0, 4]
    with HistoryWriter(folder, 1 << 40) as writer:
        for minute in range(60):
            rows = [
                (
                    *((START_S + minute * 60) * 1000, text[0].format(gpu // 8), str(gpu % 8)),
                    *(f"GPU-{gpu}", text[1], text[2], f"infer-{gpu}", text[3], 1),
                    *(*means, *means, 81559.0, *means),
                )
                for gpu in range(GPUS)
            ]
            writer.write({"gpus": rows})


def cpu(work: Callable[[], object], runs: int = 3) -> list[float]:
    """Return the CPU seconds of each run, after one that is not counted."""
    work()
    seconds = []
    for _ in range(runs):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return seconds


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name) / "kept", Path(name) / "written"
        make(folder)
        sizes = {
            table: sum(each.stat().st_size for each in folder.glob(f"{table}/*/*"))
            for table in ("gpus", "gpu_hours", "answers")
        }
        last, month = START_S + DAYS * DAY_S, (START_S, START_S + DAYS * DAY_S)
        day = (last - DAY_S, last)

        def use(by: str, every_s: int, span: tuple[int, int]) -> Question:
            return lambda history: ask_use(history, "use", by, every_s, span)

        def sql(text: str) -> Question:
            def ask(history: History) -> object:
                with history.ask(text) as answer:
                    return list(answer.rows)

            return ask

        seed = (last - 12 * HOUR_S, last - 12 * HOUR_S + 1500)
        in_day = "WHERE day = (SELECT max(day) FROM gpus)"
        questions: dict[str, Question] = {
            "each container by the minute, 25 minutes": use("container", 60, seed),
            "each container by 15 minutes, a day": use("container", 900, day),
            "each container by 4 hours, the month": use("container", 4 * HOUR_S, month),
            "each namespace by the hour, the month": use("namespace", HOUR_S, month),
            "each pod's highest use, the month, by hours": sql(
                "SELECT namespace, pod, max(use_max) FROM gpu_hours GROUP BY ALL"
            ),
            "each namespace's mean, a day, by minutes": sql(
                f"SELECT namespace, avg(use_mean) FROM gpus {in_day} GROUP BY ALL"
            ),
            "each namespace's mean, the month, by minutes": sql(
                "SELECT namespace, avg(use_mean) FROM gpus GROUP BY ALL"
            ),
            "one GPU's minutes, the month": sql(
                "SELECT time, use_mean FROM gpus WHERE node = 'node-7' AND gpu = '3'"
            ),
            "report of a day, 100 HPAs": lambda history: recall_past(history, *day),
        }
        figures = [
            harness.figure(f"size of {table}", "MiB", [size / MIB]) for table, size in sizes.items()
        ]
        rows = GPUS * DAYS * 1440
        figures.append(harness.figure("size of a GPU's minute", "bytes", [sizes["gpus"] / rows]))
        opened = cpu(lambda: History(str(folder)))
        figures.append(harness.figure("open the history", "CPU s", opened))
        with History(str(folder)) as history:
            figures += [
                harness.figure(question, "CPU s", cpu(partial(ask, history)), at_most=1.0)
                for question, ask in questions.items()
            ]
        taken = cpu(lambda: written(other), runs=1)
        figures.append(harness.figure("write an hour, and compact it", "CPU s", taken))
    return harness.write(
        "history",
        figures,
        packages=["duckdb"],
        settings={"gpus": GPUS, "days": DAYS, "hpas": HPAS, "beside": "others computed beside it"},
    )


if __name__ == "__main__":
    sys.exit(main())
