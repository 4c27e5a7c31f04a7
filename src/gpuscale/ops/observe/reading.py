"""Reads the Decision documents of a cluster's HPAs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.clock import Clock
from gpuscale.base.documents.documents import load_each
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.words import printable, rfc3339
from gpuscale.hpa.decisions import DecisionRequest, read_decision
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.observe.document import document_text
from gpuscale.ops.observe.lookup import find_hpa, find_hpas
from gpuscale.ops.observe.observer import Observer


@dataclass(frozen=True, slots=True)
class HpaSelection:
    """Which HPAs to read."""

    namespace: str | None
    """None is all of them, which takes no names."""
    names: tuple[str, ...] = ()
    """None at all is all HPAs."""


@dataclass(frozen=True, slots=True)
class SeenHpa:
    """An HPA with what its controller sees."""

    name: str
    namespace: str
    document: str
    """A Decision document, as YAML."""
    time: str
    """When it was read, as Kubernetes writes times."""

    @property
    def place(self) -> str:
        return f"hpa/{self.name}"


async def read_hpas(
    settings: KubeSettings, wanted: HpaSelection, clock: Clock
) -> tuple[SeenHpa | GpuscaleError, ...]:
    """Return the Decision document of each HPA, or why it can't be read.

    Raises:
        UsageError: there is no usable kubeconfig.
        ConfigError: the kubeconfig is no YAML.
    """
    async with KubeClient(settings) as client:
        try:
            await client.check_ready()
        except GpuscaleError as error:
            return (error,)
        observer = Observer(client, clock)
        if wanted.namespace is not None and wanted.names:
            place, names = wanted.namespace, wanted.names
            return await at_once(_named(client, observer, place, name) for name in names)
        try:
            bodies = await find_hpas(client, wanted.namespace)
        except GpuscaleError as error:
            return (error,)
        return await at_once(_seen(observer, body) for body in bodies)


async def read_request(
    client: KubeClient,
    clock: Clock,
    namespace: str,
    name: str,
    spec: Mapping[str, object] | None = None,
) -> DecisionRequest:
    """Return what the controller of one HPA would read now, as `decide` takes it.

    Args:
        client: to the API server.
        clock: that ages count back from.
        namespace: of the HPA.
        name: of the HPA.
        spec: that the HPA is taken to have, instead of its own.

    Raises:
        GpuscaleError: the HPA, or what its decision depends on, can't be read.
    """
    seen = await _named(client, Observer(client, clock), namespace, name, spec)
    if isinstance(seen, GpuscaleError):
        raise seen
    (document,) = load_each(seen.document, seen.place)
    if isinstance(document, GpuscaleError):
        raise document
    return read_decision(document)


async def _named(
    client: KubeClient,
    observer: Observer,
    namespace: str,
    name: str,
    spec: Mapping[str, object] | None = None,
) -> SeenHpa | GpuscaleError:
    try:
        body = await find_hpa(client, namespace, name)
    except GpuscaleError as error:
        return error
    return await _seen(observer, body if spec is None else {**body, "spec": dict(spec)})


async def _seen(observer: Observer, body: JsonObject) -> SeenHpa | GpuscaleError:
    try:
        sight = await observer.look(body)
    except GpuscaleError as error:
        return error
    meta = sight.hpa.metadata
    return SeenHpa(meta.name, meta.namespace, document_text(sight), rfc3339(sight.now_ms / 1000))


def saved_text(seen: Sequence[SeenHpa], cluster: str) -> str:
    """Return documents as a file, with a comment on their origin."""
    return "---\n".join(_commented(each, cluster) for each in seen)


def _commented(seen: SeenHpa, cluster: str) -> str:
    where = (
        f"{seen.place} in namespace {seen.namespace}, read at {seen.time} from cluster {cluster}."
    )
    return (
        f"# {printable(where)}\n"
        "# Ages count back from that time, in seconds; `gpuscale decide` of this file answers as then.\n"
        f"{seen.document}"
    )
