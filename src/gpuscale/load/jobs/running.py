"""Runs Jobs: checks rights, submits on schedule, follows them to their end, and deletes them."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError, UsageError
from gpuscale.kube import Right, check_rights, mapping_of, missing_rights, text_of
from gpuscale.kube.client import (
    CONFLICT,
    ApiStatusError,
    ApiUnreachableError,
    JsonObject,
    KubeClient,
    KubeSettings,
)
from gpuscale.kube.informers import Reflector
from gpuscale.load.jobs.chronicle import Chronicle
from gpuscale.load.jobs.cleaning import (
    JobCleaner,
    jobs_path,
    leftover_text,
    pods_path,
    remove_in_the_end,
)
from gpuscale.load.jobs.states import (
    SCALE_UPS,
    JobState,
    NodeSight,
    Standing,
    node_sight,
    standing_of,
)
from gpuscale.load.jobs.template import JobTemplate, run_selector

_FOLLOWING = KubeSettings(retry_s=0.5, max_retry_s=5.0)
_LOOK_S = 0.2
_SHOW_S = 0.5
_MOST_RATE = 20.0
"""Jobs a second that are made at most, so that no API server takes us for an attack."""
_AT_ONE_TIME = 8
_TRY_AGAIN_S = 1.0
_JOB_LABEL = "batch.kubernetes.io/job-name"
_NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One run."""

    template: JobTemplate
    namespace: str
    count: int
    moments_s: tuple[float, ...]
    """When each Job is made, from the start; as many as `count`, ascending."""
    timeout_s: float
    """For each Job, from when it was due until it is done."""
    limit_s: float
    """For the whole run, without its cleaning up."""
    settle_s: float = 0.0
    """How long nodes are followed after the last Job."""
    keeps: bool = False
    """Whether the Jobs stay."""
    options: str = ""
    """What leads kubectl and our commands to the same cluster, beginning with a blank."""


def moments(count: int, gap_s: float | None, rate: float | None, seed: int) -> tuple[float, ...]:
    """Return the Jobs' creation times: with a gap, random at a mean rate per second, or all at once.

    They are never closer than the API server should be asked.
    """
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    least_s = 1 / _MOST_RATE
    at_s, found = 0.0, []
    for index in range(count):
        if index:
            step_s = gap_s or 0.0 if rate is None else draw.expovariate(rate)
            at_s += max(step_s, least_s)
        found.append(at_s)
    return tuple(found)


@dataclass(slots=True)
class JobRun:
    """The result of a run."""

    id: str
    server: str
    plan: JobPlan
    chronicle: Chronicle
    unseen: tuple[str, ...] = ()
    """What the account may not look at."""
    removed: int | None = None
    """Jobs that were removed in the end; None where they stay."""
    fault: str = ""
    """Why some could not be removed."""


OnLook = Callable[[Chronicle], None]


def needed(namespace: str) -> tuple[Right, ...]:
    """Return the rights that a run needs."""
    jobs = [
        Right(namespace, "batch", "jobs", verb)
        for verb in ("create", "delete", "deletecollection", "list", "watch")
    ]
    return (*jobs, *(Right(namespace, "", "pods", verb) for verb in ("delete", "list", "watch")))


class JobRunner:
    """One run on one cluster.

    Args:
        client: to the API server.
        plan: of the run.
        run: its id.
        on_look: called twice a second.
        note: called with what the user should know.
    """

    def __init__(
        self,
        client: KubeClient,
        plan: JobPlan,
        run: str,
        on_look: OnLook,
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._plan = plan
        self._run = run
        self._on_look = on_look
        self._note = note
        self._clock = WallClock()
        self._started_ms = self._clock.now_ms()
        self._promised: set[str] = set()
        self._unmade: dict[str, str] = {}
        """Why a Job's last pod could not be made."""
        self._timed_out: set[str] = set()
        self._creating: set[asyncio.Future[JsonObject]] = set()
        self._is_stale = False
        self._has_nodes = self._has_events = True
        self._submitted = 0
        self._chronicle = Chronicle("", self._started_ms, has_nodes=True)
        resources = plan.template.resources
        self._resource = next(iter(sorted(resources)), "")
        selector = {"labelSelector": run_selector(run)}
        self._jobs = self._follow(jobs_path(plan.namespace), selector)
        self._pods = self._follow(pods_path(plan.namespace), selector)
        self._nodes: Reflector[NodeSight] = Reflector(
            client, _FOLLOWING, _NODES, {}, lambda node: node_sight(node, resources),
            self._clock, self._change,
        )  # fmt: skip

    async def check(self) -> None:
        """Raise unless the run may begin; creates nothing.

        Raises:
            UsageError: the account lacks rights, or the API server would not take the Job.
            UnavailableError: no answer, or not now.
        """
        await self._client.check_ready()
        namespace = self._plan.namespace
        await check_rights(
            self._client,
            needed(namespace),
            "the run",
            "ask for them, or name another namespace with -n",
        )
        nodes = [Right("", "", "nodes", verb) for verb in ("list", "watch")]
        events = [Right(namespace, "", "events", verb) for verb in ("list", "watch")]
        missing = await missing_rights(self._client, (*nodes, *events))
        self._has_nodes = not set(missing) & set(nodes)
        self._has_events = not set(missing) & set(events)
        if not self._has_nodes:
            self._note("this account may not watch nodes: they are left out")
        if not self._has_events:
            self._note("this account may not watch events: a node on its way to a pod is not seen")
        for found in await JobCleaner(self._client, namespace).found():
            self._note(leftover_text(found, self._plan.options))
        body = self._plan.template.job(namespace, self._run, 1, self._plan.count)
        try:
            await self._client.create(f"{jobs_path(namespace)}?dryRun=All", body)
        except ApiStatusError as error:
            raise UsageError(
                f"the API server does not take the Job: {error.said or error}"
            ) from None

    async def perform(self, stop: asyncio.Event) -> JobRun:
        """Create the Jobs, follow them to their end or until `stop` is set, and delete them."""
        plan = self._plan
        self._started_ms = self._clock.now_ms()
        title = f"{plan.count} × {plan.template.stem}"
        self._chronicle = Chronicle(title, self._started_ms, has_nodes=self._has_nodes)
        unseen = (
            *(("nodes",) if not self._has_nodes else ()),
            *(("events",) if not self._has_events else ()),
        )
        run = JobRun(self._run, self._client.server, plan, self._chronicle, unseen)
        try:
            await self._within(stop)
        except BaseException:
            if not plan.keeps and (fault := (await self._remove(run)).fault):
                self._note(fault)
            raise
        return run if plan.keeps else await self._remove(run)

    async def _within(self, stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(self._jobs.run()), asyncio.create_task(self._pods.run())]
        if self._has_nodes:
            tasks.append(asyncio.create_task(self._nodes.run()))
        if self._has_events:
            path = f"/api/v1/namespaces/{self._plan.namespace}/events"
            events: Reflector[JsonObject] = Reflector(
                self._client, _FOLLOWING, path, {}, self._hear, self._clock, lambda: None
            )
            tasks.append(asyncio.create_task(events.run()))
        turns = asyncio.Semaphore(_AT_ONE_TIME)
        tasks += [
            asyncio.create_task(self._submit(number, due_s, turns))
            for number, due_s in enumerate(self._plan.moments_s, start=1)
        ]
        try:
            await self._watch(stop, tasks)
        finally:
            for task in tasks:
                task.cancel()
            # Requests in flight are awaited, or their Jobs would appear after the clean-up.
            await asyncio.gather(*tasks, *self._creating, return_exceptions=True)

    async def _watch(self, stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
        shown_ms, ended_ms = 0, None
        while not stop.is_set():
            for task in tasks:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    task.result()
            now_ms = self._clock.now_ms()
            await self._time_out(now_ms)
            self._take_in(now_ms)
            if now_ms - shown_ms >= _SHOW_S * 1000:
                shown_ms = now_ms
                self._record(now_ms)
                self._on_look(self._chronicle)
            passed_s = (now_ms - self._started_ms) / 1000
            if passed_s >= self._plan.limit_s:
                self._note(f"the time is over, after {self._plan.limit_s:g} s")
                break
            if self._submitted == self._plan.count and all(
                life.standing.state.is_over for life in self._chronicle.lives.values()
            ):
                ended_ms = ended_ms or now_ms
                if now_ms - ended_ms >= self._plan.settle_s * 1000:
                    break
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
        self._record(self._clock.now_ms())

    async def _submit(self, number: int, due_s: float, turns: asyncio.Semaphore) -> None:
        """Create a Job when it is due, retrying while the API server is away."""
        plan, clock = self._plan, self._clock
        await clock.sleep(due_s - (clock.now_ms() - self._started_ms) / 1000)
        body = plan.template.job(plan.namespace, self._run, number, plan.count)
        name = body["metadata"]["name"]
        async with turns:
            while True:
                creating = asyncio.ensure_future(
                    self._client.create(jobs_path(plan.namespace), body)
                )
                self._creating.add(creating)
                creating.add_done_callback(self._creating.discard)
                try:
                    await asyncio.shield(creating)
                except ApiUnreachableError:
                    await clock.sleep(_TRY_AGAIN_S)
                    continue
                except ApiStatusError as error:
                    # The name contains the run's id, so the Job is ours: its response was lost.
                    if error.code != CONFLICT:
                        self._chronicle.refuse(name, error.said or str(error), clock.now_ms())
                        break
                self._chronicle.made(name, clock.now_ms())
                self._is_stale = True
                break
        self._submitted += 1

    def _take_in(self, now_ms: int) -> None:
        """Record the current state, if anything has changed."""
        if not self._is_stale:
            return
        self._is_stale = False
        pods: dict[str, list[JsonObject]] = {}
        for pod in self._pods.items.values():
            labels = mapping_of(mapping_of(pod.get("metadata")).get("labels"))
            owner = text_of(labels.get(_JOB_LABEL)) or text_of(labels.get("job-name"))
            pods.setdefault(owner, []).append(pod)
        promised = frozenset(self._promised)
        for body in self._jobs.items.values():
            name = body["metadata"]["name"]
            if name not in self._timed_out:
                unmade = self._unmade.get(name, "")
                standing = standing_of(body, pods.get(name, ()), promised, unmade)
                self._chronicle.see(name, standing, now_ms)
        if self._has_nodes and self._nodes.state.listed:
            self._chronicle.see_nodes(self._nodes.items.values(), now_ms)

    def _record(self, now_ms: int) -> None:
        jobs, pods, nodes = self._jobs.state, self._pods.state, self._nodes.state
        self._chronicle.record(
            now_ms,
            are_jobs_seen=jobs.listed and not jobs.error and not pods.error,
            are_nodes_seen=nodes.listed and not nodes.error,
        )

    async def _time_out(self, now_ms: int) -> None:
        """Give up Jobs beyond their time limit, and delete them unless they are to stay."""
        for life in self._chronicle.lives.values():
            if life.standing.state.is_over or now_ms - life.made_ms < self._plan.timeout_s * 1000:
                continue
            reason = life.standing.reason or life.standing.state.value
            text = f"not done after {self._plan.timeout_s:g} s: {reason}"
            self._chronicle.see(life.name, Standing(JobState.TIMED_OUT, text), now_ms)
            self._timed_out.add(life.name)
            if not self._plan.keeps:
                path = f"{jobs_path(self._plan.namespace)}/{life.name}"
                with suppress(ApiUnreachableError):  # it is deleted with the others at the end
                    await self._client.delete(path, {"propagationPolicy": "Background"})

    def _follow(self, path: str, params: Mapping[str, str]) -> Reflector[JsonObject]:
        return Reflector(
            self._client, _FOLLOWING, path, params, lambda body: body, self._clock, self._change,
            self._note_removed if path.endswith("/jobs") else lambda _: None,
        )  # fmt: skip

    def _change(self) -> None:
        self._is_stale = True

    def _note_removed(self, key: str) -> None:
        """Record a Job that was deleted before its end, unless it had timed out."""
        standing = Standing(JobState.REMOVED, "from outside")
        self._chronicle.see(key.partition("/")[2], standing, self._clock.now_ms())

    def _hear(self, body: JsonObject) -> None:
        """Handle an event about one of our objects."""
        about = mapping_of(body.get("involvedObject"))
        name, kind = text_of(about.get("name")), text_of(about.get("kind"))
        if f"-{self._run}-" not in name:
            return
        reason, message = text_of(body.get("reason")), text_of(body.get("message"))[:300]
        now_ms = self._clock.now_ms()
        if kind == "Pod" and reason in SCALE_UPS:
            self._promised.add(name)
            self._is_stale = True
            self._chronicle.mark_once(now_ms, reason, f"{kind}/{name}", message)
        elif kind == "Job" and reason == "FailedCreate":
            self._unmade[name] = message
            self._is_stale = True
            self._chronicle.mark_once(now_ms, reason, f"{kind}/{name}", message)
        elif reason in ("FailedScheduling", "NotTriggerScaleUp", "Evicted"):
            self._chronicle.mark_once(now_ms, reason, f"{kind}/{name}", message)

    async def _remove(self, run: JobRun) -> JobRun:
        """Return the run with the number of deleted Jobs, or why they were not deleted."""
        plan = self._plan
        try:
            removed = await remove_in_the_end(JobCleaner(self._client, plan.namespace, self._run))
            run.removed = len(removed)
        except GpuscaleError as error:
            run.fault = (
                f"{error}; remove the rest with: gpuscale load jobs{plan.options} "
                f"-n {plan.namespace} --clean --run {self._run}"
            )
        return run
