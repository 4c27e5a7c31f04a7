"""A whole scaler on loopback: answers before anything else works, its HTTP paths, and how it drains."""

import asyncio
import re
from contextlib import asynccontextmanager, suppress

import aiohttp
import grpc
import pytest
from aiohttp.test_utils import unused_port

from answering import SetAnswers, held, measured, read_plainly
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.server.scaler.process import ScalerServer
from gpuscale.server.scaler.settings import read_settings
from scaler_client import Client, own_channel, ref

Code = grpc.StatusCode


class Watch(SetAnswers):
    """Answers that a test sets, as what evaluates triggers."""

    async def run(self):
        await asyncio.Event().wait()

    def families(self):
        return ()

    def checks(self):
        return []


class Running:
    def __init__(self, **flags):
        self.port, self.metrics_port = unused_port(), unused_port()
        given = {
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            "metrics-port": str(self.metrics_port),
            "prometheus-url": "http://127.0.0.1:9",
            "shutdown-delay-duration": "0s",
            **{name.replace("_", "-"): value for name, value in flags.items()},
        }
        self.watch = Watch()
        self.may_open = True
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        settings = read_settings({name: [value] for name, value in given.items()})
        self.server = ScalerServer(settings, read_plainly, self._make_watch)
        self.announced = []

    def _make_watch(self, backend, stack, *, is_clustered):
        if not self.may_open:
            raise UnavailableError("the API server is away")
        return self.watch

    async def get(self, path):
        url = f"http://127.0.0.1:{self.metrics_port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    def channel(self):
        return own_channel(self.port)


@asynccontextmanager
async def running(may_open=True, **flags):
    found = Running(**flags)
    found.may_open = may_open
    serving = asyncio.ensure_future(
        found.server.run(found.stop, found.announced.append, found.hurry)
    )
    try:
        async with asyncio.timeout(20):
            for _ in range(1_000):
                is_open = found.server._answers.opened.is_set() or not may_open
                if serving.done() or (len(found.announced) == 2 and is_open):
                    break
                await asyncio.sleep(0.02)
        yield found
    finally:
        found.stop.set()
        found.hurry.set()
        await serving


async def test_the_spec_is_answered_while_nothing_else_works() -> None:
    async with running(may_open=False) as scaler, scaler.channel() as channel:
        keda = Client(channel)
        assert (await keda.get_spec(ref())).metricSpecs
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await keda.metrics(ref())
        assert caught.value.code() is Code.UNAVAILABLE
        assert caught.value.details() == "the API server is away"
        status, text = await scaler.get("/readyz?verbose")
        assert (status, "values ok: the API server is away" in text) == (200, True)
        stream = keda.activity(ref())
        scaler.may_open = True
        scaler.watch.set("queue", measured(2.0))
        assert (await stream.read()).result is True
        assert (await keda.metrics(ref())).metricValues[0].metricValueFloat == 2.0


async def test_health_and_metrics_over_http() -> None:
    async with running() as scaler, scaler.channel() as channel:
        keda = Client(channel)
        scaler.watch.set("queue", held(3.0, 17.0))
        await keda.metrics(ref())
        stream = keda.activity(ref())
        await stream.read()
        for path in ("/healthz", "/livez", "/readyz"):
            assert await scaler.get(path) == (200, "ok")
        status, text = await scaler.get("/readyz?verbose")
        assert status == 200
        assert "[+]shutdown ok" in text
        status, text = await scaler.get("/metrics")
        assert status == 200
        labels = 'namespace="ml",scaledobject="so",metric="queue",basis="held"'
        assert f"gpuscale_scaler_held_seconds{{{labels}}} 17" in text
        assert 'gpuscale_scaler_calls_total{method="GetMetrics",code="OK"} 1' in text
        assert 'gpuscale_scaler_streams{method="StreamIsActive"} 1' in text
        assert 'gpuscale_scaler_pushes_total{active="true"} 1' in text
        assert re.search(r"^gpuscale_scaler_call_duration_seconds_bucket", text, re.MULTILINE)
        assert "gpuscale_metrics_api_config_last_reload_successful 1" in text
        assert (await scaler.get("/nothing"))[0] == 404


async def test_it_drains_first_and_then_ends_streams_well() -> None:
    async with running(shutdown_delay_duration="60s") as scaler, scaler.channel() as channel:
        keda = Client(channel)
        scaler.watch.set("queue", measured(0.0))
        stream = keda.activity(ref())
        await stream.read()
        scaler.stop.set()
        await asyncio.sleep(0.1)
        status, text = await scaler.get("/readyz?verbose")
        assert (status, "[-]shutdown failed" in text) == (503, True)
        assert (await scaler.get("/livez"))[0] == 200
        assert (await keda.is_active(ref())).result is False
        scaler.watch.set("queue", measured(1.0))
        assert (await stream.read()).result is True
        scaler.hurry.set()
        while (message := await stream.read()) is not grpc.aio.EOF:
            assert message.result is True
        assert await stream.code() is Code.OK


async def test_a_taken_port_is_said() -> None:
    async with running() as scaler:
        with pytest.raises(UnavailableError, match=f"can't listen on 127.0.0.1:{scaler.port}"):
            async with running(port=str(scaler.port)):
                pass
        with suppress(UnavailableError):
            async with running(metrics_port=str(scaler.metrics_port)) as other:
                raise AssertionError(other.announced)


async def test_wrong_files_end_it_at_once(tmp_path) -> None:
    with pytest.raises(UsageError, match="--tls-cert-file"):
        async with running(
            tls_cert_file=str(tmp_path / "no"), tls_private_key_file=str(tmp_path / "no")
        ):
            pass
