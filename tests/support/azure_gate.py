"""Azure as clients of a workspace meet it: tokens of two issuers, and a Prometheus that takes only those."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

TENANT = "00000000-0000-0000-0000-0000000000bb"
CLIENT = "00000000-0000-0000-0000-0000000000aa"
ASSERTION = "header.claims.signature"
"""What Entra trusts: the token of a service account."""
_WRITE = "/dataCollectionRules/dcr-1/api/v1/write"
_PASSED_ON = (
    "Accept-Encoding",
    "Content-Encoding",
    "Content-Type",
    "X-Prometheus-Remote-Write-Version",
)


class AzureGate:
    """A metadata service, Entra's token endpoint, and a gate before a Prometheus.

    A token is for what it was asked for: one for writing opens no query, and the other way round.
    """

    def __init__(self, prometheus_url: str) -> None:
        self.url = ""
        self.issued: list[str] = []
        self.revoked: set[str] = set()
        self.has_role = True
        self.is_away = False
        self.refused = 0
        self._prometheus = prometheus_url
        self._audiences: dict[str, str] = {}

    @property
    def write_url(self) -> str:
        return self.url + _WRITE

    async def of_metadata(self, request: web.Request) -> web.Response:
        assert request.headers["Metadata"] == "true"
        if self.is_away:
            return web.json_response({"error": "invalid_request"}, status=400)
        ends_s = int(time.time()) + 3600
        return self._issue(request.query["resource"], expires_on=str(ends_s))

    async def of_entra(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert (request.match_info["tenant"], form["client_id"]) == (TENANT, CLIENT)
        if form["client_assertion"] != ASSERTION:
            return web.json_response({"error": "invalid_client"}, status=401)
        return self._issue(str(form["scope"]).removesuffix("/.default"), expires_in=3600)

    def _issue(self, audience: str, **times: str | int) -> web.Response:
        self.issued.append(f"secret-{len(self.issued)}")
        self._audiences[self.issued[-1]] = audience.rstrip("/")
        return web.json_response({"access_token": self.issued[-1], **times})

    async def pass_on(self, request: web.Request) -> web.Response:
        is_write = request.path == _WRITE
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = "https://monitor.azure.com" if is_write else "https://prometheus.monitor.azure.com"
        if self._audiences.get(token) != wanted or token in self.revoked:
            self.refused += 1
            return web.Response(status=401, text="no valid token")
        if not self.has_role:
            role = "Monitoring Metrics Publisher" if is_write else "Monitoring Data Reader"
            return web.Response(status=403, text=f"{role} is not assigned")
        url = self._prometheus + ("/api/v1/write" if is_write else request.path_qs)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, url, data=await request.read(), headers=headers
            ) as answer,
        ):
            kept = {k: v for k, v in answer.headers.items() if k.startswith("Content-")}
            kept.pop("Content-Length", None)
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)


@asynccontextmanager
async def azure_gate(prometheus_url: str) -> AsyncIterator[AzureGate]:
    """Serve one on loopback."""
    found = AzureGate(prometheus_url)
    app = web.Application()
    app.router.add_get("/metadata/identity/oauth2/token", found.of_metadata)
    app.router.add_post("/{tenant}/oauth2/v2.0/token", found.of_entra)
    app.router.add_route("*", "/{path:.*}", found.pass_on)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()
