"""A store that is saved, and read back by another process: here another store and saver."""

import math
import os
import random
import resource
import struct
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.series.saved.records import HEADER_BYTES, SegmentHeader
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Tail
from gpuscale.series.values import STALE_BITS
from gpuscale.server.sources.saving import saver as saver_module
from gpuscale.server.sources.saving.saver import StoreSaver
from gpuscale.server.sources.saving.settings import SavingSettings

START_MS = 1_700_000_000_000
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8DEADBEEF0001))[0]


def clock_at_start() -> ManualClock:
    return ManualClock(START_MS)


def store_of(retention_ms=900_000, **bounds):
    return SeriesStore(retention_ms, **bounds)


_MADE = []


@pytest.fixture(autouse=True)
def _let_go():
    yield
    for saver in _MADE:
        saver._close_file()
        saver._directory.release()
    _MADE.clear()


def saver_of(store, directory, clock, **settings):
    saver = StoreSaver(store, SavingSettings(directory, **settings), clock)
    _MADE.append(saver)
    return saver


def content(store):
    """Return times and bits of each series."""
    return {
        series.labels.key: [
            (t_ms, struct.pack("<d", value))
            for t_ms, value in zip(series.times_ms, series.values, strict=True)
        ]
        for series in store.select(())
    }


def fill(store, now_ms=START_MS, series=5, times=4, step_ms=1000):
    refs = [
        store.ref({"__name__": "gpu_util", "gpu": str(i), "note": 'a"b\n\x1f\x00ü'})
        for i in range(series)
    ]
    for step in range(times):
        t_ms = now_ms - (times - 1 - step) * step_ms
        store.append_many(refs, [step + i / 10 for i in range(series)], t_ms, now_ms)
    return refs


async def saved(store, directory, clock, **settings):
    saver = saver_of(store, directory, clock, **settings)
    await saver.open()
    # What was there before `open` counts as read back; a real store is empty then.
    saver._tail = Tail(store)
    await saver.close()
    assert saver.state.fault is None
    return saver


async def restored(directory, clock, store=None, **settings):
    store = store or store_of()
    saver = saver_of(store, directory, clock, **settings)
    await saver.open()
    return store, saver


async def test_what_was_saved_comes_back_bit_by_bit(tmp_path: Path) -> None:
    store, clock = store_of(), clock_at_start()
    refs = fill(store)
    for number, value in enumerate((math.nan, OTHER_NAN, math.inf, -0.0, 5e-324)):
        store.append_ref(refs[number], START_MS + 1, value, START_MS + 1)
    store.mark_stale(refs[0], START_MS + 2)
    await saved(store, tmp_path, clock)
    clock.advance(5)
    again, saver = await restored(tmp_path, clock)
    assert content(again) == content(store)
    assert saver.state.restored_samples == 5 * 4 + 5 + 1
    assert saver.state.restored_series == 5
    assert again.ref(refs[0].labels).is_stale()
    assert not again.ref(refs[1].labels).is_stale()


async def test_new_samples_go_on_where_the_saved_ones_end(tmp_path: Path) -> None:
    clock = clock_at_start()
    expected = []
    for _ in range(3):
        store, saver = await restored(tmp_path, clock)
        for _ in range(3):
            clock.advance(1)
            store.append({"__name__": "x"}, clock.now_ms(), clock.now_ms() / 7)
            expected.append((clock.now_ms(), struct.pack("<d", clock.now_ms() / 7)))
            assert await saver.save()
        await saver.close()
    store, _ = await restored(tmp_path, clock)
    assert list(content(store).values()) == [expected]
    assert len(list(tmp_path.glob("*.samples"))) == 3


async def test_every_cut_of_a_file_gives_a_beginning_of_what_it_held(tmp_path: Path) -> None:
    store, clock = store_of(), clock_at_start()
    saver = saver_of(store, tmp_path / "whole", clock)
    await saver.open()
    for step in range(3):
        clock.advance(1)
        fill(store, clock.now_ms(), series=2, times=1)
        store.append({"__name__": f"series_{step}"}, clock.now_ms(), step)
        assert await saver.save()
    await saver.close()
    whole = content(store)
    (path,) = (tmp_path / "whole").glob("*.samples")
    data = path.read_bytes()
    counts = set()
    for size in range(len(data) + 1):
        again, state = await _of_bytes(tmp_path / "cut", data[:size], clock)
        counts.add(_assert_beginning(again, whole))
        assert state.put_aside == (size < HEADER_BYTES)
    # Nothing, and what each of the three saves brought: three series of one sample at a time.
    assert counts == {0, 3, 6, 9}


async def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    store, clock = store_of(), clock_at_start()
    saver = saver_of(store, tmp_path / "whole", clock)
    await saver.open()
    for _ in range(2):
        clock.advance(1)
        fill(store, clock.now_ms(), series=3, times=1)
        assert await saver.save()
    await saver.close()
    whole = content(store)
    (path,) = (tmp_path / "whole").glob("*.samples")
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        again, state = await _of_bytes(tmp_path / "flipped", bytes(flipped), clock)
        _assert_beginning(again, whole)
        assert state.put_aside or state.torn_segments


async def _of_bytes(directory, data, clock):
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    (directory / "00000001.samples").write_bytes(data)
    store, saver = await restored(directory, clock)
    saver._directory.release()
    return store, saver.state


def _assert_beginning(store, whole):
    found = content(store)
    for key, samples in found.items():
        assert samples == whole[key][: len(samples)]
    return sum(map(len, found.values()))


def _pipe(path) -> None:
    os.mkfifo(path)


def _link(path) -> None:
    path.symlink_to("/etc/hostname")


def _other_version(path) -> None:
    header = bytearray(SegmentHeader(START_MS, bytes(16)).encode())
    header[16] = 2
    path.write_bytes(header)


def _other_machine(path) -> None:
    import zlib

    header = bytearray(SegmentHeader(START_MS, bytes(16)).encode()[:-4])
    header[17] ^= 3
    path.write_bytes(header + struct.pack("<I", zlib.crc32(header)))


def _too_large(path) -> None:
    with path.open("wb") as file:
        file.write(SegmentHeader(START_MS, bytes(16)).encode())
        file.truncate(17 * 1024 * 1024)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b"text of somebody"), "no file of saved samples"),
        (lambda path: path.write_bytes(b""), "no file of saved samples"),
        (lambda path: path.mkdir(), "no plain file"),
        (_pipe, "no plain file"),
        (_link, "symbolic links"),
        (_other_version, "found format 2, expected 1"),
        (_other_machine, "another byte order"),
        (_too_large, "found 17825792 bytes, expected at most 16777216 in all files"),
    ],
)
async def test_what_is_no_segment_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make, reason: str
) -> None:
    store, clock = store_of(), clock_at_start()
    fill(store)
    await saved(store, tmp_path, clock)
    make(tmp_path / "00000000.samples")
    again, saver = await restored(tmp_path, clock, max_bytes=16 * 1024 * 1024)
    assert content(again) == content(store)
    assert saver.state.put_aside == 1
    assert reason in caplog.text
    assert (tmp_path / "00000000.unusable").exists() or (
        tmp_path / "00000000.unusable"
    ).is_symlink()
    assert await saver.save()


async def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "1.samples", "x.samples"):
        (tmp_path / name).write_text("mine")
    _, saver = await restored(tmp_path, clock_at_start())
    await saver.close()
    assert all((tmp_path / name).read_text() == "mine" for name in ("notes.txt", "1.samples"))


async def test_two_processes_never_share_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "_HOLD_WAIT_S", 0.001)
    clock = clock_at_start()
    _, first = await restored(tmp_path, clock)
    other_store, other = await restored(tmp_path, clock)
    assert other.state.fault == f"{tmp_path}: another process uses it"
    fill(other_store)
    assert not await other.save()
    await first.close()
    # What the other one has not been able to save so far is saved now.
    assert await other.save()
    assert other.state.fault is None
    await other.close()
    again, _ = await restored(tmp_path, clock)
    assert content(again) == content(other_store)


async def test_a_directory_that_is_none_is_reported_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("a file")
    clock = clock_at_start()
    store, saver = await restored(path, clock)
    assert saver.state.fault == f"{path}: File exists"
    fill(store)
    assert not await saver.save()
    path.unlink()
    assert await saver.save()
    await saver.close()
    again, _ = await restored(path, clock)
    assert content(again) == content(store)


@contextmanager
def files_of_at_most(size):
    """Let no file grow beyond a size: what a full disk looks like to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python before 3.12 would keep the cut bytecode of a module, and fail to read it ever after.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path) -> None:
    clock = clock_at_start()
    store, saver = await restored(tmp_path, clock)
    fill(store, clock.now_ms())
    assert await saver.save()
    clock.advance(1)
    fill(store, clock.now_ms(), series=500, times=1)
    with files_of_at_most(1_000):
        assert not await saver.save()
        assert saver.state.fault == f"{tmp_path}: File too large"
        clock.advance(1)
        fill(store, clock.now_ms(), series=500, times=1)
        assert not await saver.save()
    assert await saver.save()
    assert (saver.state.fault, saver.state.faults) == (None, 2)
    await saver.close()
    again, _ = await restored(tmp_path, clock)
    assert content(again) == content(store)


async def test_the_files_stay_within_their_bound(tmp_path: Path) -> None:
    bound = 1024 * 1024
    clock = clock_at_start()
    store, saver = await restored(tmp_path, clock, max_bytes=bound)
    refs = [store.ref({"__name__": "noise", "i": str(i)}) for i in range(100)]
    noise = random.Random(7)
    largest = 0
    for _ in range(40):  # 3.2 MB of values that can't be compressed
        for _ in range(100):
            clock.advance(0.05)
            store.append_many(refs, [noise.random() for _ in refs], clock.now_ms())
        assert await saver.save()
        on_disk = sum(path.stat().st_size for path in tmp_path.glob("*.samples"))
        assert saver.state.disk_bytes == on_disk
        largest = max(largest, on_disk)
    assert bound * 0.7 < largest <= bound
    await saver.close()
    again, _ = await restored(tmp_path, clock, max_bytes=bound)
    found, whole = content(again), content(store)
    assert len(found) == 100
    assert all(samples == whole[key][-len(samples) :] for key, samples in found.items())


async def test_files_older_than_the_retention_go(tmp_path: Path) -> None:
    clock = clock_at_start()
    store, saver = await restored(tmp_path, clock, store_of(retention_ms=60_000))
    for _ in range(20):
        clock.advance(10)
        saver._begun_s -= 10.0
        store.append({"__name__": "x"}, clock.now_ms(), 1.0)
        assert await saver.save()
    # A segment holds 15 s or a little more: those of the last minute, and the one that began before it.
    assert 4 <= saver.state.segments <= 6


@pytest.mark.parametrize(
    ("jump_ms", "reason"), [(-3_600_000, "too_far_ahead"), (3_600_000, "too_old")]
)
async def test_a_clock_that_was_set_between_two_runs(
    tmp_path: Path, jump_ms: int, reason: str
) -> None:
    store, clock = store_of(), clock_at_start()
    fill(store)
    await saved(store, tmp_path, clock)
    clock.advance(jump_ms / 1000)
    again, saver = await restored(tmp_path, clock)
    assert content(again) == {}
    assert saver.state.lost_samples[reason] == 20
    # The new run goes on by the clock as it is now.
    assert again.append({"__name__": "gpu_util", "gpu": "0"}, clock.now_ms(), 1.0)
    assert await saver.save()


async def test_series_that_do_not_come_back_end(tmp_path: Path) -> None:
    store, clock = store_of(), clock_at_start()
    fast = [store.ref({"__name__": "fast", "i": str(i)}) for i in range(2)]
    slow = store.ref({"__name__": "slow"})
    for step in range(5):
        store.append_many(fast, [1, 2], START_MS + 1_000 * step)
    for step in range(2):
        store.append_ref(slow, START_MS - 30_000 + 30_000 * step, 3, START_MS + 4_000)
    clock.advance(4)
    await saved(store, tmp_path, clock)
    clock.advance(20)
    again, saver = await restored(tmp_path, clock)
    assert saver._returning is not None
    back = again.ref(fast[0].labels)
    again.append_ref(back, clock.now_ms(), 5)
    clock.advance(14.999)
    await saver._end_missing()
    assert saver.state.ended == 0
    clock.advance(0.001)
    await saver._end_missing()
    # Fast ones had a sample a second: they are waited for 15 s, the least; the slow one for three pauses.
    assert [again.ref(ref.labels).is_stale() for ref in (*fast, slow)] == [False, True, False]
    clock.advance(74.999)
    await saver._end_missing()
    assert not again.ref(slow.labels).is_stale()
    clock.advance(0.001)
    await saver._end_missing()
    assert again.ref(slow.labels).is_stale()
    assert (saver.state.ended, saver._returning) == (2, None)


async def test_labels_of_hostile_size_are_left_out(tmp_path: Path) -> None:
    store, clock = store_of(), clock_at_start()
    store.append({"__name__": "small", "x": "\U0001f600" * 10_000}, START_MS, 1.0)
    store.append({"__name__": "large", "x": "y" * 70_000}, START_MS, 1.0)
    await saved(store, tmp_path, clock)
    again, _ = await restored(tmp_path, clock)
    assert {series.labels["__name__"] for series in again.select(())} == {"small"}


async def test_without_cramjam_zlib_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuscale.series.storage import compression

    store, clock = store_of(), clock_at_start()
    fill(store)
    with monkeypatch.context() as patch:
        patch.setattr(compression, "_has_cramjam", lambda: False)
        await saved(store, tmp_path, clock)
        again, _ = await restored(tmp_path, clock)
    assert content(again) == content(store)


def test_numbers_of_markers() -> None:
    assert struct.pack("<Q", STALE_BITS) == bytes.fromhex("020000000000f07f")
