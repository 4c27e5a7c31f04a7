# mypy: disable-error-code="operator, type-var"
"""`gpuscale exporter` as a process of its own: start, scrape, follow, reload, stop."""

import asyncio
import gzip
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gpuscale.agent.exporter.readers import SEED
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import SimulatedReader
from gpuscale.base.exposition.parse import parse_text
from gpuscale.testing.podresources import PodResources
from node_server import NodeServer
from stream_picture import StreamPicture

GPUSCALE = Path(sys.executable).parent / "gpuscale"
SIMULATED = ("--gpu", "simulated:NVIDIA H200:8")
UTIL = "DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Running:
    """One exporter process and its address."""

    def __init__(self, process, port) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path="/metrics", **headers):
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path, headers=headers) as answer,
        ):
            return answer.status, answer.headers, await answer.text()

    async def until(self, path, wanted, limit_s=30):
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    _, _, body = await self.get(path)
                except aiohttp.ClientError:
                    body = ""
                if wanted(body):
                    return body
                await asyncio.sleep(0.05)

    async def stop(self):
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return (await self.process.communicate())[1].decode()


@asynccontextmanager
async def exporter(*arguments, env=None):
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        GPUSCALE,
        "exporter",
        "--address",
        f"127.0.0.1:{port}",
        *arguments,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    running = Running(process, port)
    try:
        yield running
    finally:
        await running.stop()


async def test_gets_ready_and_stops_on_sigterm() -> None:
    async with exporter(*SIMULATED) as it:
        await it.until("/readyz", lambda body: body == "ok")
        told = parse_text((await it.get())[2])
        log = await it.stop()
    assert it.process.returncode == 0
    (util,) = [family for family in told if family.name == "DCGM_FI_DEV_GPU_UTIL"]
    assert len(util.samples) == 8
    assert "Traceback" not in log


def mapped_files(pid):
    return Path(f"/proc/{pid}/maps").read_text()


async def loaded_by(*arguments):
    """Return the modules that a running agent has imported, and the files that are mapped into it."""
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    async with exporter(*SIMULATED, *arguments, env=env) as it:
        await it.until("/readyz", lambda body: body == "ok")
        mapped = mapped_files(it.process.pid)
        log = await it.stop()
    return {line.rpartition("|")[2].strip() for line in log.splitlines() if "|" in line}, mapped


async def test_agent_loads_no_tls_that_nobody_asked_for_and_no_other_commands(
    tmp_path: Path,
) -> None:
    imported, mapped = await loaded_by()
    assert "gpuscale.agent.exporter.process" in imported
    assert not imported & {"_ssl", "typer", "pydantic", "yaml", "zipfile"}
    assert "libcrypto" not in mapped
    (tmp_path / "web.yml").write_text("{}\n")
    imported, _ = await loaded_by("--web-config-file", str(tmp_path / "web.yml"))
    assert "_ssl" in imported
    assert not imported & {"typer", "pydantic"}


HUNG = """
import time
from gpuscale.agent.gpu import simulated as pattern
from gpuscale.cli.main import main

def hang(*_):
    time.sleep(3600)

pattern.wave = hang
main()
"""


async def test_hung_driver_does_not_keep_the_process_from_ending() -> None:
    port = free_port()
    arguments = ("exporter", "--address", f"127.0.0.1:{port}", "--gpu", "simulated")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HUNG, *arguments, stderr=asyncio.subprocess.PIPE
    )
    it = Running(process, port)
    assert await it.until("/health", lambda body: body == "OK") == "OK"
    assert (await it.get("/readyz"))[0] == 503
    async with asyncio.timeout(8):
        await it.stop()
    assert process.returncode == 0


async def test_variables_set_what_flags_leave_out(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text(UTIL)
    env = {
        "PATH": "/usr/bin:/bin",
        "DCGM_EXPORTER_COLLECTORS": str(tmp_path / "my.csv"),
        "DCGM_EXPORTER_USE_OLD_NAMESPACE": "true",
        "GPUSCALE_EXPORTER_GPU": "simulated:Tesla T4",
    }
    async with exporter("-n", env=env) as it:
        body = await it.until("/metrics", lambda body: "DCGM_FI" in body)
    (line,) = [line for line in body.splitlines() if line.startswith("DCGM_FI")]
    assert line.startswith('DCGM_FI_DEV_GPU_UTIL{gpu="0",uuid="GPU-')
    assert "Hostname" not in line


LISTS = "/etc/dcgm-exporter"


@pytest.mark.skipif(Path(LISTS).exists(), reason=f"{LISTS} is there, so its files are read")
@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("default-counters.csv", "DCGM_FI_DEV_GPU_UTIL"),
        ("dcp-metrics-included.csv", "DCGM_FI_DEV_GPU_UTIL"),
        ("1.x-compatibility-metrics.csv", "dcgm_gpu_utilization"),
    ],
)
@pytest.mark.parametrize("way", ["flag", "variable", "configuration file"])
async def test_a_list_of_dcgm_exporters_image_needs_no_file(
    tmp_path: Path, name: str, served: str, way: str
) -> None:
    path = f"{LISTS}/{name}"
    config = tmp_path / "config.yaml"
    config.write_text(f"version: 1\nmetrics: {{file: {path}}}\n")
    arguments = {
        "flag": ("-f", path),
        "variable": (),
        "configuration file": ("--config-file", str(config)),
    }[way]
    env = {**os.environ, "DCGM_EXPORTER_COLLECTORS": path} if way == "variable" else None
    async with exporter(*SIMULATED, *arguments, env=env) as it:
        await it.until("/readyz", lambda body: body == "ok")
        names = {family.name for family in parse_text((await it.get())[2])}
        log = await it.stop()
    assert served in names
    assert f"there is no file {path}: serving the built-in list of that name" in log


async def test_changed_counters_file_is_taken_over_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(UTIL)
    async with exporter(*SIMULATED, "-f", str(path), "-c", "100ms") as it:
        await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_UTIL{" in body)
        path.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Warm.\n")
        body = await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_TEMP{" in body)
        assert "GPU_UTIL" not in body
        path.write_text("NOPE, gauge, x\n")
        it.process.send_signal(signal.SIGHUP)
        body = await it.until("/metrics", lambda body: "reload_successful 0" in body)
        assert "DCGM_FI_DEV_GPU_TEMP{" in body
        verbose = (await it.get("/readyz?verbose"))[2]
        assert f"[-]config failed: {path}:1: field: found 'NOPE'" in verbose
        path.write_text(UTIL)
        it.process.send_signal(signal.SIGHUP)
        await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_UTIL{" in body)
        log = await it.stop()
    assert "the counters stay as they were" in log


async def test_stream_follows_the_scrape_ten_times_a_second() -> None:
    async with exporter(*SIMULATED, "-c", "60s", "--stream-interval", "100ms") as it:
        await it.until("/readyz", lambda body: body == "ok")
        decoder, times = StreamPicture(), []
        async with (
            aiohttp.ClientSession(read_bufsize=1 << 20) as session,
            session.get(it.url + "/stream") as answer,
            asyncio.timeout(5),
        ):
            assert answer.headers["Content-Type"] == "application/x-ndjson"
            while len(times) < 10:
                decoder.feed(await answer.content.readline())
                times.append(decoder.measured_ms)
        # Nine steps of 100 ms, and some room for a busy machine.
        assert 700 <= times[-1] - times[1] <= 2500
        assert sorted(times) == times
        _, _, text = await it.get()
    scraped = {
        (family.name, sample.labels)
        for family in parse_text(text)
        if not family.name.startswith("gpuscale_exporter")
        for sample in family.samples
    }
    assert {(key.name, key.labels) for key in decoder.values} == scraped


async def follow(answer, decoder) -> None:
    async for line in answer.content:
        decoder.feed(line)


async def test_subscriber_that_does_not_read_is_let_go_and_others_go_on() -> None:
    settings = ("--gpu", "simulated:NVIDIA H200:256", "--stream-interval", "100ms")
    async with exporter(*settings) as it:
        await it.until("/readyz", lambda body: body == "ok")
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", it.port))
        deaf.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        decoder = StreamPicture()
        async with (
            aiohttp.ClientSession(read_bufsize=1 << 22) as session,
            session.get(it.url + "/stream") as answer,
        ):
            following = asyncio.create_task(follow(answer, decoder))
            wanted = 'stream_dropped_subscribers_total{reason="too_slow"} 1'
            await it.until("/metrics", lambda body: wanted in body, limit_s=60)
            before = decoder.measured_ms
            async with asyncio.timeout(30):
                while decoder.measured_ms <= before:  # noqa: ASYNC110 - another process goes on
                    await asyncio.sleep(0.05)
            await it.stop()
            await following
        deaf.close()
    assert decoder.ended == "stopping"


async def test_openmetrics_is_served_to_whom_prefers_it() -> None:
    async with exporter(*SIMULATED) as it:
        await it.until("/readyz", lambda body: body == "ok")
        _, headers, body = await it.get(Accept="application/openmetrics-text;version=1.0.0")
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith("# EOF\n")
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown\n" in body
    assert "# TYPE gpuscale_exporter_collects counter\n" in body


@pytest.mark.prometheus
@pytest.mark.parametrize("protocol", ["OpenMetricsText1.0.0", "PrometheusText0.0.4"])
async def test_prometheus_stores_the_same_names_from_both_formats(
    tmp_path: Path, protocol: str
) -> None:
    config = tmp_path / "prometheus.yml"
    async with exporter(*SIMULATED, "--names", "both", "--style", "both") as it:
        await it.until("/readyz", lambda body: body == "ok")
        names = {family.name for family in parse_text((await it.get())[2])}
        config.write_text(
            "scrape_configs:\n"
            "  - job_name: gpu\n    scrape_interval: 200ms\n    scrape_timeout: 200ms\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{it.port}']}}]\n"
            + (f"    scrape_protocols: [{protocol}]\n" if _takes_protocols() else "")
        )
        port = free_port()
        prometheus = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            stored = await _names(port, names)
        finally:
            prometheus.terminate()
            await prometheus.wait()
    assert names <= stored


def _takes_protocols():
    told = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    major, minor = (told.stdout + told.stderr).split("version ")[1].split(".")[:2]
    return (int(major), int(minor)) >= (2, 49)


async def _names(port, wanted):
    """Return the names that Prometheus has, once they are all there or time is up."""
    url = f"http://127.0.0.1:{port}/api/v1/label/__name__/values"
    found = set()
    deadline = time.monotonic() + 60
    async with aiohttp.ClientSession() as session:
        while not wanted <= found and time.monotonic() < deadline:
            try:
                async with session.get(url) as answer:
                    found = set((await answer.json())["data"])
            except (aiohttp.ClientError, KeyError):
                pass
            await asyncio.sleep(0.2)
    return found


@pytest.fixture
def certificate(tmp_path: Path):
    def make(name) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs the program openssl; install Debian's package openssl")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={name}"),
                *("-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt"),
            ],
            check=True,
            capture_output=True,
        )

    make("first")
    return make


def shown_certificate(port):
    return ssl.get_server_certificate(("127.0.0.1", port))


async def shown_other_than(first, port):
    """Return whether another certificate is shown within a few seconds."""
    for _ in range(600):
        if await asyncio.to_thread(shown_certificate, port) != first:
            return True
        await asyncio.sleep(0.1)
    return False


async def test_renewed_certificate_is_shown_without_a_restart(tmp_path: Path, certificate) -> None:
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    async with exporter(*SIMULATED, "--web-config-file", str(web)) as it:
        async with asyncio.timeout(5):
            while True:
                try:
                    first = await asyncio.to_thread(shown_certificate, it.port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await it.get()
        assert first == (tmp_path / "tls.crt").read_text()
        certificate("second")
        assert await shown_other_than(first, it.port)
        trusting = ssl.create_default_context(cafile=tmp_path / "tls.crt")
        trusting.check_hostname = False
        url = f"https://127.0.0.1:{it.port}/metrics"
        body = await asyncio.to_thread(
            lambda: urllib.request.urlopen(url, context=trusting, timeout=5).read()
        )
        assert b"DCGM_FI_DEV_GPU_UTIL{" in body


def failing(*arguments):
    result = subprocess.run(
        [GPUSCALE, "exporter", "--address", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return result.returncode, result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(
            ["-c", "soon"],
            2,
            "gpuscale: --collect-interval: found 'soon', expected milliseconds or a duration such as "
            "1s or 500ms",
            id="wrong value",
        ),
        pytest.param(
            [*SIMULATED, "-f", "/no/such.csv"],
            1,
            "gpuscale: can't read /no/such.csv: No such file or directory",
            id="no counters file",
        ),
        pytest.param(
            [*SIMULATED, "-d", "g:9"],
            1,
            "gpuscale: couldn't find requested GPU ID '9'; this node has: 0, 1, 2, 3, 4, 5, 6, 7",
            id="no such GPU",
        ),
    ],
)
def test_what_can_not_be_done_ends_with_one_clear_line(arguments, code: int, message: str) -> None:
    assert failing(*arguments) == (code, message)


def test_without_a_gpu_the_error_says_what_to_do() -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has NVIDIA's driver; the test is about machines without it")
    code, message = failing()
    assert code == 1
    assert message.endswith(
        "; to try without a GPU, use --gpu simulated; for AMD GPUs, --gpu amd; "
        "to play a recording, --gpu replay:FILE"
    )


async def test_recording_plays_again(tmp_path: Path) -> None:
    recording = tmp_path / "gpus.gz"
    async with exporter(*SIMULATED, "-c", "100ms", "--record", str(recording)) as it:
        await it.until("/metrics", lambda body: "collects_total 5" in body)
    async with exporter("--gpu", f"replay:{recording}", "-c", "100ms") as it:
        body = await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_UTIL{" in body)
    assert body.count("DCGM_FI_DEV_GPU_UTIL{") == 8


async def test_recording_goes_on_over_a_reload_that_needs_other_fields(tmp_path: Path) -> None:
    path, recording = tmp_path / "my.csv", tmp_path / "gpus.gz"
    path.write_text(UTIL)
    arguments = (*SIMULATED, "-c", "100ms", "-f", str(path), "--record", str(recording))
    async with exporter(*arguments) as it:
        await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_UTIL{" in body)
        path.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Warm.\n")
        it.process.send_signal(signal.SIGHUP)
        await it.until("/metrics", lambda body: "DCGM_FI_DEV_GPU_TEMP{" in body)
        log = await it.stop()
    assert "recording" not in log
    assert b"DCGM_FI_DEV_GPU_TEMP" in gzip.decompress(recording.read_bytes())


async def test_log_can_be_json_and_explains_flags_without_a_meaning() -> None:
    async with exporter(*SIMULATED, "--log-format", "json", "-r", "localhost:5555") as it:
        await it.until("/readyz", lambda body: body == "ok")
        log = await it.stop()
    messages = [json.loads(line)["msg"] for line in log.splitlines()]
    assert (
        "--remote-hostengine-info changes nothing: a host engine is asked with --gpu nvml"
        in messages
    )


async def test_the_first_values_have_their_pods_already(tmp_path: Path) -> None:
    (simulated,) = SimulatedReader("n1", MODELS["NVIDIA H200"], 1, SEED, lambda *_: ()).gpus()
    gpu = simulated.uuid
    socket_path = tmp_path / "k.sock"
    arguments = ("--gpu", "simulated:NVIDIA H200:1", "--collect-interval", "60s", "--kubernetes")
    with PodResources(socket_path, [gpu]) as kubelet:
        kubelet.allocate("ml", "bert-0", gpu)
        more = ("--pod-resources-kubelet-socket", str(socket_path))
        async with exporter(*arguments, *more, env={**os.environ, "NODE_NAME": "n1"}) as running:
            # The next collect is a minute away: it is the first one that is looked at.
            body = await running.until("/metrics", lambda text: "DCGM_FI_DEV_GPU_UTIL{" in text)
    assert 'container="main",namespace="ml",pod="bert-0"} ' in body
    assert "gpuscale_exporter_attribution_up 1\n" in body


async def test_without_a_kubelet_it_serves_gpus_and_says_that_their_pods_are_not_known(
    tmp_path: Path,
) -> None:
    arguments = ("--gpu", "simulated:NVIDIA H200:1", "--collect-interval", "60s", "--kubernetes")
    more = ("--pod-resources-kubelet-socket", str(tmp_path / "none.sock"))
    async with exporter(*arguments, *more) as running:
        body = await running.until("/metrics", lambda text: "DCGM_FI_DEV_GPU_UTIL{" in text)
    assert "gpuscale_exporter_attribution_up 0\n" in body


async def test_the_taint_of_the_node_goes_when_a_plugin_has_registered_the_gpus_that_answer(
    tmp_path: Path,
) -> None:
    key = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"
    server = NodeServer()
    server.taints = [{"key": key, "value": "true", "effect": "NoSchedule"}]
    await server.start()
    arguments = ("--ready-taint", key, "--kubeconfig", str(server.kubeconfig(tmp_path)))
    environment = {**os.environ, "NODE_NAME": "n1", "PYTHONPROFILEIMPORTTIME": "1"}
    try:
        async with exporter(*SIMULATED, "-c", "100ms", *arguments, env=environment) as running:
            there = "gpuscale_exporter_ready_taint_present"
            await running.until("/metrics", lambda text: f"{there} 1\n" in text)
            page = await running.until("/readyz?verbose", lambda text: "ready-taint" in text)
            assert "[-]ready-taint failed: the device plugin has registered no GPU" in page
            assert server.taints
            server.allocatable["nvidia.com/gpu"] = "8"
            await running.until("/metrics", lambda text: f"{there} 0\n" in text)
            page = await running.until("/readyz?verbose", lambda text: "passed" in text)
            assert "ready-taint" not in page
            log = await running.stop()
    finally:
        await server.stop()
    assert server.taints == []
    assert f"took the taint {key} off node n1" in log
    # What changes nodes is the light client: the usual one takes 12 MiB for good.
    assert not {"httpx2", "lightkube"} & {
        line.rpartition("|")[2].strip() for line in log.splitlines() if "|" in line
    }
