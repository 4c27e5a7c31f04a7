"""A collector process that ends, hangs, reports nonsense or can't start, beside who keeps it running."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from background import started, until
from gpuscale.base.clock import Origin
from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.collector import process as process_module
from gpuscale.server.metricsapi.collector.process import CollectorProcess
from gpuscale.server.sources.feeds.messages import (
    CollectorSettings,
    CollectorStatus,
    frame,
    read_status,
)
from gpuscale.server.sources.feeds.settings import FeedSettings

SETTINGS = CollectorSettings(FeedSettings(), Origin(0, 0.0))
SAYS = f"print({CollectorStatus(7, 'well').line().decode().strip()!r}, flush=True);"


@asynccontextmanager
async def keeping(code):
    kept = CollectorProcess(SETTINGS, (sys.executable, "-c", f"import sys, time;{code}"))
    async with started(kept.run()):
        yield kept


async def test_it_is_up_from_its_first_word_until_its_input_ends() -> None:
    async with keeping(f"{SAYS}sys.stdin.buffer.read()") as kept:
        await kept.ready(30)
        assert (kept.is_up, kept.remark, kept.generation) == (True, "well", (1, 7, True))
        socket = kept.socket
        assert socket.parent.is_dir()
    assert not socket.parent.exists()
    assert kept.restarts == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit(3)", "exit code 3"),
        (f"{SAYS}import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        (
            "print('[1]', flush=True);time.sleep(99)",
            "it reports nonsense: found [1], expected an object",
        ),
        ("print('x' * 99_999, flush=True);time.sleep(99)", "it reports nonsense"),
    ],
)
async def test_one_that_fails_is_started_again_and_says_why(
    code: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(code) as kept:
        await until(lambda: kept.restarts == 1)
        assert f"the collector process ended: {reason}" in caplog.text


@pytest.mark.parametrize("code", ["time.sleep(99)", f"{SAYS}time.sleep(99)"])
async def test_one_that_is_silent_is_killed(
    code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "_START_S", 1.0)
    monkeypatch.setattr(process_module, "_SILENCE_S", 1.0)
    monkeypatch.setattr(process_module, "_GOODBYE_S", 0.2)
    async with keeping(code) as kept:
        await until(lambda: kept.restarts == 1)
        assert "the collector process ended: it gave no sign of life for 1 s" in caplog.text


async def test_a_command_that_is_not_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = CollectorProcess(SETTINGS, ("/nonexistent",))
    task = asyncio.create_task(kept.run())
    with pytest.raises(
        UnavailableError, match=r"the collector process does not run: .*nonexistent"
    ):
        await kept.ready(1)
    assert not kept.is_up
    task.cancel()


async def test_one_that_is_stuck_is_killed_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "_GOODBYE_S", 0.2)
    async with keeping(f"{SAYS}time.sleep(99)") as kept:
        await kept.ready(30)
    assert not kept.socket.parent.exists()


async def test_there_is_no_place_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_FOLDERS", ())
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    async with keeping("pass") as kept:
        await until(lambda: "no place for a socket" in kept.remark)


async def test_a_path_that_is_too_long_for_a_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    async with keeping(f"{SAYS}sys.stdin.buffer.read()") as kept:
        await kept.ready(30)
        assert len(bytes(kept.socket)) < 108
        assert list(long.iterdir()) == []


def test_a_status_fits_into_a_pipe_whole() -> None:
    status = CollectorStatus(3, "\x00" * 10_000, "\U0001f600" * 10_000)
    assert len(status.line()) <= 4096
    read = read_status(status.line())
    assert read == replace(status, remark=read.remark, rules=read.rules)
    # A character takes six bytes or twelve in JSON, and each text has 1800.
    assert 200 < len(read.remark) <= 300
    assert 100 < len(read.rules) <= 150
    assert set(read.remark + read.rules) == {"\x00", "\U0001f600"}
    # One that knows more than this one does is understood.
    assert read_status(json.dumps({"generation": 2, "later": 1}).encode()) == CollectorStatus(2, "")


def test_settings_arrive_as_they_were_sent(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    path.write_bytes(frame(SETTINGS))
    from gpuscale.server.sources.feeds.messages import read_frame

    with path.open("rb", buffering=0) as pipe:
        assert read_frame(pipe.fileno()) == SETTINGS
        with pytest.raises(EOFError):
            read_frame(pipe.fileno())


def test_settings_hold_no_secret_in_the_command() -> None:
    assert all(isinstance(word, str) for word in process_module.COMMAND)
    assert Path(process_module.COMMAND[0]).exists()
