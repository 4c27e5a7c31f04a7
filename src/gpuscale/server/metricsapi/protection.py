"""Who may ask a metrics API server over HTTPS, and the certificate that it shows."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.base.exposition.families import Family
from gpuscale.base.pki import names_of_service
from gpuscale.kube.client import SERVICE_ACCOUNT, KubeClient
from gpuscale.server.metricsapi.api_servers import ApiServers, kube_settings
from gpuscale.server.metricsapi.backend import Task
from gpuscale.server.metricsapi.health import HealthCheck, remarked
from gpuscale.server.metricsapi.security.audit import AuditLog, audit_families
from gpuscale.server.metricsapi.security.authentication import Authenticator
from gpuscale.server.metricsapi.security.authorization import Authorizer
from gpuscale.server.metricsapi.security.client_tls import TlsRules
from gpuscale.server.metricsapi.security.guard import Guard
from gpuscale.server.metricsapi.security.named_certificates import NamedCertificates, NamedFiles
from gpuscale.server.metricsapi.security.reviews import (
    AccessReviewer,
    TokenReviewer,
    TrustConfigMap,
)
from gpuscale.server.metricsapi.security.serving_certificate import (
    CertificateFiles,
    OwnCertificate,
    ServingCertificate,
    given_in,
)
from gpuscale.server.metricsapi.security.shared_certificate import SecretCertificate
from gpuscale.server.metricsapi.security.trust import TrustSources
from gpuscale.server.metricsapi.settings import MetricsApiSettings, ServingSettings
from gpuscale.server.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
)

_LOG = logging.getLogger(__name__)
_TRUST_WAIT_S = 10.0
"""How long the start waits for the cluster's trust, in the machine's seconds."""


class Protection:
    """The guard and the serving certificate, with the tasks that renew them.

    Args:
        settings: of the server.
        cluster: the API servers that are asked; None where there is none.
        metrics: count what the guard refuses.
        clock: for all waits and times.
        shared: the certificate that replicas share, opened; None where they don't.
    """

    def __init__(
        self,
        settings: MetricsApiSettings,
        cluster: ApiServers | None,
        metrics: ServerMetrics,
        clock: Clock,
        shared: SecretCertificate | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._shared = shared
        self.tasks: list[Task] = []
        """What has to run beside the server."""
        self._caches: dict[str, TokenReviewer | AccessReviewer] = {}
        self._audit_log: AuditLog | None = None
        self._published: TrustConfigMap | None = None
        self.guard = self._make_guard(cluster)
        self.certificate = self._make_certificate()

    async def close(self) -> None:
        """Wait for token and access reviews in flight."""
        for cache in self._caches.values():
            await cache.close()

    def checks(self) -> list[HealthCheck]:
        """Return what the health endpoints report."""
        shared = None if self._shared is None else self._shared.fault
        faults = [self.certificate.fault, shared, *self._named.faults()]
        return [
            remarked("authentication", self._trust.faults()),
            remarked("certificate", faults),
        ]

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return hits and misses of each cache of reviews."""
        return {
            name: (cache.counts.hits, cache.counts.misses) for name, cache in self._caches.items()
        }

    def audit_families(self) -> Sequence[Family]:
        return () if self._audit_log is None else audit_families(self._audit_log)

    async def wait_for_trust(self) -> None:
        """Wait until the cluster's CAs are known, if they are needed.

        Raises:
            UnavailableError: it is unavailable.
        """
        if self._published is None or self._trust.is_known():
            return
        try:
            async with asyncio.timeout(_TRUST_WAIT_S):
                await self._published.tried.wait()
        except TimeoutError:
            _LOG.debug("there is no answer about trust yet")
        if self._trust.is_known() or self._settings.auth.tolerates_lookup_failure:
            return
        reason = "; ".join(self._trust.faults())
        raise UnavailableError(
            f"it is not known whom to trust: {reason}; bind the Role "
            "extension-apiserver-authentication-reader in kube-system, or give "
            "--authentication-tolerate-lookup-failure to start without it"
        )

    def _make_guard(self, cluster: ApiServers | None) -> Guard:
        auth = self._settings.auth
        tokens = access = None
        if cluster is not None:
            tokens = TokenReviewer(cluster.tokens, self._clock, auth.token_ttl_s)
            access = AccessReviewer(
                cluster.access, self._clock, auth.allowed_ttl_s, auth.denied_ttl_s
            )
            self._caches = {"token": tokens, "access": access}
            has_files = auth.client_ca_file and auth.proxy_ca_file
            if not auth.skips_lookup and not has_files:
                kube = kube_settings(self._settings, auth.authentication_kubeconfig)
                self._published = TrustConfigMap(cluster.tokens, kube, self._clock)
                self.tasks.append(("trust", self._published.run))
        self._trust = TrustSources(auth, self._published, self._clock)
        self.tasks.append(("CA files", self._trust.run))
        if self._settings.audit is not None:
            self._audit_log = AuditLog(self._settings.audit)
            self.tasks.append(("audit log", self._audit_log.run))
        return Guard(
            Authenticator(self._trust.trust, tokens),
            Authorizer(access, auth.always_allowed),
            self._metrics,
            audit_log=self._audit_log,
        )

    def _make_certificate(self) -> ServingCertificate:
        serving = self._settings.serving
        rules = TlsRules(serving.tls_min_version, serving.ciphers)
        if serving.certificate is not None:
            files = CertificateFiles(*serving.certificate)
        elif self._shared is not None:
            files = self._shared.files
            self.tasks.append(("certificate in a Secret", self._shared.run))
        else:
            folder = serving.certificate_folder
            files = given_in(folder) or self._own_certificate(serving)
        pairs = [
            NamedFiles(CertificateFiles(pair.certificate, pair.key), pair.names)
            for pair in serving.named_certificates
        ]
        self._named = NamedCertificates(pairs, rules, self._clock)
        certificate = ServingCertificate(files, rules, self._clock, self._named.context)
        self.tasks.append(("certificate", certificate.run))
        self.tasks.append(("certificates of single names", self._named.run))
        return certificate

    def _own_certificate(self, serving: ServingSettings) -> CertificateFiles:
        names = names_of_service(serving.service_name, _namespace(serving))
        own = OwnCertificate(serving.certificate_folder, names, self._clock)
        self.tasks.append(("renewal", own.run))
        _LOG.info("made a certificate for %s in %s", names[0], serving.certificate_folder)
        if serving.ca_bundle_file is not None:
            path = serving.ca_bundle_file
            try:
                path.write_text(own.ca_bundle, encoding="utf-8")
            except OSError as error:
                raise UsageError(
                    f"--ca-bundle-file: can't write {path}: {error.strerror}"
                ) from error
        else:
            _LOG.info("its CA, for the caBundle of an APIService:\n%s", own.ca_bundle)
        return own.files


async def open_shared_certificate(
    settings: MetricsApiSettings, stack: AsyncExitStack, clock: Clock
) -> SecretCertificate | None:
    """Return the certificate that replicas share, once it exists; None if replicas share none.

    Raises:
        UsageError: the folder can't be written to.
        UnavailableError: there is no certificate in the Secret, and none can be put there.
    """
    serving = settings.serving
    if serving.secret is None or not serving.secure_port:
        return None
    client = KubeClient(kube_settings(settings, settings.kubeconfig))
    stack.push_async_callback(client.close)
    service = serving.service_name, _namespace(serving)
    shared = SecretCertificate(client, serving.secret, service, serving.certificate_folder, clock)
    await shared.open()
    return shared


def _namespace(serving: ServingSettings) -> str:
    if serving.service_namespace:
        return serving.service_namespace
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"
