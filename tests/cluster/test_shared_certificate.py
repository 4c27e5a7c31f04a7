"""Replicas that share a certificate in a Secret: filled once, renewed while the API is asked all the time."""

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.pki import make_ca, make_serving, names_of_service
from gpuscale.server.metricsapi.security.shared_certificate import SINCE, SecretCertificate
from gpuscale.server.metricsapi.settings import SecretSettings
from gpuscale.testing.prometheus import serve
from gpuscale_testing import wait_until
from gpuscale_testing.metrics_apis import gpuscale_metrics_api

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(400),
]
NAMESPACE = "shared-certificate"
SERVICE = "metrics-api"
VERSIONS = ("v1beta1", "v1beta2")
API_SERVICES = tuple(f"{version}.custom.metrics.k8s.io" for version in VERSIONS)
RULES = """
rules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def secret_body(name):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": "Opaque",
    }


def api_service(version, port):
    group = "custom.metrics.k8s.io"
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "service": {"name": SERVICE, "namespace": NAMESPACE, "port": port},
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


@pytest.fixture(scope="module")
def namespace(plane):
    plane.kubectl("create", "namespace", NAMESPACE)
    yield
    plane.kubectl("delete", "apiservice", *API_SERVICES, "--ignore-not-found")
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def stored(plane, name):
    found = plane.get("secret", name, f"--namespace={NAMESPACE}").get("data") or {}
    return {key: base64.b64decode(text) for key, text in found.items()}


def shown(port):
    return ssl.get_server_certificate(("127.0.0.1", port)).strip().encode()


def bundles(plane):
    found = [plane.get("apiservice", name)["spec"].get("caBundle", "") for name in API_SERVICES]
    return [base64.b64decode(each) for each in found]


class Asking:
    """Asks the metrics API through the API server, again and again, and keeps what failed."""

    def __init__(self, plane) -> None:
        self.failures = []
        self.answers = 0
        self._plane = plane
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            try:
                self._plane.kubectl("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2")
                self.answers += 1
            except GpuscaleError as error:
                self.failures.append(str(error))
            time.sleep(0.05)

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()


def test_it_is_renewed_while_the_api_is_asked(plane, namespace, tmp_path: Path) -> None:
    name = "serving"
    plane.apply(json.dumps(secret_body(name)))
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = [
        f"--tls-secret={NAMESPACE}/{name}",
        f"--tls-secret-apiservices={','.join(API_SERVICES)}",
        f"--service-name={SERVICE}",
        f"--service-namespace={NAMESPACE}",
    ]
    with contextlib.ExitStack() as stack:
        prometheus = stack.enter_context(serve([], tmp_path))
        ports = []
        for replica in "ab":
            folder = tmp_path / replica
            folder.mkdir()
            more = [*flags, f"--cert-dir={folder / 'certificates'}"]
            api = stack.enter_context(
                gpuscale_metrics_api(plane, prometheus.url, rules, folder, more=more)
            )
            ports.append(api.port)
        first = stored(plane, name)
        assert {shown(port) for port in ports} == {first["tls.crt"].strip()}

        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        for body in (service, *(api_service(version, ports[0]) for version in VERSIONS)):
            plane.apply(json.dumps(body))
        wait_until(lambda: bundles(plane) == [first["ca.crt"]] * 2, "the bundles", 60)
        for each in API_SERVICES:
            plane.wait(f"apiservice/{each}", "condition=Available", timeout_s=60)

        asking = Asking(plane)
        with asking.running():
            _begin(plane, name, first)
            begun = stored(plane, name)
            wait_until(
                lambda: {shown(port) for port in ports} == {begun["next.crt"].strip()},
                "the next certificate",
                90,
            )
            assert bundles(plane) == [begun["ca.crt"]] * 2
            _set_since(plane, name, timedelta(hours=2))
            wait_until(lambda: stored(plane, name)["ca.crt"] != begun["ca.crt"], "the end", 60)
            finished = stored(plane, name)
            wait_until(lambda: bundles(plane) == [finished["ca.crt"]] * 2, "the bundles", 60)
            time.sleep(3)  # long enough for what trusts less to show
        assert asking.failures == []
        assert asking.answers > 50
        assert sorted(finished) == ["ca.crt", "tls.crt", "tls.key"]
        assert finished["tls.crt"] == begun["next.crt"]
        assert len(x509.load_pem_x509_certificates(finished["ca.crt"])) == 1


def _begin(plane, name, first) -> None:
    """Write what a replica writes when two thirds of the life have passed, as if six minutes ago."""
    now_ms = WallClock().now_ms()
    ca = make_ca(now_ms)
    pair = make_serving(ca, names_of_service(SERVICE, NAMESPACE), now_ms, 90)
    files = {
        "ca.crt": first["ca.crt"] + ca.certificate,
        "next.crt": pair.certificate,
        "next.key": pair.key,
    }
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    body = {"data": data, "metadata": {"annotations": {SINCE: _ago(timedelta(minutes=6))}}}
    _patch(plane, name, body)


def _set_since(plane, name, age) -> None:
    _patch(plane, name, {"metadata": {"annotations": {SINCE: _ago(age)}}})


def _ago(age):
    return (datetime.now(UTC) - age).isoformat(timespec="seconds")


def _patch(plane, name, body) -> None:
    where = ("secret", name, f"--namespace={NAMESPACE}")
    plane.kubectl("patch", *where, "--type=merge", "--patch", json.dumps(body))


def certificate(client, name, folder):
    return SecretCertificate(
        client, SecretSettings(NAMESPACE, name, (), 90), (SERVICE, NAMESPACE), folder, WallClock()
    )


async def test_replicas_that_start_together_agree(plane, namespace, tmp_path: Path) -> None:
    name = "together"
    plane.apply(json.dumps(secret_body(name)))
    client = plane.client()
    replicas = [certificate(client, name, tmp_path / str(each)) for each in range(5)]
    await asyncio.gather(*(each.open() for each in replicas))
    await client.close()
    written = {each.files.certificate.read_bytes() for each in replicas}
    assert written == {stored(plane, name)["tls.crt"]}
    assert {each.fault for each in replicas} == {None}


async def test_an_older_installation_s_ca_stays_trusted_and_applying_again_keeps_the_bundle(
    plane, namespace, tmp_path
):
    """Older releases applied the caBundle themselves: applying without it must not take it away."""
    name, old = "upgraded", make_ca(WallClock().now_ms()).certificate
    plane.kubectl("delete", "apiservice", *API_SERVICES, "--ignore-not-found")
    plane.apply(json.dumps(secret_body(name)))
    body = api_service("v1beta1", 1)
    with_bundle = {**body, "spec": {**body["spec"], "caBundle": base64.b64encode(old).decode()}}
    apply_as_installer(plane, with_bundle)
    client = plane.client()
    settings = SecretSettings(NAMESPACE, name, API_SERVICES[:1], 90)
    shared = SecretCertificate(
        client, settings, (SERVICE, NAMESPACE), tmp_path / "files", WallClock()
    )
    await shared.open()
    await client.close()
    bundle = stored(plane, name)["ca.crt"]
    assert bundle.startswith(old)
    assert len(x509.load_pem_x509_certificates(bundle)) == 2
    apply_as_installer(plane, body)
    spec = plane.get("apiservice", API_SERVICES[0])["spec"]
    assert base64.b64decode(spec["caBundle"]) == bundle
    plane.kubectl("delete", "apiservice", API_SERVICES[0])


def apply_as_installer(plane, body):
    flags = ("--server-side", "--field-manager=gpuscale")
    plane.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(body))


async def test_without_the_secret_an_earlier_certificate_serves_and_a_new_one_does_not(
    plane, namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuscale.server.metricsapi.security.shared_certificate._START_TRIES", 2)
    client = plane.client()
    with pytest.raises(UnavailableError, match=r"404: secrets \"gone\" not found"):
        await certificate(client, "gone", tmp_path).open()
    now_ms = WallClock().now_ms()
    pair = make_serving(make_ca(now_ms), names_of_service(SERVICE, NAMESPACE), now_ms)
    again = certificate(client, "gone", tmp_path)
    again.files.certificate.write_bytes(pair.certificate)
    again.files.key.write_bytes(pair.key)
    await again.open()
    await client.close()
    assert "it is made by the installation, empty" in again.fault
    assert Path(again.files.certificate).read_bytes() == pair.certificate
