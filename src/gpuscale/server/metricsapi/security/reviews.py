"""TokenReviews, SubjectAccessReviews and the CAs to trust, asked of the API server and cached briefly.

Answers are remembered for a short time, and only as many as fit a bound. A question that the API server
can't answer is an error; an old answer does not stand in for it.

Source: k8s.io/apiserver v0.30.0 pkg/authentication/token/cache, plugin/pkg/authorizer/webhook,
pkg/server/dynamiccertificates (configmap_cafile_content.go), pkg/authentication/request/headerrequest
(requestheader_controller.go).
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuscale.base.byte_cache import ByteCache, deep_bytes
from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube import mapping_of, text_of, texts_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector, ReflectorState

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
"""The group that may do everything; the API server's availability probe comes with it."""
AUTH_CONFIG_NAMESPACE = "kube-system"
AUTH_CONFIG_NAME = "extension-apiserver-authentication"
MAX_TOKEN = 16 * 1024
_MAX_BYTES = 4 * 1024 * 1024
"""Of the answers to one kind of question; one about a user and a metric takes about a kilobyte."""
_MAX_STRANGERS_BYTES = 256 * 1024
"""Of what those may do who showed nothing; they can't push out what is known of others."""
_MAX_KEY_BYTES = 16 * 1024
"""Of a question that is remembered; Kubernetes draws the line at 10 000 characters."""
_RENEW_FROM, _RENEW_TO = 0.75, 0.95
"""Shares of an answer's time, between which its renewal begins."""
_MAX_AT_ONCE = 8
"""Questions on their way."""
_FAILURE_S = 1.0
"""How long those who asked the same meanwhile get the same failure; a queue of timeouts doesn't help."""


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated or anonymous user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further facts, sorted by key."""

    def authenticated(self) -> "User":
        """Return the user with the group `system:authenticated` added."""
        if AUTHENTICATED in self.groups:
            return self
        return User(self.name, (*self.groups, AUTHENTICATED), self.uid, self.extra)


NOBODY = User(ANONYMOUS, (UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class Attributes:
    """Verb, resource, namespace and name of a request, as RBAC grants access."""

    verb: str
    path: str
    """Of the URL."""
    is_resource: bool = False
    """Whether the fields below count, and not the path."""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether access is allowed, and why."""

    allowed: bool
    reason: str = ""


@dataclass(slots=True)
class CacheCounts:
    """Hits and misses of a cache."""

    hits: int = 0
    misses: int = 0


@dataclass(frozen=True, slots=True)
class _Held(Generic[V]):
    """A cached answer, with the times to renew and to drop it."""

    answer: V | GpuscaleError
    renew_ms: int
    """From when on it is asked for again."""
    until_ms: int


class Remembered(Generic[K, V]):
    """A cache of reviews by question. Equal questions in flight share one request.

    Who asks again when most of an answer's time is over gets it still, and has it renewed; so those
    who ask all the time never wait. The moment differs from question to question, or all would come at once.
    An answer that can't be renewed holds until its time is over, and no longer.

    Args:
        ttl_s: for how long an answer holds; 0 for not at all.
        clock: gives the times.
        name: of the cache in metrics.
        most_bytes: of the answers that are kept with their questions.
    """

    def __init__(
        self,
        ttl_s: Callable[[V], float],
        clock: Clock,
        name: str = "reviews",
        most_bytes: int = _MAX_BYTES,
    ) -> None:
        self.counts = CacheCounts()
        self._ttl_s = ttl_s
        self._clock = clock
        self._answers: ByteCache[K, _Held[V]] = ByteCache(
            name, most_bytes, most_entry_bytes=_MAX_KEY_BYTES
        )
        self._asking: dict[K, asyncio.Lock] = {}
        self._renewing: dict[K, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(_MAX_AT_ONCE)

    async def close(self) -> None:
        """Cancel renewals in flight."""
        tasks = list(self._renewing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the cached answer, or what `ask` returns.

        Raises:
            GpuscaleError: what asking raised, now or a moment ago.
        """
        held, now_ms = self._answers.get(key), self._clock.now_ms()
        if held is None or now_ms >= held.until_ms:
            found = await self._in_turn(key, ask)
        else:
            self.counts.hits += 1
            found = held.answer
            if now_ms >= held.renew_ms:
                self._renew(key, ask)
        if isinstance(found, GpuscaleError):
            raise found
        return found

    def _renew(self, key: K, ask: Callable[[], Awaitable[V]]) -> None:
        if key in self._renewing:
            return
        task = asyncio.create_task(self._renewed(key, ask), name="renewal")
        self._renewing[key] = task
        task.add_done_callback(lambda _: self._renewing.pop(key, None))

    async def _renewed(self, key: K, ask: Callable[[], Awaitable[V]]) -> None:
        self.counts.misses += 1
        with suppress(GpuscaleError):
            async with self._at_once:
                answer = await ask()
            self._keep(key, answer, self._ttl_s(answer))

    async def _in_turn(self, key: K, ask: Callable[[], Awaitable[V]]) -> V | GpuscaleError:
        lock = self._asking.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._known(key)
                if found is not None:
                    self.counts.hits += 1
                    return found
                self.counts.misses += 1
                return await self._asked(key, ask)
        finally:
            if not lock.locked():
                self._asking.pop(key, None)

    async def _asked(self, key: K, ask: Callable[[], Awaitable[V]]) -> V | GpuscaleError:
        try:
            async with self._at_once:
                answer = await ask()
        except GpuscaleError as error:
            self._keep(key, error, _FAILURE_S)
            return error
        self._keep(key, answer, self._ttl_s(answer))
        return answer

    def _keep(self, key: K, answer: V | GpuscaleError, seconds: float) -> None:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + round(seconds * 1000)
        renew_ms = until_ms
        if not isinstance(answer, GpuscaleError):
            share = _RENEW_FROM + (_RENEW_TO - _RENEW_FROM) * (hash(key) % 1024) / 1024
            renew_ms = now_ms + round(seconds * 1000 * share)
        if seconds > 0:
            held = _Held(answer, renew_ms, until_ms)
            self._answers.put(key, held, deep_bytes(key) + deep_bytes(held))

    def _known(self, key: K) -> V | GpuscaleError | None:
        held = self._answers.get(key)
        return held.answer if held is not None and self._clock.now_ms() < held.until_ms else None


class TokenReviewer:
    """Finds a bearer token's user by TokenReview.

    Args:
        client: to the API server.
        clock: gives the times.
        ttl_s: for how long an answer holds.
    """

    def __init__(self, client: KubeClient, clock: Clock, ttl_s: float = 10.0) -> None:
        self._client = client
        self._cache: Remembered[bytes, User | AccessDecision] = Remembered(
            lambda _: ttl_s, clock, "token reviews"
        )

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    async def close(self) -> None:
        await self._cache.close()

    async def review(self, token: str) -> User | None:
        """Return the token's user; None for an invalid token.

        Raises:
            GpuscaleError: the API server can't tell.
        """
        if not token or len(token) > MAX_TOKEN:
            return None
        # The cache is keyed by a digest, so that tokens don't stay in memory.
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = await self._cache.get(digest, lambda: self._review(token))
        return found if isinstance(found, User) else None

    async def _review(self, token: str) -> User | AccessDecision:
        question: JsonObject = {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"token": token},
        }
        answer = await self._client.ask("/apis/authentication.k8s.io/v1/tokenreviews", question)
        return _reviewed(answer) or AccessDecision(allowed=False)


def _reviewed(answer: JsonObject) -> User | None:
    status = mapping_of(answer.get("status"))
    user = mapping_of(status.get("user"))
    name = user.get("username")
    if status.get("authenticated") is not True or not isinstance(name, str) or not name:
        return None
    extra = {key: texts_of(values) for key, values in mapping_of(user.get("extra")).items()}
    return User(
        name, texts_of(user.get("groups")), text_of(user.get("uid")), tuple(sorted(extra.items()))
    )


class AccessReviewer:
    """Decides permissions by SubjectAccessReview.

    Args:
        client: to the API server.
        clock: gives the times.
        allowed_ttl_s: for how long a permission holds.
        denied_ttl_s: for how long a refusal holds.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        allowed_ttl_s: float = 10.0,
        denied_ttl_s: float = 10.0,
    ) -> None:
        self._client = client

        def ttl_s(decision: AccessDecision) -> float:
            return allowed_ttl_s if decision.allowed else denied_ttl_s

        self._known: Remembered[tuple[User, Attributes], AccessDecision] = Remembered(
            ttl_s, clock, "access reviews"
        )
        self._strangers: Remembered[tuple[User, Attributes], AccessDecision] = Remembered(
            ttl_s, clock, "access reviews of strangers", _MAX_STRANGERS_BYTES
        )

    @property
    def counts(self) -> CacheCounts:
        known, strangers = self._known.counts, self._strangers.counts
        return CacheCounts(known.hits + strangers.hits, known.misses + strangers.misses)

    async def close(self) -> None:
        await self._known.close()
        await self._strangers.close()

    async def review(self, user: User, attributes: Attributes) -> AccessDecision:
        """Return whether the user has the permission.

        Raises:
            GpuscaleError: the API server can't tell.
        """
        key = (user, attributes)
        cache = self._strangers if UNAUTHENTICATED in user.groups else self._known
        return await cache.get(key, lambda: self._review(user, attributes))

    async def _review(self, user: User, attributes: Attributes) -> AccessDecision:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._client.ask(path, access_review(user, attributes))
        status = mapping_of(answer.get("status"))
        return AccessDecision(status.get("allowed") is True, text_of(status.get("reason")))


def access_review(user: User, attributes: Attributes) -> JsonObject:
    """Return the SubjectAccessReview that asks whether the user may do it."""
    spec: JsonObject = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    if attributes.is_resource:
        fields = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        found = {name: getattr(attributes, name) for name in fields}
        spec["resourceAttributes"] = {name: value for name, value in found.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    return {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The names of the headers in which a front proxy names its user."""

    ca_pem: str
    """Who signs the proxies' certificates."""
    allowed_names: tuple[str, ...] = ()
    """Common names of proxies; any when empty."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)
    uid_headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """The CAs of client certificates, and those of front proxies."""

    client_ca_pem: str | None = None
    """Of client certificates; None where none are accepted."""
    request_headers: RequestHeaders | None = None
    """None where no front proxy is trusted."""


def trust_of_config_map(data: Mapping[str, str]) -> Trust:
    """Return the CAs and header names of the ConfigMap `extension-apiserver-authentication`.

    Raises:
        ValueError: a field is no JSON list of texts.
    """
    client_ca = data.get("client-ca-file") or None
    proxy_ca = data.get("requestheader-client-ca-file")
    if not proxy_ca:
        return Trust(client_ca)
    headers = RequestHeaders(
        proxy_ca,
        _listed(data, "requestheader-allowed-names"),
        _listed(data, "requestheader-username-headers"),
        _listed(data, "requestheader-group-headers"),
        _listed(data, "requestheader-extra-headers-prefix"),
        _listed(data, "requestheader-uid-headers"),
    )
    return Trust(client_ca, headers)


@dataclass(slots=True)
class _Latest:
    trust: Trust | None = field(default=None)
    fault: str | None = None


class TrustConfigMap:
    """The ConfigMap in which the API server publishes its CAs for aggregated servers, watched by `run`."""

    def __init__(self, connection: KubeClient, settings: KubeSettings, clock: Clock) -> None:
        self.tried = asyncio.Event()
        """Set once it was looked for, found or not."""
        self._latest = _Latest()
        self._reflector: Reflector[None] = Reflector(
            connection,
            settings,
            f"/api/v1/namespaces/{AUTH_CONFIG_NAMESPACE}/configmaps",
            {"fieldSelector": f"metadata.name={AUTH_CONFIG_NAME}"},
            self._read,
            clock,
            self.tried.set,
        )

    @property
    def trust(self) -> Trust | None:
        """Return the latest valid CAs; None before the first."""
        return self._latest.trust

    @property
    def fault(self) -> str | None:
        """Return why the CAs may be old or missing; None if they are current."""
        state: ReflectorState = self._reflector.state
        if state.error is not None:
            return str(state.error)
        missing = f"there is no ConfigMap {AUTH_CONFIG_NAMESPACE}/{AUTH_CONFIG_NAME}"
        return self._latest.fault or (missing if self.trust is None else None)

    async def run(self) -> None:
        """Watch the ConfigMap until cancelled."""
        await self._reflector.run()

    def _read(self, body: JsonObject) -> None:
        data = mapping_of(body.get("data"))
        try:
            trust = trust_of_config_map({key: text_of(value) for key, value in data.items()})
        except ValueError as error:
            self._latest.fault = str(error)
        else:
            self._latest = _Latest(trust)


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    if not text:
        return ()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return tuple(found)
    where = f"{AUTH_CONFIG_NAMESPACE}/{AUTH_CONFIG_NAME}: {key}"
    raise ValueError(f"{where}: found {text[:60]!r}, expected a JSON list of texts")
