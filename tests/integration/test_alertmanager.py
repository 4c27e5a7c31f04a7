# mypy: disable-error-code="misc"
"""Alerts arrive at a real Alertmanager and end there; others are away, refuse, or want a password."""

import asyncio
import base64
import json
import ssl
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from background import until
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UsageError
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.ruler import alertmanager
from gpuscale.server.sources.ruler.alertmanager import AlertmanagerSender
from gpuscale.server.sources.ruler.ruler import Ruler
from gpuscale.server.sources.ruler.settings import AlertmanagerSettings, alerts_url
from gpuscale_testing.certificates import Authority

RULES = """\
groups:
- name: g
  rules:
  - alert: GpuHot
    expr: temperature > 90
    labels: {severity: page}
    annotations: {summary: "GPU {{ $labels.gpu }} has {{ $value }} °C"}
"""


class Sending:
    """Rules over a store, evaluated by hand, and what sends their alerts."""

    def __init__(self, sender) -> None:
        self.sender = sender
        self.store = SeriesStore()
        # An end in an Alertmanager's future would not be one yet.
        self.now_ms = round(time.time() * 1000) - 20_000
        self.ruler = Ruler(
            load_rule_groups(RULES, "rules.yaml"),
            self.store,
            QueryPool(),
            ManualClock(self.now_ms),
            notify=sender.notify,
        )

    async def measure(self, value, seconds=0, gpus=1) -> None:
        self.now_ms += seconds * 1000
        for gpu in range(gpus):
            labels = {"__name__": "temperature", "gpu": str(gpu)}
            self.store.append(labels, self.now_ms, value)
        await self.ruler.evaluate(self.now_ms)


@pytest.fixture
async def sending():
    tasks = []

    def start(*urls, external_url="", **settings):
        sender = AlertmanagerSender(AlertmanagerSettings(tuple(urls), **settings), external_url)
        tasks.append(asyncio.create_task(sender.run()))
        return Sending(sender)

    yield start
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@contextmanager
def alertmanager_at(tmp_path, scheme="http", *arguments):
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    port = unused_port()
    process = subprocess.Popen(
        [
            "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            *arguments,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"{scheme}://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def real(tmp_path: Path):
    with alertmanager_at(tmp_path) as url:
        yield url


@pytest.fixture
def authority(tmp_path: Path):
    (tmp_path / "certificates").mkdir()
    return Authority(tmp_path / "certificates", "alerts")


@pytest.fixture
def real_tls(tmp_path: Path, authority):
    """An Alertmanager that asks for a client certificate of the authority."""
    pair = authority.server("alertmanager", ["127.0.0.1"])
    config = {
        "tls_server_config": {
            "cert_file": str(pair.certificate),
            "key_file": str(pair.key),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(authority.certificate),
        }
    }
    (tmp_path / "web.yml").write_text(json.dumps(config))
    with alertmanager_at(tmp_path, "https", f"--web.config.file={tmp_path / 'web.yml'}") as url:
        yield url


def alerts_at(url, context=None):
    try:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", context=context) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.mark.alertmanager
async def test_an_alertmanager_gets_alerts_and_their_end(real, sending) -> None:
    await until(lambda: alerts_at(real) == [])
    loop = sending(real, external_url="http://metrics.example/prometheus/")
    await loop.measure(95)
    await until(lambda: alerts_at(real))
    (alert,) = alerts_at(real)
    assert alert["labels"] == {"alertname": "GpuHot", "gpu": "0", "severity": "page"}
    assert alert["annotations"] == {"summary": "GPU 0 has 95 °C"}
    assert alert["generatorURL"] == (
        "http://metrics.example/prometheus/graph?g0.expr=temperature+%3E+90&g0.tab=1"
    )
    assert alert["status"]["state"] == "active"
    await loop.measure(60, seconds=15)
    await until(lambda: alerts_at(real) == [])
    assert loop.sender.sent == {f"{real}/api/v2/alerts": 2}
    assert (loop.sender.errors, loop.sender.dropped, loop.sender.remark()) == ({}, 0, "")


@pytest.mark.alertmanager
async def test_an_alertmanager_behind_tls_is_trusted_by_its_authority_only(
    real_tls, authority, tmp_path: Path, sending
) -> None:
    pair = authority.client("gpuscale")
    files = (pair.certificate, pair.key)
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(*files)
    await until(lambda: alerts_at(real_tls, context) == [])
    (tmp_path / "others").mkdir()
    other = Authority(tmp_path / "others", "someone")
    for wrong in (
        {"client_files": files},
        {"client_files": files, "ca_file": other.certificate},
        {"ca_file": authority.certificate},
    ):
        loop = sending(real_tls, **wrong)
        await loop.measure(95)
        await until(lambda loop=loop: loop.sender.errors)
        assert loop.sender.sent == {}
    assert alerts_at(real_tls, context) == []
    loop = sending(real_tls, ca_file=authority.certificate, client_files=files)
    await loop.measure(95)
    await until(lambda: alerts_at(real_tls, context))
    assert loop.sender.sent == {f"{real_tls}/api/v2/alerts": 1}


async def test_all_alertmanagers_get_all_alerts_and_a_dead_one_is_named(
    caplog: pytest.LogCaptureFixture, sending
) -> None:
    got = []

    async def take(request):
        got.append((await request.json(), request.headers.get("Authorization")))
        return web.Response()

    app = web.Application()
    app.router.add_post("/am/api/v2/alerts", take)
    async with TestServer(app) as server:
        alive = str(server.make_url("/am/"))
        dead = f"http://127.0.0.1:{unused_port()}"
        loop = sending(alive, dead)
        await loop.measure(95, gpus=100)
        await until(lambda: loop.sender.sent.total() == 100 and loop.sender.errors.total() == 100)
    # At most 64 in one message, as Prometheus sends them.
    assert sorted(len(body) for body, _ in got) == [36, 64]
    assert loop.sender.dropped == 0
    assert f"{dead}/api/v2/alerts does not take alerts: " in loop.sender.remark()
    messages = [
        each.getMessage() for each in caplog.records if "does not take" in each.getMessage()
    ]
    assert len(messages) == 1


async def test_passwords_and_refusals(tmp_path: Path, sending) -> None:
    async def check(request):
        if (
            request.headers.get("Authorization")
            == f"Basic {base64.b64encode(b'user:secret').decode()}"
        ):
            return web.Response()
        return web.Response(status=401, text="who are you\n\x1b[31m")

    app = web.Application()
    app.router.add_post("/api/v2/alerts", check)
    password = tmp_path / "password"
    password.write_text("wrong")
    async with TestServer(app) as server:
        url = str(server.make_url("/")).rstrip("/")
        loop = sending(url, username="user", password_file=password)
        await loop.measure(95)
        await until(lambda: loop.sender.errors.total() == 1)
        assert loop.sender.remark() == (
            f"{url}/api/v2/alerts does not take alerts: answered 401 who are you  [31m"
        )
        assert loop.sender.dropped == 1
        loop.sender = sending(url, username="user", password_file=tmp_path / "right").sender
        (tmp_path / "right").write_text("secret\n")
        loop.ruler._notify = loop.sender.notify
        await loop.measure(95, seconds=61)
        await until(lambda: loop.sender.sent.total() == 1)
        assert loop.sender.remark() == ""


async def test_alerts_that_wait_have_a_bound_in_bytes(sending) -> None:
    loop = sending()
    rule = loop.ruler.groups.rules()[0]
    loop.sender._changed = asyncio.Event()  # nobody sends
    await loop.measure(95)
    (alert,) = rule.current()
    alert.annotations = {"summary": "x" * 1_000_000}
    loop.sender.notify(rule, [alert] * 40)
    # 16 MiB are 16.8 messages of a million bytes and a little more.
    assert len(loop.sender._waiting) == 16
    assert sum(map(len, loop.sender._waiting)) == loop.sender._waiting_bytes
    assert loop.sender._waiting_bytes <= alertmanager._MAX_WAITING_BYTES
    assert loop.sender.dropped == 40 + 1 - 16


@pytest.mark.parametrize(
    "text",
    ["alertmanager:9093", "ftp://a", "http://", "http://a/?b=c", "http://u:p@a:9093", "http://["],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        alerts_url(text)
    assert "p@a" not in str(caught.value)
