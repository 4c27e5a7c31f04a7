"""Tokens from stand-ins of Azure's metadata service and of Entra's token endpoint, on loopback."""

import asyncio
import logging
import time
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from gpuscale.base.errors import UnavailableError
from gpuscale.server.sources.http import entra
from gpuscale.server.sources.http.entra import (
    ClientSecret,
    EntraLogin,
    EntraToken,
    ManagedIdentity,
    WorkloadIdentity,
)

ID = "00000000-0000-0000-0000-0000000000aa"
TENANT = "00000000-0000-0000-0000-0000000000bb"
SCOPE = "https://monitor.azure.com//.default"
AUTHORITY = f"/{TENANT}/oauth2/v2.0/token"


class Issuer:
    """Answers as both do, and checks what each is documented to need."""

    def __init__(self) -> None:
        self.base = ""
        self.asked = []
        self.lasts_s = 3600
        self.answers = []
        """The next answers instead of a token: status and body."""
        self.hold = None

    async def metadata(self, request):
        self.asked.append(dict(request.query))
        if request.headers.get("Metadata") != "true":
            return web.json_response({"error": "invalid_request"}, status=400)
        # As the metadata service: numbers are text, and expires_in is of when it got the token.
        return await self._answer(
            expires_in="86400", expires_on=str(int(time.time()) + self.lasts_s)
        )

    async def token(self, request):
        form = dict(await request.post())
        self.asked.append(form)
        if form.get("client_secret") == "wrong":
            said = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
            error = {"error": "invalid_client", "error_description": said}
            return web.json_response(error, status=401)
        return await self._answer(expires_in=self.lasts_s)

    async def _answer(self, **times):
        if self.hold is not None:
            await self.hold.wait()
        if self.answers:
            status, body = self.answers.pop(0)
            return web.Response(status=status, body=body)
        return web.json_response({"access_token": f"token-{len(self.asked)}", **times})


@pytest_asyncio.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch):
    found = Issuer()
    app = web.Application()
    app.router.add_get("/metadata/identity/oauth2/token", found.metadata)
    app.router.add_post(AUTHORITY, found.token)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", found.base)
    yield found
    if found.hold is not None:
        found.hold.set()
    await runner.cleanup()


def with_secret(issuer, secret="open") -> EntraToken:
    return EntraToken(EntraLogin(ClientSecret(TENANT, ID, secret), SCOPE, issuer.base))


async def test_the_nodes_identity(issuer) -> None:
    # The resource is the scope less its end, as Azure's libraries make it.
    plain = {"api-version": "2018-02-01", "resource": "https://monitor.azure.com/"}
    assert await EntraToken(EntraLogin(ManagedIdentity())).text() == "token-1"
    assert await EntraToken(EntraLogin(ManagedIdentity(ID))).text() == "token-2"
    assert issuer.asked == [plain, {**plain, "client_id": ID}]


async def test_a_clients_secret(issuer) -> None:
    assert await with_secret(issuer).text() == "token-1"
    assert issuer.asked == [
        {
            "grant_type": "client_credentials",
            "client_id": ID,
            "client_secret": "open",
            "scope": SCOPE,
        }
    ]


async def test_a_service_accounts_token(issuer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    login = EntraLogin(WorkloadIdentity(TENANT, ID, path), SCOPE, issuer.base)
    with pytest.raises(UnavailableError, match="token can't be read: No such file"):
        await EntraToken(login).text()
    path.write_text("header.claims.signature\n")
    assert await EntraToken(login).text() == "token-1"
    assert issuer.asked == [
        {
            "grant_type": "client_credentials",
            "client_id": ID,
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": "header.claims.signature",
            "scope": SCOPE,
        }
    ]


async def test_a_token_is_kept_and_asked_for_once(issuer) -> None:
    token = with_secret(issuer)
    assert set(await asyncio.gather(*(token.text() for _ in range(50)))) == {"token-1"}
    assert len(issuer.asked) == 1


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the event loop's clock stand, as the tokens see it, so many seconds on."""
    loop = asyncio.get_running_loop()
    real = type(loop).time
    monkeypatch.setattr(loop, "time", lambda: real(loop) + seconds)


async def test_another_is_asked_for_after_half_of_its_time(
    issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = with_secret(issuer)
    assert await token.text() == "token-1"
    at(monkeypatch, 1790)
    assert await token.text() == "token-1"
    at(monkeypatch, 1810)
    assert await token.text() == "token-2"


async def test_the_old_one_serves_until_it_ends(issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = with_secret(issuer)
    assert await token.text() == "token-1"
    issuer.answers = [(503, b"busy")] * 2
    at(monkeypatch, 1810)
    assert await token.text() == "token-1"
    assert await token.text() == "token-1"
    assert len(issuer.asked) == 2  # a failure is the answer for some seconds
    at(monkeypatch, 3610)
    with pytest.raises(UnavailableError, match="answered 503"):
        await token.text()
    at(monkeypatch, 3620)
    assert await token.text() == "token-4"


async def test_a_refused_token_is_dropped_unless_another_came(issuer) -> None:
    token = with_secret(issuer)
    first = await token.text()
    token.forget(first)
    assert await token.text() == "token-2"
    token.forget(first)
    assert await token.text() == "token-2"


async def test_what_entra_says_is_told_without_the_secret(
    issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UnavailableError) as caught:
        await with_secret(issuer, "wrong").text()
    assert str(caught.value) == (
        f"no token from {issuer.base}{AUTHORITY}: answered 401, "
        "invalid_client: AADSTS7000215: Invalid client secret provided."
    )
    login = EntraLogin(ClientSecret(TENANT, ID, "wrong-secret"))
    assert "wrong-secret" not in repr(login) + caplog.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "the answer is no JSON"),
        (b"[" * 30_000, "the answer is no JSON"),
        (b"[]", "the answer is no JSON object"),
        (b"{}", "no access_token that can be used"),
        (b'{"access_token": ""}', "no access_token that can be used"),
        (b'{"access_token": "a\\r\\nHost: b", "expires_in": 9}', "no access_token"),
        (b'{"access_token": "' + b"a" * 16_385 + b'", "expires_in": 9}', "no access_token"),
        (b'{"access_token": "a"}', "does not say how long"),
        (b'{"access_token": "a", "expires_in": true}', "does not say how long"),
        (b'{"access_token": "a", "expires_in": NaN}', "does not say how long"),
        (b'{"access_token": "a", "expires_in": 1e999}', "does not say how long"),
        (b'{"access_token": "a", "expires_in": "0"}', "has expired already"),
        (b'{"access_token": "a", "expires_on": 1}', "has expired already"),
        (b" " * 65_537, "more than 65536 bytes"),
    ],
)
async def test_answers_that_can_not_be_used(issuer, body: bytes, words: str) -> None:
    issuer.answers = [(200, body)]
    token = with_secret(issuer)
    with pytest.raises(UnavailableError, match=words):
        await token.text()


async def test_the_longest_token_that_is_taken(issuer) -> None:
    issuer.answers = [(200, b'{"access_token": "' + b"a" * 16_384 + b'", "expires_in": 9}')]
    assert await with_secret(issuer).text() == "a" * 16_384


async def test_an_endpoint_that_never_answers(issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entra, "_TIMEOUT_S", 0.1)
    issuer.hold = asyncio.Event()
    with pytest.raises(UnavailableError, match="no token from"):
        await with_secret(issuer).text()
