# mypy: disable-error-code="arg-type, attr-defined"
"""The small client of an API server: over TLS, with each kind of credentials, and what it says of faults.

What it says and sends is held against `usual`, whose HTTP client is a library's.
"""

import asyncio
import base64
import json
import ssl
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuscale.base.pki import make_ca, make_serving
from gpuscale.kube.client import kubeconfig
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.plain import plain_access
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.testing.api_server import PODS, FakeApiServer


def usual(settings: KubeSettings) -> KubeClient:
    """Return the client that reads with a library's HTTP client, however plain the way is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuscale.kube.client.client.plain_access", lambda _: None)
        return KubeClient(settings)


CLIENTS = (KubeClient, usual)
NOW_MS = int(time.time() * 1000)
CA, OTHER_CA = make_ca(NOW_MS), make_ca(NOW_MS)
NAME = "kubernetes.default.svc"
ANSWER = b'{"kind": "PodList", "items": []}'


class Server:
    """Answers every request with the same, and keeps what it was asked."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
        self.closes = False
        self.port = 0

    async def handle(self, reader, writer) -> None:
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head.decode())
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def header(self, name) -> str | None:
        lines = self.heads[-1].split("\r\n")
        found = [line for line in lines if line.lower().startswith(f"{name}:".lower())]
        return found[0].partition(":")[2].strip() if found else None


@asynccontextmanager
async def serving(folder, names=("127.0.0.1",), wants_client=False, has_tls=True):
    server, context = Server(), None
    if has_tls:
        pair = make_serving(CA, names, NOW_MS)
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.pem")
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=CA.certificate.decode())
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await asyncio.sleep(0)


def data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def config(folder, port, user, scheme="https", **cluster) -> KubeSettings:
    trust = {"certificate-authority-data": data(CA.certificate)} if scheme == "https" else {}
    where = {"server": f"{scheme}://127.0.0.1:{port}", **trust, **cluster}
    path = folder / "kubeconfig"
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    return KubeSettings(path, timeout_s=5)


@asynccontextmanager
async def reading(settings):
    client = KubeClient(settings)
    assert client._usual is None
    try:
        yield client
    finally:
        await client.close()


async def test_it_trusts_the_authority_of_the_file_and_sends_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with reading(config(tmp_path, server.port, {"token": "t"})) as client:
            assert await client.get(PODS, {"limit": "1"}) == json.loads(ANSWER)
        assert server.header("Authorization") == "Bearer t"
        assert server.header("Host") == f"127.0.0.1:{server.port}"
        assert server.heads[-1].startswith("GET /api/v1/pods?limit=1 HTTP/1.1\r\n")


async def test_an_authority_may_be_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    async with serving(tmp_path) as server:
        files = {"certificate-authority": "ca.crt", "certificate-authority-data": ""}
        async with reading(config(tmp_path, server.port, {"token": "t"}, **files)) as client:
            assert await client.get(PODS)


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    pair = client_pair()
    user = {"client-certificate-data": data(pair[0]), "client-key-data": data(pair[1])}
    async with serving(tmp_path, wants_client=True) as server:
        async with reading(config(tmp_path, server.port, user)) as client:
            assert await client.get(PODS)
        assert server.header("Authorization") is None
    (tmp_path / "tls.crt").write_bytes(pair[0])
    (tmp_path / "tls.key").write_bytes(pair[1])
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    async with (
        serving(tmp_path, wants_client=True) as server,
        reading(config(tmp_path, server.port, user)) as client,
    ):
        assert await client.get(PODS)


def client_pair() -> tuple[bytes, bytes]:
    """Return a certificate that clients may have, and its key; the server's way has another purpose."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(CA.certificate)
    signer = serialization.load_pem_private_key(CA.key, None)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


async def test_the_certificate_may_be_for_another_name(tmp_path: Path) -> None:
    async with serving(tmp_path, names=(NAME,)) as server:
        named = config(tmp_path, server.port, {"token": "t"}, **{"tls-server-name": NAME})
        async with reading(named) as client:
            assert await client.get(PODS)
        unnamed = config(tmp_path, server.port, {"token": "t"})
        assert await fault(KubeClient(unnamed)) == await fault(usual(unnamed))


async def test_a_service_account_is_used_with_the_token_of_the_moment(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    async with serving(tmp_path) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        async with reading(KubeSettings()) as client:
            await client.get(PODS)
            assert server.header("Authorization") == "Bearer first"
            (tmp_path / "token").write_text("second\n")
            await client.get(PODS)
            assert server.header("Authorization") == "Bearer second"
            (tmp_path / "token").unlink()
            with pytest.raises(ApiUnreachableError, match="no token in"):
                await client.get(PODS)


async def test_an_authority_that_is_renewed_on_disk_is_trusted(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "ca.crt").write_bytes(OTHER_CA.certificate)
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    async with serving(tmp_path) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        async with reading(KubeSettings()) as client:
            with pytest.raises(ApiUnreachableError, match="its certificate is not trusted"):
                await client.get(PODS)
            (tmp_path / "ca.crt").write_bytes(CA.certificate)
            assert await client.get(PODS) == json.loads(ANSWER)


async def test_a_path_of_the_server_comes_before_each_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        address = f"https://127.0.0.1:{server.port}/k8s/clusters/c-1/"
        async with reading(config(tmp_path, server.port, {"token": "t"}, server=address)) as client:
            await client.get(PODS)
        assert server.heads[-1].startswith("GET /k8s/clusters/c-1/api/v1/pods HTTP/1.1\r\n")


async def test_a_connection_is_used_again_unless_the_server_has_closed_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        reading(config(tmp_path, server.port, {"token": "t"})) as client,
    ):
        for _ in range(3):
            await client.get(PODS)
        assert server.connections == 1
        server.closes = True
        await client.get(PODS)
        await asyncio.sleep(0.05)
        await client.get(PODS)
        assert server.connections == 2


async def test_a_watch_has_a_connection_of_its_own(tmp_path: Path) -> None:
    query = {"resourceVersion": "100"}
    async with (
        FakeApiServer() as server,
        reading(KubeSettings(server.kubeconfig(tmp_path), watch_s=30)) as client,
        client.watch(PODS, query) as events,
        client.watch(PODS, query) as others,
    ):
        await server.put(PODS, {"metadata": {"namespace": "ml", "name": "bert-0"}})
        assert (await anext(events))["object"]["metadata"]["name"] == "bert-0"
        assert (await client.get(PODS))["items"]
        assert (await anext(others))["type"] == "ADDED"


async def fault(client) -> str:
    """Return what a client says of a server that it can't list pods of."""
    try:
        with pytest.raises((ApiUnreachableError, ApiStatusError)) as caught:
            await client.get(PODS)
    finally:
        await client.close()
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", id="not who we are"),
        pytest.param(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}", id="not for us"),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", id="not now"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", id="no object"),
        pytest.param(
            b"HTTP/1.1 302 No\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", id="elsewhere"
        ),
    ],
)
async def test_a_refusal_reads_as_through_the_usual_client(tmp_path: Path, answer) -> None:
    async with serving(tmp_path) as server:
        server.answer = answer
        settings = config(tmp_path, server.port, {"token": "t"})
        assert await fault(KubeClient(settings)) == await fault(usual(settings))


async def test_an_authority_that_is_not_the_servers_reads_as_through_the_usual_client(
    tmp_path: Path,
) -> None:
    other = {"certificate-authority-data": data(OTHER_CA.certificate)}
    async with serving(tmp_path) as server:
        settings = config(tmp_path, server.port, {"token": "t"}, **other)
        found = await fault(KubeClient(settings))
        assert found == await fault(usual(settings))
        assert "its certificate is not trusted" in found
        assert not server.heads


async def test_a_server_that_is_away_reads_as_through_the_usual_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        settings = config(tmp_path, server.port, {"token": "t"})
    assert await fault(KubeClient(settings)) == await fault(usual(settings))
    nowhere = {"server": "https://api.invalid:6443"}
    settings = config(tmp_path, 1, {"token": "t"}, **nowhere)
    assert await fault(KubeClient(settings)) == await fault(usual(settings))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(b"", "it closed the connection without an answer", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "peer closed", id="half"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal status line", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "too long|closed|exceeds", id="endless head"
        ),
    ],
)
async def test_an_answer_that_breaks_off_is_no_answer(tmp_path: Path, answer, said: str) -> None:
    async with serving(tmp_path, has_tls=False) as server:
        server.answer, server.closes = answer, True
        settings = config(tmp_path, server.port, {"token": "t"}, scheme="http")
        async with reading(settings) as client:
            with pytest.raises(ApiUnreachableError, match=f"can't be reached: .*({said})"):
                await client.get(PODS)


async def test_an_answer_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path, has_tls=False) as server:
        server.answer = b"HTTP/1.1 200 OK\r\n"
        path = config(tmp_path, server.port, {"token": "t"}, scheme="http").kubeconfig
        async with reading(KubeSettings(path, timeout_s=0.1)) as client:
            with pytest.raises(ApiUnreachableError, match="gave no answer to /api/v1/pods in time"):
                await client.get(PODS)


@pytest.mark.parametrize("client_of", [KubeClient, usual])
async def test_a_watch_that_does_not_begin_is_given_up_long_before_it_would_end(
    tmp_path: Path, client_of
) -> None:
    async with serving(tmp_path, has_tls=False) as server:
        server.answer = b""
        path = config(tmp_path, server.port, {"token": "t"}, scheme="http").kubeconfig
        client = client_of(KubeSettings(path, timeout_s=0.1, watch_s=3600))
        try:
            with pytest.raises(ApiUnreachableError, match="gave no answer to /api/v1/pods in time"):
                async with asyncio.timeout(10), client.watch(PODS, {}):
                    pass
        finally:
            await client.close()


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"exec": {"command": "x"}}, id="program"),
        pytest.param({"username": "a", "password": "b"}, id="password"),
        pytest.param({"token": "t", "as": "other"}, id="impersonation"),
        pytest.param({"auth-provider": {"name": "gcp"}}, id="provider"),
        pytest.param({"token": 7}, id="no text"),
        pytest.param({}, id="nobody"),
    ],
)
def test_other_users_are_left_to_the_usual_client(tmp_path: Path, user) -> None:
    assert plain_access(config(tmp_path, 1, user)) is None


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param({"proxy-url": "http://127.0.0.1:3128"}, id="proxy"),
        pytest.param({"insecure-skip-tls-verify": True}, id="no trust"),
        pytest.param({"certificate-authority-data": ""}, id="the system's trust"),
        pytest.param({"certificate-authority-data": "e30="}, id="no certificate"),
        pytest.param({"certificate-authority": "none"}, id="no file"),
        pytest.param({"server": "https://a:b@127.0.0.1"}, id="password in the address"),
        pytest.param({"server": "127.0.0.1:6443"}, id="no scheme"),
        pytest.param({"server": "https://127.0.0.1:x"}, id="no port"),
    ],
)
def test_other_clusters_are_left_to_the_usual_client(tmp_path: Path, cluster) -> None:
    assert plain_access(config(tmp_path, 1, {"token": "t"}, **cluster)) is None


def test_a_file_that_is_not_there_is_left_to_the_usual_client(tmp_path: Path) -> None:
    assert plain_access(KubeSettings(tmp_path / "none")) is None
    assert plain_access(KubeSettings()) is None


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods/*/a",
        "/api/v1/pods/a b",
        "/api/v1/pods/caf\u00e9",
        "/api/v1/pods/a%20b%2Fc",
        "/apis/x/v1/namespaces/a:b/p,q;r/~s!t'(u)",
    ],
)
async def test_a_path_is_asked_for_as_by_the_usual_client(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as server:
        for client in (make(config(tmp_path, server.port, {"token": "t"})) for make in CLIENTS):
            await client.get(path)
            await client.close()
        first, second = (head.partition("\r\n")[0] for head in server.heads)
    assert first == second
