"""Applies an installation's objects: all of them, or none.

Each object is applied by the server (server-side apply), so that fields which others set stay theirs. The
state before is kept, and put back when a later step fails or the run is interrupted.

Source: kubernetes-sigs/structured-merge-diff, fieldpath (serialize.go), for what a field manager has applied:
`f:` is a field, `k:` an item of a list by its keys, `v:` an item of a set by its value, `.` the thing itself.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import urlencode

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.kube.client import CONFLICT, ApiStatusError, KubeClient
from gpuscale.ops.install.cluster.handover import in_the_way, keep_count, still_there
from gpuscale.ops.install.cluster.kinds import Reference, path_of, reference
from gpuscale.ops.install.cluster.ownership import creatable, essence, replaced, with_way_back
from gpuscale.ops.install.cluster.plan import (
    FIELD_MANAGER,
    ApplyStep,
    Plan,
    make_plan,
    server_side_apply,
)
from gpuscale.ops.install.cluster.waiting import Announce, Waiter
from gpuscale.ops.install.common import CA_SECRET, Object

_UNDO_S = 120.0
"""For each object that is removed again; namespaces take their time."""
_TAKEOVER_S = 60.0
"""For an API that another server had: while ours does not answer, nobody does. Its pods are ready by then."""
_FIELD, _KEYS, _VALUE = "f:", "k:", "v:"
_SCALERS = ("HorizontalPodAutoscaler", "ScaledObject", "ScaledJob")


class ApplyOutcome(Enum):
    """What happened to an object."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    RECREATED = "recreated"
    REMOVED = "removed"
    RESTORED = "restored"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One object and what happened to it."""

    reference: Reference
    outcome: ApplyOutcome

    def __str__(self) -> str:
        return f"{self.reference} {self.outcome.value}"


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """How to apply."""

    replaces: bool = False
    """Takes over what belongs to others, and keeps the way back."""
    forces: bool = False
    """Takes over single fields that others have set since."""
    is_dry_run: bool = False
    """The server checks everything and changes nothing."""
    wait_s: float = 300.0
    """For each thing that takes time."""


class Installer:
    """Applies objects to a cluster.

    Args:
        client: to the API server.
        clock: times the waits.
        announce: gets a line where something takes time or is not well.
        settings: how.
    """

    def __init__(
        self, client: KubeClient, clock: Clock, announce: Announce, settings: ApplySettings
    ) -> None:
        self._client = client
        self._announce = announce
        self._settings = settings
        self._waiter = Waiter(client, clock, announce, settings.wait_s)
        self._undoing = Waiter(client, clock, announce, _UNDO_S)
        self._taking_over = Waiter(client, clock, announce, min(settings.wait_s, _TAKEOVER_S))
        self._tried: list[ApplyStep] = []
        self._outcomes: dict[Reference, ApplyOutcome] = {}
        self._gave_way: list[Mapping[str, Any]] = []

    async def install(self, name: str, objects: Sequence[Object]) -> list[ClusterChange]:
        """Apply everything, wait until it works, and return the changes.

        Raises:
            UsageError: something is in the way; nothing was changed.
            GpuscaleError: a step failed; what the steps before it did has been taken back.
        """
        plan = await make_plan(self._client, name, objects, replaces=self._settings.replaces)
        if self._settings.is_dry_run:
            return await self._try_out(plan)
        try:
            await self._apply_all(plan)
        except BaseException as error:
            undone = await self._roll_back()
            if isinstance(error, GpuscaleError):
                raise UpstreamError(f"{error}\n{undone}") from error
            self._announce(undone)
            raise
        kept = [ClusterChange(each, ApplyOutcome.KEPT) for each in plan.kept]
        made = [ClusterChange(each, outcome) for each, outcome in self._outcomes.items()]
        gone = [ClusterChange(reference(body), ApplyOutcome.REMOVED) for body in self._gave_way]
        surplus = [body for body in plan.surplus if body not in self._gave_way]
        removed = [
            ClusterChange(reference(body), await take_away(self._client, body))
            for body in reversed(surplus)
        ]
        return [*kept, *made, *gone, *removed]

    async def _apply_all(self, plan: Plan) -> None:
        """Apply servers first, then the APIs they serve, then objects that use these APIs.

        What has to be recreated comes last, so that no other step's failure costs it its pods.
        """
        apis = [step for step in plan.steps if step.body["kind"] == "APIService"]
        scalers = [step for step in plan.steps if step.body["kind"] in _SCALERS]
        anew = [step for step in plan.steps if step.immutable]
        first = [step for step in plan.steps if step not in (*apis, *scalers, *anew)]
        for steps in (first, apis, scalers, anew):
            if steps is scalers:
                await self._make_way(plan)
            for step in steps:
                # Recorded before the attempt, as a lost response does not tell whether it
                # succeeded.
                self._tried.append(step)
                if step.is_foreign and step.before is not None:
                    await self._take_over(step.body, step.before)
                if step.immutable:
                    self._announce(_made_anew(step))
                    # Its pods must free their GPUs first.
                    await self._remove_whole(step, self._waiter, "Foreground")
                after = await self._patch(step.body, forces=step.is_foreign)
                self._outcomes[step.reference] = _outcome(step, after)
            for step in steps:
                if step.body["kind"] != "DaemonSet":
                    waiter = self._taking_over if step.is_foreign else self._waiter
                    await waiter.until_works(step.body)
        for step in first:
            if step.body["kind"] == "DaemonSet":
                try:
                    await self._waiter.until_works(step.body)
                except UnavailableError as error:
                    # One unhealthy node should not keep agents off the others. A node that can
                    # never run the pod raises UpstreamError, which ends the installation.
                    self._announce(f"warning: {error}; the installation goes on")

    async def _make_way(self, plan: Plan) -> None:
        """Remove our autoscalers of workloads that get another kind of autoscaler, as two would conflict."""
        for body in in_the_way(plan.surplus, [step.body for step in plan.steps]):
            self._gave_way.append(body)
            await take_away(self._client, body)

            async def left(body: Mapping[str, Any] = body) -> str | None:
                return await still_there(self._client, body)

            await self._waiter.until(f"{reference(body)} to be gone", left)

    async def _take_over(
        self, body: Object, before: Mapping[str, Any], **options: str
    ) -> Mapping[str, Any]:
        """Replace another owner's object, so that its fields don't remain beside ours."""
        query = {"fieldManager": f"{FIELD_MANAGER}-replace", **options}
        new = with_way_back(await self._trusted(body), before)
        new["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        return await self._client.replace(f"{path_of(body)}?{urlencode(query)}", new)

    async def _trusted(self, body: Object) -> Object:
        """Return an APIService with the CA of its server's pods, so that it is trusted from the start."""
        spec = body.get("spec", {})
        secret = body["metadata"].get("annotations", {}).get(CA_SECRET)
        if body["kind"] != "APIService" or secret is None or "caBundle" in spec:
            return body
        namespace, name = secret.split("/")
        try:
            found = await self._client.find(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        except ApiStatusError as error:
            self._announce(f"warning: requests may fail until the pods are trusted: {error}")
            return body
        bundle = ((found or {}).get("data") or {}).get("ca.crt")
        return body if bundle is None else {**body, "spec": {**spec, "caBundle": bundle}}

    async def _patch(
        self, body: Object, *, forces: bool = False, **options: str
    ) -> Mapping[str, Any]:
        forced = forces or self._settings.forces
        try:
            return await server_side_apply(self._client, body, forces=forced, **options)
        except ApiStatusError as error:
            if error.code != CONFLICT:
                raise
            raise UpstreamError(f"{error}; --force-conflicts takes these fields over") from error

    async def _try_out(self, plan: Plan) -> list[ClusterChange]:
        """Have the server check everything."""
        new_namespaces = {
            step.reference.name
            for step in plan.steps
            if step.body["kind"] == "Namespace" and step.before is None
        }
        changes = [ClusterChange(each, ApplyOutcome.KEPT) for each in plan.kept]
        for step in plan.steps:
            if in_the_way(plan.surplus, [step.body]):
                # KEDA's webhook refuses it while the old autoscaler exists, which is removed
                # first.
                changes.append(ClusterChange(step.reference, ApplyOutcome.CREATED))
                continue
            metadata = step.body["metadata"]
            if step.reference.namespace in new_namespaces:
                # A dry run creates no namespace, so `default` stands in for it.
                metadata = {**metadata, "namespace": "default"}
            if step.immutable:
                self._announce(_made_anew(step))
                # Under another name, as this one exists until the replacement is done.
                metadata = {**metadata, "name": f"{metadata['name']}-anew"}
            body = {**step.body, "metadata": metadata}
            if step.is_foreign and step.before is not None:
                after = await self._take_over(body, step.before, dryRun="All")
            else:
                after = await self._patch(body, dryRun="All")
            changes.append(ClusterChange(step.reference, _outcome(step, after)))
        surplus = [ClusterChange(reference(body), ApplyOutcome.REMOVED) for body in plan.surplus]
        return [*changes, *surplus]

    async def _roll_back(self) -> str:
        """Restore the earlier state, last step first; return what was restored and what could not be."""
        lines = []
        for step in reversed(self._tried):
            if self._outcomes.get(step.reference) is ApplyOutcome.UNCHANGED:
                continue
            try:
                lines.append(await self._undo(step))
            except GpuscaleError as error:
                lines.append(f"could not take back {step.reference}: {error}")
        for body in self._gave_way:
            try:
                await put_back(self._client, body)
                lines.append(f"taken back: {reference(body)} as it was")
            except GpuscaleError as error:
                lines.append(f"could not take back {reference(body)}: {error}")
        return "\n".join(lines) if lines else "nothing had been changed"

    async def _undo(self, step: ApplyStep) -> str:
        if step.before is None or step.immutable:
            await self._remove_whole(step, self._undoing, "Background")
        if step.before is None:
            return f"taken back: {step.reference} removed"
        earlier = None if step.is_foreign else applied(step.before, FIELD_MANAGER)
        if earlier is None:
            await put_back(self._client, step.before)
        else:
            await self._patch(earlier, forces=True)
        again = ", and starts over" if step.immutable else ""
        return f"taken back: {step.reference} as it was{again}"

    async def _remove_whole(self, step: ApplyStep, waiter: Waiter, propagation: str) -> None:
        """Remove an object and wait until it is gone."""
        path = path_of(step.body)
        await keep_count(self._client, step.body)
        await self._client.delete(path, {"propagationPolicy": propagation})

        async def left() -> str | None:
            return None if await self._client.find(path) is None else "it is ending"

        await waiter.until(f"{step.reference} to be gone", left)


async def put_back(client: KubeClient, before: Mapping[str, Any]) -> None:
    """Write an object's earlier content back.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    path, body = path_of(before), essence(before)
    now = await client.find(path)
    if now is None:
        await client.create(path.rsplit("/", 1)[0], creatable(body))
        return
    body["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
    await client.replace(path, body)


async def take_away(client: KubeClient, body: Mapping[str, Any]) -> ApplyOutcome:
    """Remove an object, or restore what it had replaced.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    original = replaced(body)
    if original is not None:
        await put_back(client, original)
        return ApplyOutcome.RESTORED
    await keep_count(client, body)
    await client.delete(path_of(body), {"propagationPolicy": "Background"})
    return ApplyOutcome.REMOVED


def applied(body: Mapping[str, Any], manager: str) -> dict[str, Any] | None:
    """Return the object that a manager last applied; None where it never did."""
    for entry in body["metadata"].get("managedFields", []):
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            owned = _part(body, entry["fieldsV1"])
            # The identifying fields have no field manager, but are needed.
            names = {k: v for k, v in body["metadata"].items() if k in ("name", "namespace")}
            metadata = {**owned.get("metadata", {}), **names}
            kind = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
            return {**owned, **kind, "metadata": metadata}
    return None


def _part(value: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON of any shape
    inside = {key: sub for key, sub in fields.items() if key != "."}
    if not inside:
        return value
    if isinstance(value, dict):
        names = {key.removeprefix(_FIELD): sub for key, sub in inside.items()}
        return {name: _part(value[name], sub) for name, sub in names.items() if name in value}
    return [_item(value, key, sub) for key, sub in inside.items()]


def _item(items: list[Any], key: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON of any shape
    wanted = json.loads(key[len(_KEYS) :])
    if key.startswith(_VALUE):
        return wanted
    found = next(each for each in items if all(each.get(k) == v for k, v in wanted.items()))
    return _part(found, fields)


def _outcome(step: ApplyStep, after: Mapping[str, Any]) -> ApplyOutcome:
    """Return what happened to an object, by comparing contents, as a dry run changes no version."""
    if step.before is None:
        return ApplyOutcome.CREATED
    if step.is_foreign:
        return ApplyOutcome.REPLACED
    if step.immutable:
        return ApplyOutcome.RECREATED
    is_same = essence(step.before) == essence(after)
    return ApplyOutcome.UNCHANGED if is_same else ApplyOutcome.CONFIGURED


def _made_anew(step: ApplyStep) -> str:
    fields = ", ".join(step.immutable)
    return (
        f"{step.reference} is made anew and its pods start over, because {fields} can't be changed"
    )
