# mypy: disable-error-code="arg-type"
"""A Prometheus behind TLS: trust, client certificates and tokens, from flags and from kubeconfigs."""

import importlib.util
import json
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Scalar
from gpuscale.server.metricsapi.prometheus_tls import make_source
from gpuscale.server.metricsapi.source_settings import SourceSettings


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES = _load("certificates_for_tests")


class Prometheus:
    """Wants a client certificate, and notes what it is sent."""

    def __init__(self, folder) -> None:
        self.folder, self.seen, self.url = folder, [], ""
        self.ca = CERTIFICATES.Ca("prometheus")
        self.write("ca.crt", self.ca.pem)
        for name, pair in (
            ("server", self.ca.server("localhost")),
            ("client", self.ca.client("c")),
        ):
            self.write(f"{name}.crt", pair[0])
            self.write(f"{name}.key", pair[1])

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    async def start(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        app = web.Application(middlewares=[self._note])
        add_routes(app, SeriesStore(), WallClock())
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "localhost", 0, ssl_context=context).start()
        self.url = f"https://localhost:{self.runner.addresses[0][1]}"

    @web.middleware
    async def _note(self, request, handler):
        self.seen.append((request.headers.get("Authorization"), request.headers.getall("X", [])))
        return await handler(request)

    def kubeconfig(self, **user):
        cluster = {"server": "https://unused", "certificate-authority": "ca.crt"}
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        return self.write("kubeconfig", json.dumps(config))


PAIR = {"client-certificate": "client.crt", "client-key": "client.key"}


@pytest.fixture
async def prometheus(tmp_path: Path):
    server = Prometheus(tmp_path)
    await server.start()
    yield server
    await server.runner.cleanup()


async def ask(**settings):
    async with make_source(SourceSettings(**settings)) as source:
        return await source.query("1.5", 1_000)


async def test_files_of_flags_are_used(prometheus) -> None:
    folder = prometheus.folder
    found = await ask(
        url=prometheus.url,
        ca_file=folder / "ca.crt",
        client_files=(folder / "client.crt", folder / "client.key"),
        token_file=prometheus.write("token", "secret\n"),
        headers=(("X", "a"), ("X", "b")),
    )
    assert found == Scalar(1.5)
    assert prometheus.seen == [("Bearer secret", ["a", "b"])]


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_kubeconfigs_user_is_used(prometheus, verb: str) -> None:
    path = prometheus.kubeconfig(**PAIR, token="inline")
    assert await ask(url=prometheus.url, kubeconfig=path, verb=verb) == Scalar(1.5)
    prometheus.write("token", "from a file")
    path = prometheus.kubeconfig(**PAIR, tokenFile="token", token="inline")
    await ask(url=prometheus.url, kubeconfig=path, verb=verb)
    assert [token for token, _ in prometheus.seen] == ["Bearer inline", "Bearer from a file"]


async def test_an_unknown_ca_is_not_trusted(prometheus) -> None:
    other = prometheus.write("other.crt", CERTIFICATES.Ca("other").pem)
    with pytest.raises(
        UnavailableError, match="its certificate is not trusted: self-signed certificate"
    ):
        await ask(url=prometheus.url, ca_file=other)


async def test_what_cant_be_used_is_reported(prometheus) -> None:
    nothing = prometheus.folder / "nothing"
    with pytest.raises(UsageError, match=f"{nothing}: can't be used to reach Prometheus: "):
        make_source(SourceSettings("https://p", ca_file=nothing))
    program = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "x"}
    path = prometheus.kubeconfig(exec=program)
    with pytest.raises(UsageError, match="credentials from a program are not supported here"):
        make_source(SourceSettings("https://p", kubeconfig=path))
    with pytest.raises(UsageError, match="no usable kubeconfig"):
        make_source(SourceSettings("https://p", kubeconfig=nothing))
    with pytest.raises(UsageError, match="no service account in /var/run/secrets"):
        make_source(SourceSettings("https://p", in_cluster=True))
    with pytest.raises(UsageError, match="--prometheus-url: found 'p', expected an http"):
        make_source(SourceSettings("p"))
