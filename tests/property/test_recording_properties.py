"""Recordings: the round trip is exact, and whatever is loaded ends with ticks or a ConfigError."""

import io
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.gpu.readings import (
    EventCount,
    GpuIdentity,
    GpuInstance,
    GpuReading,
    ProcessReading,
)
from gpuscale.agent.recordings.format import Tick
from gpuscale.agent.recordings.recording import ReadingRecorder, ReplayReader, read_recording
from gpuscale.base.errors import ConfigError, UnavailableError

COUNTS = st.integers(0, 2**64)
NAMES = st.sampled_from(["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "amd:gfx", ""]) | st.text()
VALUES = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
INSTANCES = st.none() | st.builds(GpuInstance, COUNTS, st.text(), st.text())
GPUS = st.lists(
    st.builds(GpuIdentity, COUNTS, st.text(), st.text(), st.text(), INSTANCES),
    min_size=1,
    max_size=4,
    unique=True,
)
UNSURE = st.none() | COUNTS
PROCESSES = st.lists(
    st.builds(ProcessReading, COUNTS, st.text(), UNSURE, UNSURE, UNSURE, UNSURE, UNSURE),
    max_size=3,
).map(tuple)
LABELS = st.lists(st.tuples(st.text(), st.text()), max_size=2).map(tuple)
EVENTS = st.lists(st.builds(EventCount, NAMES, LABELS, COUNTS), max_size=3).map(tuple)
TIMES_MS = st.integers(0, 2**52)


@st.composite
def readings(draw, gpus):
    picked = draw(st.lists(st.sampled_from(gpus), unique=True))
    return tuple(
        GpuReading(
            gpu,
            draw(TIMES_MS),
            draw(st.dictionaries(NAMES, VALUES, max_size=4)),
            draw(st.dictionaries(NAMES, st.sampled_from(["N/A", "lost"]), max_size=4)),
            draw(PROCESSES),
            draw(EVENTS),
        )
        for gpu in picked
    )


@st.composite
def runs(draw):
    gpus = draw(GPUS)
    times = sorted(draw(st.lists(TIMES_MS, min_size=1, max_size=6)))
    ticks = []
    for now_ms in times:
        present = tuple(draw(st.lists(st.sampled_from(gpus), unique=True)))
        if draw(st.booleans()):
            ticks.append(Tick(now_ms, present, draw(readings(gpus))))
        else:
            ticks.append(Tick(now_ms, present, (), draw(st.text())))
    return ticks


def recorded(ticks):
    stream = io.StringIO()
    recorder = ReadingRecorder(stream)
    for tick in ticks:
        if tick.error is None:
            recorder.write(tick.readings, now_ms=tick.now_ms, gpus=tick.gpus)
        else:
            recorder.write_failure(tick.now_ms, tick.error, gpus=tick.gpus)
    recorder.close()
    return stream.getvalue()


def kinds(ticks):
    """Return the types of all values: 1 and 1.0 are equal, but are not the same."""
    return [
        {name: type(value) for name, value in reading.values.items()}
        for tick in ticks
        for reading in tick.readings
    ]


@given(runs())
def test_the_round_trip_is_exact(ticks) -> None:
    back = list(read_recording(io.StringIO(recorded(ticks))))
    assert back == ticks
    assert kinds(back) == kinds(ticks)


@given(runs(), st.lists(st.integers(-1000, 2**53), max_size=6), st.booleans())
def test_replay_gives_what_was_recorded_or_nothing(ticks, times, loop) -> None:
    reader = ReplayReader(io.StringIO(recorded(ticks)), loop=loop)
    recorded_values = [reading.values for tick in ticks for reading in tick.readings]
    for now_ms in times:
        with suppress(UnavailableError):
            read = reader.read(now_ms)
            assert all(each.is_lost or each.values in recorded_values for each in read)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["t", "new", "gpus", "read", "error", "gpu", "0", "v", "-v", "a", "p", "e", "lag"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
HEADERS = st.sampled_from(
    [
        '{"gpuscale_recording":1,"recorded_by":"t","start_ms":0,"gpus":[]}',
        '{"gpuscale_recording":1,"recorded_by":"t","start_ms":7,"gpus":'
        '[{"index":0,"uuid":"a","pci_bus_id":"b","model":"c"}]}',
    ]
)


def loads_or_refuses(text) -> None:
    with suppress(ConfigError):
        reader = ReplayReader(io.StringIO(text))
        for now_ms in (0, 1, 10**6):
            with suppress(UnavailableError):
                reader.read(now_ms)


@given(st.text())
def test_any_text_is_loaded_or_refused(text) -> None:
    loads_or_refuses(text)


@given(HEADERS, st.lists(JSON, max_size=4))
def test_any_json_below_a_header_is_loaded_or_refused(header, lines) -> None:
    loads_or_refuses("\n".join([header, *(json.dumps(line) for line in lines)]))


@given(runs(), st.data())
def test_a_recording_with_one_character_changed_is_loaded_or_refused(ticks, data) -> None:
    text = recorded(ticks)
    at = data.draw(st.integers(0, len(text) - 1))
    loads_or_refuses(text[:at] + data.draw(st.characters()) + text[at + 1 :])


@given(st.integers(1, 200_000))
def test_deep_nesting_is_refused(depth) -> None:
    loads_or_refuses(
        '{"gpuscale_recording":1,"recorded_by":"t","start_ms":0,"gpus":[]}\n' + "[" * depth
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_or_refused(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("recording", numbered=True) / "a"
    path.write_bytes(b"\x1f\x8b" + data)
    with suppress(ConfigError):
        ReplayReader(path)
