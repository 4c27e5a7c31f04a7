# mypy: disable-error-code="arg-type, assignment, attr-defined"
"""A real Prometheus behind TLS, a client certificate, a password and a path prefix; all of it renewed."""

import asyncio
import importlib.util
import os
import re
from pathlib import Path

import bcrypt
import pytest
from aiohttp.test_utils import unused_port

from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale.base.objects.selectors import Selector
from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import RenderInputs, render
from gpuscale.ops.install.values import Values
from gpuscale.series.values import Vector
from gpuscale.server.metricsapi.prometheus_tls import make_source
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.server.metricsapi.source_settings import SourceSettings
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.asking.single_flight import AnswerSharing, SharedSource
from gpuscale.server.sources.http import access

pytestmark = pytest.mark.prometheus


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES = _load("certificates_for_tests")
WEB_CONFIG = """
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: clients.crt
  client_auth_type: RequireAndVerifyClientCert
basic_auth_users: {{ali: "{password}"}}
"""
PREFIX = "/mon/prometheus"


class Prometheus:
    """The process and its files."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.port = unused_port()
        self.url = f"https://localhost:{self.port}{PREFIX}"
        self.server_ca = CERTIFICATES.Ca("servers")
        self.write("servers.crt", self.server_ca.pem)
        self.write_pair("server", self.server_ca.server("localhost"))
        self.renew_clients()
        self.set_password("sesame")
        self.write("prometheus.yml", "scrape_configs: []\n")
        self.process = None

    def write(self, name, text):
        """Replace a file at once, as a mounted Secret does."""
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.rename(self.folder / name)
        return self.folder / name

    def write_pair(self, name, pair) -> None:
        self.write(f"{name}.crt", pair[0])
        self.write(f"{name}.key", pair[1])

    def renew_clients(self) -> None:
        """Take only certificates of a new CA from now on; the files are read for each connection."""
        ca = CERTIFICATES.Ca("clients")
        self.write("clients.crt", ca.pem)
        self.write_pair("client", ca.client("gpuscale"))

    def set_password(self, password) -> None:
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        self.write("web.yml", WEB_CONFIG.format(password=hashed))
        self.write("password", f"{password}\n")

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--web.config.file={self.folder / 'web.yml'}",
            f"--web.external-url=http://elsewhere{PREFIX}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(60):
            while True:
                try:
                    async with make_source(self.settings()) as source:
                        await source.query("1", 0)
                        return
                except UnavailableError:
                    assert self.process.returncode is None
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        self.process.terminate()
        await self.process.wait()

    def settings(self, **options):
        found = {
            "url": self.url,
            "ca_file": self.folder / "servers.crt",
            "client_files": (self.folder / "client.crt", self.folder / "client.key"),
            "username": "ali",
            "password_file": self.folder / "password",
        }
        return SourceSettings(**{**found, **options})


@pytest.fixture
async def prometheus(tmp_path: Path):
    server = Prometheus(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_it_answers_whom_it_lets_in(prometheus, verb: str) -> None:
    async with make_source(prometheus.settings(verb=verb)) as source:
        value = await source.query('label_replace(vector(1), "pod", "a.b", "", "")', 1000)
        assert value.samples[0].labels == {"pod": "a.b"}
        assert await source.series("up", 0) == []


async def test_it_answers_below_its_prefix_with_or_without_a_slash(prometheus) -> None:
    async with make_source(prometheus.settings(url=f"{prometheus.url}/")) as source:
        assert isinstance(await source.query("vector(1)", 1000), Vector)
    bare = prometheus.url.removesuffix(PREFIX)
    async with make_source(prometheus.settings(url=bare)) as source:
        with pytest.raises(UpstreamError, match="unknown response code 404"):
            await source.query("1", 0)


async def test_a_wrong_password_and_none_are_refused(prometheus, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("open")
    for settings in ({"password_file": wrong}, {"username": None}):
        async with make_source(prometheus.settings(**settings)) as source:
            with pytest.raises(UpstreamError, match="unknown response code 401"):
                await source.query("1", 0)


async def test_without_a_client_certificate_there_is_no_answer(prometheus) -> None:
    async with make_source(prometheus.settings(client_files=None)) as source:
        with pytest.raises(UnavailableError):
            await source.query("1", 0)


async def test_renewed_certificates_and_passwords_are_used(
    prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0.0)
    async with make_source(prometheus.settings()) as source:
        await source.query("1", 0)
        prometheus.renew_clients()
        prometheus.set_password("renewed")
        await (
            source._http.close()
        )  # connections that are open go on with what they were opened with
        await source.query("1", 0)
        (prometheus.folder / "client.key").write_text("half")
        os.utime(prometheus.folder / "client.key")
        await source.query("1", 0)  # a pair that doesn't fit is not taken


FOLDER = "/etc/gpuscale/prometheus"
AUTH = {
    "basicAuth": {
        "username": "ali",
        "password": {"name": "prom", "key": "pass.word"},
    },
    "headers": {"X-Scope-OrgID": "team"},
    "tlsConfig": {
        "ca": {"configMap": {"name": "ca", "key": "bundle"}},
        "cert": {"secret": {"name": "client", "key": "tls.crt"}},
        "keySecret": {"name": "client", "key": "tls.key"},
    },
}


def project(volume, objects, folder) -> None:
    """Write a projected volume as the kubelet does: a new directory, which a link then leads to.

    Source: kubernetes pkg/volume/util/atomic_writer.go.
    """
    made = folder / f"..{os.urandom(4).hex()}"
    made.mkdir(parents=True)
    for source in volume["projected"]["sources"]:
        ((kind, given),) = source.items()
        for item in given["items"]:
            (made / item["path"]).write_text(objects[kind, given["name"]][item["key"]])
            if not (folder / item["path"]).is_symlink():
                (folder / item["path"]).symlink_to(Path("..data") / item["path"])
    (folder / "..data_tmp").symlink_to(made.name)
    (folder / "..data_tmp").rename(folder / "..data")


def secrets(prometheus):
    def read(name):
        return (prometheus.folder / name).read_text()

    return {
        ("secret", "prom"): {"pass.word": read("password")},
        ("configMap", "ca"): {"bundle": read("servers.crt")},
        ("secret", "client"): {"tls.crt": read("client.crt"), "tls.key": read("client.key")},
    }


async def test_the_pods_of_an_installation_get_in_and_stay_in(
    prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments and the volume are those of the rendered Deployment, the files those of its Secrets."""
    monkeypatch.setattr(access, "LOOK_S", 0.0)
    spec = {"prometheus": {"kind": "plain", "url": prometheus.url, "auth": AUTH}}
    values = Values.model_validate({"spec": spec})
    (api,) = [
        each
        for each in render(values, RenderInputs(make_certificate(values, 1_700_000_000_000)))
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "gpuscale-metrics-api"
    ]
    pod = api["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "prometheus-auth"]
    (mount,) = [
        each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "prometheus-auth"
    ]
    assert mount["mountPath"] == FOLDER
    folder = tmp_path / "mounted"
    project(volume, secrets(prometheus), folder)
    given: dict[str, list[str]] = {}
    for argument in pod["containers"][0]["args"]:
        if argument.startswith("--prometheus"):
            name, _, value = argument.removeprefix("--").partition("=")
            given.setdefault(name, []).append(value.replace(FOLDER, str(folder)))
    settings = read_settings({**given, "preset": ["on"]}).source
    async with make_source(settings) as source:
        assert isinstance(await source.query("vector(1)", 1000), Vector)
        prometheus.renew_clients()
        prometheus.set_password("renewed")
        await source._http.close()
        project(volume, secrets(prometheus), folder)
        assert isinstance(await source.query("vector(1)", 1000), Vector)


async def test_a_question_for_many_pods_is_asked_in_parts_and_gives_the_same(prometheus) -> None:
    names = [f"worker-{number:04d}.example" for number in range(800)]
    async with make_source(prometheus.settings(verb="GET")) as source:
        asked = []

        class Watched:
            """Notes what is asked."""

            async def query(self, promql, at_ms):
                asked.append(promql)
                assert source.takes(promql)
                return await source.query(promql, at_ms)

        plan = _plan(names)
        questions = SharedSource(Watched(), AnswerSharing(fits=source.takes))
        value = await questions.custom(plan, 1000)
        assert value == Vector(())
        found = [re.sub(r"[\[\]]", "", name) for text in asked for name in _names(text)]
        assert found == names
        assert len(asked) > 1


def _plan(names):
    config = load_rules(
        "rules: [{seriesQuery: m, resources: {template: <<.Resource>>}, "
        "metricsQuery: 'sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]",
        "<test>",
    )
    catalogue = Catalogue.build(config, {"m": [{"__name__": "m", "namespace": "n", "pod": "p"}]})
    return plan_custom(catalogue, KUBERNETES, "pods", "n", names, "m", Selector())


def _names(promql):
    return re.search(r'pod=~?"([^"]*)"', promql)[1].split("|")
