# mypy: disable-error-code="arg-type"
"""A receiver on loopback that decodes what it gets with the protobuf library, and misbehaves on demand."""

import asyncio
import importlib.util
import sys
from collections import defaultdict

import cramjam
import pytest
import pytest_asyncio
from aiohttp import web
from grpc_tools import protoc

PROTO = """
syntax = "proto3";
package prometheus_test;
message WriteRequest { repeated TimeSeries timeseries = 1; reserved 2; }
message TimeSeries { repeated Label labels = 1; repeated Sample samples = 2; }
message Label { string name = 1; string value = 2; }
message Sample { double value = 1; int64 timestamp = 2; }
"""
"""The fields of prometheus prompb/remote.proto and types.proto that are written."""


@pytest.fixture(scope="session")
def write_request(tmp_path_factory: pytest.TempPathFactory):
    """The class of the message, made by the protobuf compiler."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "remote_for_tests.proto").write_text(PROTO)
    arguments = ("protoc", f"--proto_path={folder}", f"--python_out={folder}")
    assert protoc.main((*arguments, "remote_for_tests.proto")) == 0
    path = folder / "remote_for_tests_pb2.py"
    spec = importlib.util.spec_from_file_location("remote_for_tests_pb2", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WriteRequest


class Receiver:
    """Keeps samples in the order of their arrival, by label set."""

    def __init__(self, message) -> None:
        self.url = ""
        self.requests = []
        self.counts = []
        """Samples of each request."""
        self.samples = defaultdict(list)
        self.answers = []
        """Statuses, headers and texts of the next answers; 204 when there are none left."""
        self.at_once = self.most_at_once = 0
        self.delay_s = 0.0
        self.hold = None
        self._message = message

    async def write(self, request):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            body = await request.read()
            await asyncio.sleep(self.delay_s)
            if self.hold is not None:
                await self.hold.wait()
            self.requests.append(request)
            if self.answers:
                status, headers, text = self.answers.pop(0)
                if status // 100 != 2:
                    return web.Response(status=status, headers=headers, text=text)
            self._keep(body)
            return web.Response(status=204)
        finally:
            self.at_once -= 1

    def _keep(self, body) -> None:
        found = self._message.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        self.counts.append(sum(len(series.samples) for series in found.timeseries))
        for series in found.timeseries:
            names = [label.name for label in series.labels]
            assert names == sorted(set(names))
            labels = tuple((label.name, label.value) for label in series.labels)
            for sample in series.samples:
                self.samples[labels].append((sample.timestamp, sample.value))


@pytest_asyncio.fixture
async def receiver(write_request):
    found = Receiver(write_request)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/api/v1/write", found.write)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/write"
    yield found
    if found.hold is not None:
        found.hold.set()
    await runner.cleanup()
