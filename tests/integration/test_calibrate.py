"""`gpuscale calibrate` against real servers on loopback whose theory is known, and against bad ones."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)

GPUSCALE = str(Path(sys.executable).with_name("gpuscale"))
SERVER = Path(__file__).parents[1] / "support" / "queue_server.py"


@contextmanager
def replica(*options: str) -> Iterator[str]:
    """Yield the address of a running replica."""
    command = [sys.executable, str(SERVER), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def calibrate(*arguments: str, cwd: Path | None = None) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the document, and what was said on standard error."""
    command = [GPUSCALE, "calibrate", *arguments, "-o", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, cwd=cwd
    )
    return done.returncode, (json.loads(done.stdout) if done.stdout else {}), done.stderr


def test_a_deterministic_worker_gets_its_limit_its_signal_and_files_that_work(
    tmp_path: Path,
) -> None:
    with replica("--service-ms=10") as url:
        _, found, said = calibrate(
            f"{url}/predict", "--promise=p95=60ms", "--hold=3s", f"--metrics={url}/metrics",
            "--signal=requests_running", "--signal=gpu_busy",
            "--signal=handled=rate(requests_handled_total[4s])",
            "--hpa=hpa.yaml", "--scenario=scenario.yaml", "--name=web", cwd=tmp_path,
        )  # fmt: skip
    # 100 requests/s at most; p95 of 60 ms, a wait of 5 services, at 74.1 by Erlang's formula
    # (tests/conformance/test_calibrate_theory.py has it); a busy machine may only make it less.
    late = [level for level in found["levels"] if not level["isUsed"]]
    if len(late) > len(found["levels"]) / 2 or not found["end"]["isWhole"] or "unchecked" in found:
        assert "late" in " ".join(
            (found["end"]["why"], found.get("unchecked", ""), *found["notes"])
        )
        pytest.skip("this machine is too busy to send on time, and calibrate says so")
    assert found["model"]["capacity"] == pytest.approx(100, rel=0.1)
    assert found["limit"]["rate"] == pytest.approx(74.1, rel=0.12)
    assert found["knee"]["rate"] == pytest.approx(58.6, rel=0.12)
    signals = {each["name"]: each for each in found["signals"]}
    assert "target" not in signals["gpu_busy"], said
    best = next(each for each in found["signals"] if "target" in each)
    assert best["target"] < best["atLimit"]
    assert (tmp_path / "hpa.yaml").is_file(), said
    for command in (["lint", "hpa.yaml"], ["lint", "scenario.yaml"], ["simulate", "scenario.yaml"]):
        done = subprocess.run(
            [GPUSCALE, *command], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_lanes_that_slow_each_other_down_are_answered_with_a_check_or_refused() -> None:
    # One request takes 10 ms alone, two at once 25 ms each: 80 requests/s at most, where one lane has 100.
    with replica("--service-ms=10", "--workers=2", "--slower=1.5") as url:
        code, found, _ = calibrate(url, "--promise=p95=100ms", "--hold=4s")
    if "unchecked" in found or not found["end"]["isWhole"]:
        assert code == 1
        said = " ".join((found["end"]["why"], found.get("unchecked", ""), *found["notes"]))
        assert "late" in said or "contradict" in said
        pytest.skip("this machine is too busy to measure it, and calibrate says so")
    assert code == int(abs(found["check"]["difference"]) > 0.2)
    assert found["limit"]["method"] == "queue"
    assert found["model"]["capacity"] == pytest.approx(80, rel=0.1)
    kept = [each["rate"] for each in found["levels"] if each["isUsed"] and each["keepsObjective"]]
    assert found["limit"]["rate"] >= 0.8 * max(kept)


def test_an_answer_that_had_no_time_for_its_check_is_none(tmp_path: Path) -> None:
    with replica("--service-ms=10") as url:
        code, found, said = calibrate(
            url, "--promise=p95=60ms", "--hold=2s", "--for=15s", "--scenario=s.yaml", cwd=tmp_path
        )
    assert code == 1
    assert "check" not in found
    assert found["unchecked"]
    assert "not written, as there is no value for it that was checked: s.yaml" in said
    assert list(tmp_path.iterdir()) == []


def test_an_objective_that_no_rate_keeps_is_said_after_single_requests(tmp_path: Path) -> None:
    with replica("--service-ms=20") as url:
        code, found, said = calibrate(url, "--promise=p95=10ms", "--scenario=s.yaml", cwd=tmp_path)
    assert code == 1
    assert found["levels"] == []
    if "too busy" in found["end"]["why"]:
        pytest.skip("this machine is too busy to send on time, and calibrate says so")
    assert "no rate keeps 10 ms" in found["end"]["why"]
    assert "not written" in said
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_in_the_ramp_ends_it_with_what_was_measured() -> None:
    with replica("--service-ms=5", "--dies-after=500") as url:
        code, found, _ = calibrate(url, "--promise=p95=100ms", "--hold=3s")
    assert code == 1
    assert not found["end"]["isWhole"]
    assert "no good answer any more" in found["end"]["why"]
    assert found["levels"]


def test_a_rate_limiter_is_named() -> None:
    with replica("--service-ms=10", "--most-running=2") as url:
        code, found, _ = calibrate(url, "--promise=p95=200ms", "--hold=3s")
    assert code == 1
    assert "a rate limiter stands before the service" in found["end"]["why"]


def test_a_service_that_slows_down_is_named() -> None:
    with replica("--service-ms=10", "--slower-per-s=0.06") as url:
        _, found, _ = calibrate(url, "--promise=p95=80ms", "--hold=2s", "--for=60s")
    assert any("has become slower meanwhile" in note for note in found["notes"]), found["notes"]


def test_a_cache_is_named() -> None:
    with replica("--service-ms=5", "--header=X-Cache: HIT") as url:
        _, found, _ = calibrate(url, "--promise=p95=3ms")
    assert "a cache answers (x-cache: HIT)" in found["notes"][0]


@pytest.mark.parametrize(
    ("scheme", "answer", "expected"),
    [
        (
            "http",
            b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
            "a redirect (302) to /login",
        ),
        ("http", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "found status 404"),
        ("http", b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "expected an answer in HTTP/1.1"),
        ("http", b"", "the connection ended before an answer"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "found no TLS at this port; is it http://?"),
    ],
)
def test_what_is_no_service_is_said_at_the_first_request(
    scheme: str, answer: bytes, expected: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [
            GPUSCALE,
            "calibrate",
            f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/",
            "--promise=p95=1s",
        ]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as run:
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(answer)
            out, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert out == ""
    assert expected in err


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    with replica("--service-ms=5") as url:
        command = [
            GPUSCALE, "calibrate", url, "--promise=p95=100ms", "--hold=3s",
            "--output-file=r.json", "--scenario=s.yaml",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        ) as run:
            assert run.stderr is not None
            seen = 0
            while seen < 2:
                seen += "requests/s for" in run.stderr.readline()
            time.sleep(1)
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "ramp       interrupted" in out
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["levels"][0]["answered"] > 20
    assert not (tmp_path / "s.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--promise=p95=1s", "--promise=p99=2s"], "found 2 latencies"),
        (["--promise=errors=1%"], "found 0 latencies"),
        (["--promise=p95=1s", "--signal=up"], "found one without the other"),
        (["--promise=p95=1s", "--metrics=http://127.0.0.1:9/", "--signal=sum("], "expected PromQL"),
        (["--promise=p95=1s", "--hpa=hpa.yaml"], "found no --signal"),
        (["--promise=p95=1s", "--scenario=there.yaml"], "add --force to replace it"),
        (["--promise=p95=1s", "--for=40h"], "expected a day at most"),
        (["--promise=p95=1s", "--scenario=a", "--output-file=a"], "the same file twice"),
    ],
)
def test_wrong_arguments_send_nothing(tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "there.yaml").write_text("mine")
    code, found, said = calibrate("http://127.0.0.1:9/", *arguments, cwd=tmp_path)
    assert code == 2
    assert found == {}
    assert expected in said
    assert (tmp_path / "there.yaml").read_text() == "mine"
