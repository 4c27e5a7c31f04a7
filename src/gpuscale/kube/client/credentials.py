"""Credentials from a kubeconfig's `exec` program, such as `aws` or `kubelogin`.

Source: k8s.io/client-go v0.36 plugin/pkg/client/auth/exec/exec.go (Authenticator) and
pkg/apis/clientauthentication/types.go (ExecCredential, InteractiveMode).
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2

from gpuscale.base.errors import UsageError
from gpuscale.kube.json_values import mapping_of, text_of

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_SHOWN_LINES = 3
_UNAUTHORIZED = 401


class CredentialError(UsageError):
    """A credential program failed; an immediate retry would not help."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The credentials that a program printed."""

    token: str
    expires_s: float | None
    """Since the epoch; None where the program doesn't say."""


class ProgramAuth(httpx2.Auth):
    """Runs a kubeconfig's `exec` program before the first request, when its token runs out, and after a 401.

    Args:
        program: the user's `exec` section.
        cluster: the cluster section, which the program is given where it asks for it.
        tls: takes the client certificate, where the program gives one.
    """

    def __init__(
        self, program: Mapping[str, Any], cluster: Mapping[str, Any], tls: ssl.SSLContext
    ) -> None:
        self._program = program
        self._cluster = cluster
        self._tls = tls
        self._given: _Given | None = None
        self._turn = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token to a request; if it is refused, retry once with a new one."""
        given = await self._current(refused=None)
        self._sign(request, given)
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            self._sign(request, await self._current(refused=given))
            yield request

    def _sign(self, request: httpx2.Request, given: _Given) -> None:
        if given.token:
            request.headers["Authorization"] = f"Bearer {given.token}"

    async def _current(self, refused: _Given | None) -> _Given:
        """Return valid credentials; concurrent requests run the program once."""
        async with self._turn:
            given = self._given
            is_over = (
                given is None
                or given is refused
                or (given.expires_s is not None and time.time() >= given.expires_s)
            )
            if given is None or is_over:
                given = self._given = await self._ask()
            return given

    async def _ask(self) -> _Given:
        version = text_of(self._program.get("apiVersion"))
        command = text_of(self._program.get("command"))
        if version not in _VERSIONS:
            raise CredentialError(
                f"the kubeconfig's program {command}: found apiVersion {version!r}, "
                f"expected one of: {', '.join(_VERSIONS)}"
            )
        out = await self._run(command, version)
        try:
            answer = mapping_of(json.loads(out))
        except (ValueError, RecursionError):
            answer = {}
        status = mapping_of(answer.get("status"))
        if answer.get("apiVersion") != version or answer.get("kind") != "ExecCredential":
            kind, found = text_of(answer.get("kind")), text_of(answer.get("apiVersion"))
            what = (
                f"kind {kind!r} of {found!r}" if kind or found else "something else than an object"
            )
            raise CredentialError(
                f"the kubeconfig's program {command} answered with {what}, "
                f"expected an ExecCredential of {version}"
            )
        self._take_certificate(command, status)
        token = text_of(status.get("token"))
        if not token and not status.get("clientCertificateData"):
            raise CredentialError(
                f"the kubeconfig's program {command} gave neither a token nor a certificate"
            )
        return _Given(token, _seconds(text_of(status.get("expirationTimestamp"))))

    async def _run(self, command: str, version: str) -> bytes:
        """Return what the program prints; at a terminal it may talk to the user."""
        interactive = self._is_interactive(command)
        info: dict[str, Any] = {
            "apiVersion": version,
            "kind": "ExecCredential",
            "spec": {"interactive": interactive},
        }
        if self._program.get("provideClusterInfo"):
            info["spec"]["cluster"] = dict(self._cluster)
        given = self._program.get("env")
        variables = map(mapping_of, given if isinstance(given, list) else ())
        environment = {
            **os.environ,
            **{text_of(each.get("name")): text_of(each.get("value")) for each in variables},
            "KUBERNETES_EXEC_INFO": json.dumps(info),
        }
        arguments = self._program.get("args")
        words = [text_of(each) for each in (arguments if isinstance(arguments, list) else ())]
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *words,
                env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = text_of(self._program.get("installHint")).strip()
            raise CredentialError(
                f"the kubeconfig's program {command} can't be run: {error.strerror or error}"
                + (f"\n{hint}" if hint else "")
            ) from error
        try:
            out, said = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            lines = (said or b"").decode(errors="replace").strip().splitlines()[-_SHOWN_LINES:]
            raise CredentialError(
                f"the kubeconfig's program {command} ended with exit code {process.returncode}"
                + (f": {' '.join(lines)}" if lines else "")
                + "; log in again, as for kubectl"
            )
        return out

    def _is_interactive(self, command: str) -> bool:
        mode = self._program.get("interactiveMode") or "IfAvailable"
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not is_terminal:
            raise CredentialError(
                f"the kubeconfig's program {command} wants a terminal to ask at, and there is none"
            )
        return is_terminal and mode != "Never"

    def _take_certificate(self, command: str, status: Mapping[str, Any]) -> None:
        certificate = text_of(status.get("clientCertificateData"))
        key = text_of(status.get("clientKeyData"))
        if not certificate:
            return
        # Python's ssl reads certificates from files only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            try:
                self._tls.load_cert_chain(file.name)
            except (ssl.SSLError, OSError) as error:
                raise CredentialError(
                    f"the kubeconfig's program {command} gave a certificate that can't be used: {error}"
                ) from error


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
