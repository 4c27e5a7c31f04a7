"""What is written to a history is there: after kills at any moment, within the size, once and not twice."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.ops.history.folder import MARK, counting, part_of
from gpuscale.ops.history.journal import Journal, frames
from gpuscale.ops.history.reading import History
from gpuscale.ops.history.writing import MIB, HistoryWriter

DAY_MS = 86_400_000
START_MS = 1_767_225_600_000


def event(number: int, at_ms: int = START_MS) -> tuple[object, ...]:
    return at_ms, "Normal", "Scaled", f"hpa/prod/{number}", "", number


def numbers(folder: Path) -> list[int]:
    with History(str(folder)) as kept, kept.ask("SELECT count FROM events ORDER BY ALL") as answer:
        return [row[0] for row in answer.rows]


def files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.glob("events/*/*"))


def test_rows_are_there_before_and_after_they_are_parquet_files(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "kept", 64 * MIB) as writer:
        writer.write({"events": [event(1), event(2, START_MS + DAY_MS)]})
        assert files(writer.folder) == []
        assert numbers(writer.folder) == [1, 2]
        writer.compact()
        assert files(writer.folder) == [
            "events/day=2026-01-01/00000001.parquet",
            "events/day=2026-01-02/00000001.parquet",
        ]
        writer.write({"events": [event(3)]})
        assert numbers(writer.folder) == [1, 2, 3]
    assert numbers(tmp_path / "kept") == [1, 2, 3]
    with HistoryWriter(
        tmp_path / "kept", 64 * MIB
    ):  # the first day is over, so its files become one
        pass
    assert files(tmp_path / "kept")[0] == "events/day=2026-01-01/00000001-00000002.parquet"
    assert numbers(tmp_path / "kept") == [1, 2, 3]


def test_a_torn_frame_ends_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    with closing(Journal(path)) as journal:
        journal.append({"events": [event(1)]})
        journal.append({"events": [event(2)]})
    whole = path.read_bytes()
    first = next(iter(_ends(path)))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert len(list(frames(path))) == (0 if length < first else 1)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    with closing(Journal(path)) as journal:  # what is written after a torn frame is read again
        journal.append({"events": [event(3)]})
    found = [frame["events"].decode() for frame in frames(path)]
    assert ["hpa/prod/1" in found[0], "hpa/prod/3" in found[1], len(found)] == [True, True, 2]


def _ends(path: Path):
    from gpuscale.ops.history.journal import _payloads

    return [end for end, _ in _payloads(path)]


FILLER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from gpuscale.ops.history.writing import HistoryWriter

    first, at_ms = int(sys.argv[2]), 1_767_225_600_000
    with HistoryWriter(Path(sys.argv[1]), 1 << 30, journal_bytes=700) as writer:
        for number in range(first, first + 100_000):
            day_ms = number // 20 * 86_400_000
            writer.write({"events": [(at_ms + day_ms, "", "", "", "x" * (number % 50), number)]})
            print(number, flush=True)
    """
)


def test_a_kill_loses_nothing_that_was_written_and_makes_nothing_twice(tmp_path: Path) -> None:
    """Kill the writer while it writes, compacts and merges; GPUSCALE_KILLS=200 asks for more of them."""
    chance, kept, last = random.Random(5), tmp_path / "kept", 0
    for _ in range(int(os.environ.get("GPUSCALE_KILLS", "3"))):
        command = [sys.executable, "-c", FILLER, str(kept), str(last + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(chance.randrange(1, 20))]
            # Somewhere in what the next writes do, of which every few end in a compaction.
            _burn(chance.randrange(60_000))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        acknowledged = int(lines[-1])
        found = numbers(kept)
        assert found == list(range(1, len(found) + 1))
        assert len(found) - acknowledged in (0, 1)  # the last one was kept, and could not be told
        last = len(found)


def _burn(turns: int) -> None:
    for _ in range(turns):
        pass


@pytest.mark.parametrize(
    "step", ["before it is moved", "before its journal goes", "before parts go"]
)
def test_files_of_a_compactor_that_was_killed_count_once(tmp_path: Path, step: str) -> None:
    kept = tmp_path / "kept"
    with HistoryWriter(kept, 64 * MIB) as writer:
        writer.write({"events": [event(1)]})
        writer.compact()
        writer.write({"events": [event(2)]})
        journal = writer.folder / "journal/00000002.journal"
        copy = journal.read_bytes()
    first, second = (kept / each for each in files(kept))
    if step == "before it is moved":
        second.rename(second.with_name(f"{second.name}.writing"))
    if step == "before parts go":
        shutil.copy(first, first.with_name("saved"))
        shutil.copy(second, second.with_name("saved2"))
        with HistoryWriter(kept, 64 * MIB) as writer:
            writer.write({"events": [event(3, START_MS + DAY_MS)]})
        first.with_name("saved").rename(first)
        second.with_name("saved2").rename(second)
        assert numbers(kept) == [1, 2, 3]
    else:
        journal.write_bytes(copy)
        assert numbers(kept) == [1, 2]
    with HistoryWriter(kept, 64 * MIB):
        assert numbers(kept)[:2] == [1, 2]
    assert not list(kept.glob("*/*/*.writing"))
    assert numbers(kept)[:2] == [1, 2]


def test_a_file_counts_where_no_other_has_all_its_journals() -> None:
    names = ["1-3", "2", "4", "4-5", "7"]
    parts = [
        part_of(
            "h/gpus/day=2026-01-01/"
            + "-".join(f"{int(n):08}" for n in name.split("-"))
            + ".parquet"
        )
        for name in names
    ]
    found = counting([each for each in parts if each], frozenset({7}))
    assert [(each.first, each.last) for each in found] == [(1, 3), (4, 5)]
    assert part_of("h/other/day=2026-01-01/00000001.parquet") is None


def test_the_oldest_days_go_where_there_is_no_room(tmp_path: Path) -> None:
    chance = random.Random(1)
    most = 150_000
    with HistoryWriter(tmp_path / "kept", most) as writer:
        for day in range(6):
            rows = [
                (*event(day, START_MS + day * DAY_MS)[:4], chance.randbytes(40).hex(), day)
                for _ in range(1_000)
            ]
            writer.write({"events": rows})
            size = sum(each.stat().st_size for each in writer.folder.rglob("*") if each.is_file())
            assert size <= most
    days = sorted(set(numbers(tmp_path / "kept")))
    assert days[-1] == 5
    assert days == list(range(days[0], 6))
    assert days[0] > 0


def test_a_full_disk_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with HistoryWriter(tmp_path / "kept", 64 * MIB) as writer:
        writer.write({"events": [event(1)]})
        resource.setrlimit(resource.RLIMIT_FSIZE, (writer._journal.size + 10, limits[1]))
        try:
            with pytest.raises(UnavailableError, match="File too large"):
                writer.write({"events": [event(2)]})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        writer.write({"events": [event(3)]})
    assert numbers(tmp_path / "kept") == [1, 3]


def test_rows_are_kept_where_no_parquet_file_can_be_written(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with HistoryWriter(kept, 64 * MIB, journal_bytes=1) as writer:
        (kept / "events").touch()  # in the way of the table's folder
        writer.write({"events": [event(1)]})
        writer.write({"events": [event(2)]})
        assert numbers(kept) == [1, 2]
        (kept / "events").unlink()
    assert numbers(kept) == [1, 2]
    assert len(files(kept)) == 2


def test_a_damaged_file_is_named_and_stops_no_writer(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with HistoryWriter(kept, 64 * MIB) as writer:
        writer.write({"events": [event(1)]})
        writer.compact()
        (damaged,) = kept.glob("events/*/*")
        damaged.write_bytes(damaged.read_bytes()[:-8])
        writer.write({"events": [event(2)]})
        writer.compact()
        writer.write({"events": [event(3, START_MS + DAY_MS)]})  # so that the first day is merged
        writer.compact()
        with pytest.raises(UnavailableError, match=damaged.name):
            numbers(kept)
        damaged.unlink()
    assert numbers(kept) == [2, 3]


def test_what_a_writer_refuses(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with (
        HistoryWriter(kept, 64 * MIB),
        pytest.raises(UsageError, match="another process writes to it"),
    ):
        HistoryWriter(kept, 64 * MIB)
    (kept / MARK).write_text('{"version": 99}')
    for use in (lambda: HistoryWriter(kept, 64 * MIB), lambda: History(str(kept))):
        with pytest.raises(UsageError, match="found version 99, expected 1"):
            use()
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match="found other files"):
        HistoryWriter(tmp_path, 64 * MIB)
