"""`gpuscale scaler` as a process over a real Prometheus, asked with the page's own commands."""

import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuscale.testing import prometheus

pytestmark = pytest.mark.prometheus

PAGE = (Path(__file__).parents[2] / "docs" / "scaler.md").read_text()
GPUSCALE = (sys.executable, "-m", "gpuscale.cli.main")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def gpuscale(*words, **options):
    return subprocess.run(
        [*GPUSCALE, *words], capture_output=True, text=True, timeout=60, check=False, **options
    )


class Running:
    def __init__(self, url, *flags):
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                *GPUSCALE,
                "scaler",
                f"--prometheus-url={url}",
                "--bind-address=127.0.0.1",
                f"--port={self.port}",
                "--metrics-port=0",
                "--shutdown-delay-duration=0s",
                *flags,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words):
        return gpuscale("scaler", "ask", f"127.0.0.1:{self.port}", *words)

    def wait(self):
        for _ in range(200):
            assert self.process.poll() is None, self.process.stderr.read()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError("it does not listen")

    def end(self):
        self.process.terminate()
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def scaler(tmp_path_factory):
    now_ms = time.time_ns() // 1_000_000
    samples = [
        ({"__name__": "vision_load", "pod": pod}, now_ms, value)
        for pod, value in (("vision-0", 30.0), ("vision-1", 60.0))
    ]
    port = prometheus.free_port()
    with prometheus.serve(samples, tmp_path_factory.mktemp("prometheus"), port):
        found = Running(f"http://127.0.0.1:{port}")
        found.wait()
        yield found
        code, said = found.end()
        assert (code, "Traceback" in said) == (0, False), said


def page_command():
    """Return the words after `scaler ask HOST:PORT` on the page, and what it prints there."""
    found = re.search(
        r"^gpuscale scaler ask \S+ (--namespace.*)\n```\n\n```\n(.*?)```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    return shlex.split(found[1]), found[2]


def answered(scaler, words):
    """Ask until the first evaluation is through: the store of a Prometheus that just began may lag."""
    for _ in range(50):
        found = scaler.ask(*words)
        if found.returncode != 1:
            return found
        time.sleep(0.2)
    raise AssertionError(found.stdout)


def test_the_command_of_the_page_prints_what_the_page_shows(scaler) -> None:
    words, printed = page_command()
    found = answered(scaler, words)
    assert (found.returncode, found.stdout, found.stderr) == (0, printed, "")


def test_wrong_metadata_is_said_with_every_fault(scaler) -> None:
    found = scaler.ask("-m", "querry=up", "-m", "target=x", "-m", "pollingInterval=0")
    assert found.returncode == 2
    for said in ("querry", "write query", "target", "pollingInterval"):
        assert said in found.stderr


def test_what_can_not_be_asked_is_said(scaler, tmp_path) -> None:
    nobody = gpuscale("scaler", "ask", "127.0.0.1:9", "-m", "query=up", "-m", "target=1")
    assert (nobody.returncode, "127.0.0.1:9" in nobody.stderr) == (1, True)
    found = scaler.ask("-m", "target")
    assert (found.returncode, "expected KEY=VALUE" in found.stderr) == (2, True)
    found = scaler.ask("-m", "target=1", "--cert-file", str(tmp_path / "c"))
    assert (found.returncode, "expected both" in found.stderr) == (2, True)
    found = scaler.ask("-m", "query=sum(nothing)", "-m", "target=1", "-o", "json")
    assert (found.returncode, '"value": null' in found.stdout) == (1, True)


def test_wrong_flags_are_named_together() -> None:
    found = gpuscale("scaler", "--port=0", "--tls-cert-file=c", "--source=nowhere")
    assert found.returncode == 2
    for said in ("--port: found 0", "--tls-cert-file: found it alone", "--source"):
        assert said in found.stderr


def test_it_ends_well_on_sigterm(scaler) -> None:
    other = Running("http://127.0.0.1:9")
    other.wait()
    code, said = other.end()
    assert (code, "Traceback" in said) == (0, False), said
