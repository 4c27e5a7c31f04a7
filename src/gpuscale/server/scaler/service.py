"""KEDA's external scaler calls, answered from memory. Of gRPC it knows only the status codes.

How KEDA 2.21 takes the answers (pkg/scalers/external_scaler.go): a failed GetMetricSpec takes the whole
ScaledObject down, so that one needs the metadata alone; all values of one GetMetrics are added up, so there
is one; NaN, infinite and negative values become 0, so they are refused.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator

from gpuscale.base.errors import UnavailableError
from gpuscale.server.scaler.known_triggers import (
    KnownTriggers,
    RefusedError,
    WatchedTriggers,
    polling_s,
)
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from gpuscale.server.scaler.pushes import PushStream
from gpuscale.server.scaler.telemetry import ScalerMetrics
from gpuscale.triggers import Answer, KeptAnswers, TooManyTriggersError, Trigger

KEPT_AFTER_S = 0.4
"""How long a call waits for the first evaluation of its trigger before a decision from before a restart
counts."""
FIRST_ANSWER_S = 30.0
"""How long it waits where there is none. KEDA's polls have no deadline, and an error is a failed poll; after
a start the triggers of a thousand ScaledObjects take ten seconds, at as many questions a second as may be."""
_MOST_INT = 2**63 - 1


class ExternalScaler:
    """The calls of a scaler.

    Args:
        answers: of triggers.
        triggers: reads metadata.
        watched: bounds what each address has watched.
        metrics: count what was answered.
        stream_lifetime_s: after so long a stream ends well; the client opens another one.
    """

    def __init__(
        self,
        answers: KeptAnswers,
        triggers: KnownTriggers,
        watched: WatchedTriggers,
        metrics: ScalerMetrics,
        stream_lifetime_s: float,
    ) -> None:
        self._answers = answers
        self._triggers = triggers
        self._watched = watched
        self._metrics = metrics
        self._lifetime_s = stream_lifetime_s
        self._streams: set[PushStream] = set()
        self._specs: set[asyncio.Future[None]] = set()
        self._is_draining = False

    def drain(self) -> None:
        """End all streams cleanly, and new ones at once."""
        self._is_draining = True
        for stream in self._streams:
            stream.end()
        for waiter in self._specs:
            if not waiter.done():
                waiter.set_result(None)

    def spec(self, ref: pb.ScaledObjectRef) -> pb.GetMetricSpecResponse:
        """Return the metric's name and target, computed from the metadata alone.

        Raises:
            RefusedError: the metadata is wrong.
        """
        trigger = self._triggers.trigger(ref)
        spec = pb.MetricSpec(
            metricName=trigger.name,
            targetSize=max(1, _rounded(trigger.target)),
            targetSizeFloat=trigger.target,
        )
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def is_active(
        self, ref: pb.ScaledObjectRef, address: str
    ) -> tuple[pb.IsActiveResponse, Answer]:
        """Return whether the workload needs pods.

        Raises:
            RefusedError: nothing is known, the metadata is wrong, or a limit is reached.
        """
        answer = await self._answer(ref, address)
        if answer.is_active is None:
            raise RefusedError("UNAVAILABLE", answer.reason)
        return pb.IsActiveResponse(result=answer.is_active), answer

    async def metrics(
        self, request: pb.GetMetricsRequest, address: str
    ) -> tuple[pb.GetMetricsResponse, Answer]:
        """Return a trigger's value, under the metric name of the request.

        Raises:
            RefusedError: nothing is known, the metadata is wrong, or a limit is reached.
        """
        answer = await self._answer(request.scaledObjectRef, address)
        value = answer.value
        if value is None:
            raise RefusedError("UNAVAILABLE", answer.reason)
        if not math.isfinite(value) or value < 0:
            raise RefusedError(
                "UNAVAILABLE", f"found the value {value}, expected a load: {answer.reason}"
            )
        found = pb.MetricValue(
            metricName=request.metricName, metricValue=_rounded(value), metricValueFloat=value
        )
        return pb.GetMetricsResponse(metricValues=[found]), answer

    async def activity(
        self, ref: pb.ScaledObjectRef, address: str
    ) -> AsyncGenerator[pb.IsActiveResponse, None]:
        """Yield the activity whenever it has to be pushed to KEDA.

        Raises:
            RefusedError: the metadata is wrong, or a limit is reached.
        """
        trigger = self._watch(ref, address)
        if self._is_draining:
            return
        stream = PushStream(polling_s(ref), self._lifetime_s)
        self._streams.add(stream)
        try:
            async for push in stream.run(self._kept(trigger, address)):
                self._metrics.pushed(is_active=push)
                yield pb.IsActiveResponse(result=push)
        except TooManyTriggersError as error:
            raise RefusedError("RESOURCE_EXHAUSTED", str(error)) from error
        finally:
            self._streams.discard(stream)

    async def specs(
        self, ref: pb.ScaledObjectRef
    ) -> AsyncGenerator[pb.GetMetricSpecResponse, None]:
        """Yield the spec once and keep the stream open: changed metadata comes with a new stream.

        Raises:
            RefusedError: the metadata is wrong.
        """
        yield self.spec(ref)
        if self._is_draining:
            return
        waiter = asyncio.get_running_loop().create_future()
        timer = waiter.get_loop().call_later(self._lifetime_s, _finish, waiter)
        self._specs.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._specs.discard(waiter)

    async def _kept(self, trigger: Trigger, address: str) -> AsyncIterator[Answer]:
        """Yield a trigger's answers, and keep the trigger in use meanwhile."""
        async for answer in self._answers.changes(trigger):
            self._watched.use(trigger, address, time.monotonic())
            yield answer

    def _watch(self, ref: pb.ScaledObjectRef, address: str) -> Trigger:
        trigger = self._triggers.trigger(ref)
        self._watched.use(trigger, address, time.monotonic())
        return trigger

    async def _answer(self, ref: pb.ScaledObjectRef, address: str) -> Answer:
        trigger = self._watch(ref, address)
        try:
            answer = self._answers.answer(trigger)
            if answer is None:
                answer = await self._first_answer(trigger)
        except TooManyTriggersError as error:
            raise RefusedError("RESOURCE_EXHAUSTED", str(error)) from error
        except UnavailableError as error:
            raise RefusedError("UNAVAILABLE", str(error)) from error
        self._metrics.answered(ref.namespace, ref.name, trigger.name, answer)
        return answer

    async def _first_answer(self, trigger: Trigger) -> Answer:
        for wait_s in (KEPT_AFTER_S, FIRST_ANSWER_S):
            try:
                async with asyncio.timeout(wait_s):
                    async for answer in self._answers.changes(trigger):
                        return answer
            except TimeoutError:
                kept = self._answers.kept(trigger)
                if kept is not None:
                    return kept
        raise RefusedError(
            "UNAVAILABLE", f"{trigger.name}: it is being evaluated for the first time; ask again"
        )


def _finish(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _rounded(value: float) -> int:
    """Return a value as an integer, for clients older than the float field."""
    return min(round(value), _MOST_INT)
