"""The serving certificate of an installation: in a Secret, shared by all replicas, renewed by any of them.

Installing creates the Secret empty. The first replica fills it. Each replica reads it every ten seconds,
writes the step that is due (`rotation`), and puts its bundle into the APIServices. A write names the Secret's
resourceVersion: of two replicas that want the same step one gets a conflict, and reads what the other wrote.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.base.pki import KeyPair, can_serve, names_of_service, write_private
from gpuscale.kube.client import CONFLICT, NOT_FOUND, ApiStatusError, KubeClient
from gpuscale.server.metricsapi.security.rotation import SharedCertificate, next_step
from gpuscale.server.metricsapi.security.serving_certificate import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    CertificateFiles,
)
from gpuscale.server.metricsapi.settings import SecretSettings

SINCE = "gpuscale.dev/certificate-since"
"""Annotation of the Secret: when the latest step of a renewal was made."""
LOOK_EVERY_S = 10.0
_RETRY_S = 1.0
"""Also while an APIService is missing: an installation makes them last, and waits for them."""
_START_TRIES = 30
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_LOG = logging.getLogger(__name__)


class SecretCertificate:
    """The certificate and key of the Secret, written to files for `ServingCertificate`.

    Args:
        client: may get and update the Secret, and get and patch the APIServices.
        secret: where the certificate is kept, and who is to trust it.
        service: name of the Service, and its namespace; an APIService of another one is left alone.
        folder: for the files; those of an earlier start serve until the API server answers.
        clock: of waits and of the certificates.
    """

    def __init__(
        self,
        client: KubeClient,
        secret: SecretSettings,
        service: tuple[str, str],
        folder: Path,
        clock: Clock,
    ) -> None:
        self.files = CertificateFiles(folder / CERTIFICATE_FILE, folder / KEY_FILE)
        self.fault: str | None = None
        """Why the Secret can't be read or written; the last good certificate stays."""
        self._client = client
        self._secret = secret
        self._service = {"name": service[0], "namespace": service[1]}
        self._names = names_of_service(*service)
        self._folder = folder
        self._clock = clock
        self._misses_services = False

    @property
    def _where(self) -> str:
        return f"{self._secret.namespace}/{self._secret.name}"

    async def open(self) -> None:
        """Wait until the Secret's certificate is there, and write its files.

        Raises:
            UsageError: the folder can't be written to.
            UnavailableError: there is no certificate in the Secret, and none can be put there.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--cert-dir {self._folder}: {error.strerror}") from error
        for _ in range(_START_TRIES):
            await self._look()
            if self._has_good_files():
                return
            await asyncio.sleep(_RETRY_S)
        raise UnavailableError(
            f"there is no certificate to serve with after {_START_TRIES * _RETRY_S:g} s: {self.fault}"
        )

    async def run(self) -> None:
        """Watch the Secret and take the renewal steps that are due, until cancelled."""
        while True:
            await self._clock.sleep(_RETRY_S if self._misses_services else LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        try:
            await self._round()
        except (GpuscaleError, OSError) as error:
            fault = f"Secret {self._where}: {error}"
            if isinstance(error, ApiStatusError) and error.code == NOT_FOUND:
                fault += "; it is made by the installation, empty"
            if fault != self.fault:
                _LOG.warning("the serving certificate is not followed: %s", fault)
            self.fault = fault
        else:
            self.fault = None

    async def _round(self) -> None:
        path = f"/api/v1/namespaces/{self._secret.namespace}/secrets/{self._secret.name}"
        secret = await self._client.get(path)
        stored = _stored(secret)
        is_published = bool(stored.bundle) and await self._publish(stored.bundle)
        if stored.current is None and not stored.bundle:
            # Replicas of an older release still show the certificate that the APIServices trust
            # now.
            stored = SharedCertificate(bundle=await self._trusted_now())
        changed = next_step(
            stored,
            self._names,
            self._clock.now_ms(),
            self._secret.days,
            is_published=is_published,
        )
        if changed is not None:
            try:
                await self._client.replace(path, _with(secret, changed))
            except ApiStatusError as error:
                if error.code != CONFLICT:
                    raise
                _LOG.debug("another replica wrote the Secret first")
                return
            _LOG.info("certificate in Secret %s: %s", self._where, _what(stored, changed))
            await self._publish(changed.bundle)
            stored = changed
        self._write(stored)

    async def _publish(self, bundle: bytes) -> bool:
        """Write the CA bundle into the APIServices; return whether all of them had it already."""
        wanted = base64.b64encode(bundle).decode()
        had_it, self._misses_services = True, False
        for name in self._secret.api_services:
            spec = await self._own_spec(name)
            if spec is not None and spec.get("caBundle") != wanted:
                had_it = False
                path = f"{_API_SERVICES}/{name}"
                await self._client.patch(path, {"spec": {"caBundle": wanted}})
        return had_it

    async def _trusted_now(self) -> bytes:
        """Return the CAs of all APIServices, each once."""
        found: dict[bytes, None] = {}
        for name in self._secret.api_services:
            spec = await self._own_spec(name)
            if spec is not None and isinstance(bundle := spec.get("caBundle"), str):
                found[_decoded(bundle)] = None
        return b"".join(found)

    async def _own_spec(self, name: str) -> Mapping[str, Any] | None:
        """Return an APIService's spec; None if it is missing or belongs to another Service."""
        found = await self._client.find(f"{_API_SERVICES}/{name}")
        self._misses_services |= found is None
        spec: Mapping[str, Any] = (found or {}).get("spec") or {}
        service = spec.get("service") or {}
        is_own = all(service.get(key) == text for key, text in self._service.items())
        return spec if is_own else None

    def _write(self, stored: SharedCertificate) -> None:
        if stored.current is None:
            return
        # The key first, as a mismatched pair is not loaded (`ServingCertificate`).
        for path, content in (
            (self._folder / CA_FILE, stored.bundle),
            (self.files.key, stored.current.key),
            (self.files.certificate, stored.current.certificate),
        ):
            if not path.exists() or path.read_bytes() != content:
                write_private(path, content)

    def _has_good_files(self) -> bool:
        try:
            pair = KeyPair(self.files.certificate.read_bytes(), self.files.key.read_bytes())
        except OSError:
            return False
        return can_serve(pair, self._names[0], self._clock.now_ms())


def _stored(secret: Mapping[str, Any]) -> SharedCertificate:
    data = secret.get("data") or {}
    texts = {key: _decoded(text) for key, text in data.items() if isinstance(text, str)}
    since = (secret["metadata"].get("annotations") or {}).get(SINCE, "")
    return SharedCertificate(
        texts.get("ca.crt", b""),
        _pair(texts, "tls"),
        _pair(texts, "next"),
        _since_ms(since),
    )


def _pair(texts: Mapping[str, bytes], name: str) -> KeyPair | None:
    certificate, key = texts.get(f"{name}.crt"), texts.get(f"{name}.key")
    return KeyPair(certificate, key) if certificate and key else None


def _since_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _with(secret: Mapping[str, Any], stored: SharedCertificate) -> dict[str, Any]:
    """Return the Secret with new content; `resourceVersion` stays, so that a concurrent write fails."""
    files = {"ca.crt": stored.bundle}
    for name, pair in (("tls", stored.current), ("next", stored.next)):
        if pair is not None:
            files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
    since = datetime.fromtimestamp(stored.since_ms / 1000, UTC).isoformat(timespec="seconds")
    metadata = dict(secret["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SINCE: since}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {**secret, "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _what(before: SharedCertificate, after: SharedCertificate) -> str:
    if after.next is not None:
        return "the next one is made; clients learn to trust it first"
    if before.next is not None and after.current == before.next:
        return "the next one serves now"
    if after.current != before.current:
        return "a new one serves now"
    return "the CA before it is trusted no more"
