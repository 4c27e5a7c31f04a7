"""Whatever comes in from outside is read or refused; what goes out on the stream reads back."""

import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuscale.agent.exporter.devices import parse_devices
from gpuscale.agent.exporter.gpu_source import parse_gpu_source
from gpuscale.agent.exporter.http.passwords import _name_and_password
from gpuscale.agent.exporter.http.web_config import load_web_config
from gpuscale.agent.exporter.routes import accepts_gzip, prefers_openmetrics
from gpuscale.agent.exporter.settings import FLAGS, read_settings
from gpuscale.base.errors import ConfigError, NotFoundError, UnavailableError, UsageError
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.stream import SeriesKey, StreamEncoder, StreamError
from stream_picture import StreamPicture

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda labels: tuple(labels.items()))
VALUES = st.integers(-(2**63), 2**63) | st.floats()
TICKS = st.lists(
    st.dictionaries(st.builds(SeriesKey, TEXT, LABELS), VALUES, max_size=6), min_size=1, max_size=6
)


def as_families(series):
    return [Family(key.name, "gauge", "", (Sample(key.labels, v),)) for key, v in series.items()]


def same(left, right):
    return left.keys() == right.keys() and all(repr(left[k]) == repr(right[k]) for k in left)


@given(TICKS, st.integers(0, 5))
@settings(deadline=None)
def test_subscriber_sees_what_the_agent_has_whenever_it_joins(ticks, joins_after) -> None:
    encoder, decoder = StreamEncoder(), StreamPicture()
    for number, series in enumerate(ticks):
        line = encoder.advance(as_families(series), number)
        if decoder.measured_ms is not None:
            decoder.feed(line)
        elif number >= min(joins_after, len(ticks) - 1):
            decoder.feed(encoder.snapshot())
        if decoder.measured_ms is not None:
            assert same(decoder.values, dict(series))
            assert decoder.measured_ms == number


PIECES = st.sampled_from(
    [
        *(b'{"kind":', b'"snapshot"', b'"change"', b',"ms":1', b',"version":1', b',"series":['),
        *(b"[1,", b'"a"', b",{},", b"2]", b"]", b"}", b'"values":{"1":', b"NaN", b"1e999"),
        b"[" * 5000,
    ]
)
LINES = st.lists(PIECES, max_size=12).map(b"".join) | st.binary(max_size=60)


@given(st.lists(LINES, max_size=4))
@settings(deadline=None)
def test_stream_decoder_reads_or_refuses(lines) -> None:
    decoder = StreamPicture()
    with contextlib.suppress(StreamError):
        for line in lines:
            decoder.feed(line)


YAML_PIECES = st.sampled_from(
    [
        *("tls_server_config:", " cert_file: a", " key_file: [", "basic_auth_users:", " u: x"),
        *("- 1", "{", "a: &a [*a]", " client_auth_type: 3", " min_version: TLS12", "---"),
        *("!!python/x", "\t"),
    ]
)


@given(st.lists(YAML_PIECES | TEXT, max_size=8).map("\n".join))
@settings(deadline=None)
def test_web_config_is_read_or_refused(text) -> None:
    with contextlib.suppress(ConfigError):
        load_web_config(text, "web.yml")


HEADER_PIECES = st.sampled_from(["gzip", "*", ";q=", "0", "1", ",", "text/plain", "version=", '"'])
HEADERS = st.lists(HEADER_PIECES | TEXT, max_size=10).map("".join)


@given(HEADERS)
def test_headers_never_break_the_server(header) -> None:
    assert prefers_openmetrics(header) in (True, False)
    assert accepts_gzip(header) in (True, False)
    _name_and_password(f"Basic {header}")


@given(st.text("gif:0123,-+x", max_size=12) | TEXT)
def test_devices_are_read_or_refused(text) -> None:
    with contextlib.suppress(ValueError):
        selection = parse_devices(text)
        with contextlib.suppress(UnavailableError):
            selection.chosen(())


@given(TEXT | st.text("simulatedreplay:NVIDIA H200189", max_size=20))
def test_sources_are_read_or_refused(text) -> None:
    with contextlib.suppress(ValueError):
        parse_gpu_source(text)


@given(st.dictionaries(st.sampled_from(sorted(FLAGS)), st.tuples(TEXT), max_size=6))
@example({"settings": ("\0",)})
@example({"settings": ("\ud800",)})
def test_settings_are_read_or_refused(given_flags) -> None:
    with contextlib.suppress(UsageError, ConfigError, NotFoundError):
        read_settings(given_flags, {}, "n1")
