"""KEDA's calls over real gRPC: what is answered, what is refused, what is pushed, and how it ends."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from answering import UNAVAILABLE, held, measured
from gpuscale.server.scaler import service
from gpuscale.triggers.answer import Answer
from scaler_client import client_of, ref, served

Code = grpc.StatusCode


@pytest.fixture
async def scaler():
    async with served() as found:
        yield found


@pytest.fixture
async def keda(scaler):
    async with client_of(scaler) as client:
        yield client


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_the_spec_comes_from_the_metadata_alone(scaler, keda) -> None:
    (spec,) = (await keda.get_spec(ref(metricName="tokens"))).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat, spec.targetSize) == ("tokens", 2.5, 2)
    assert scaler.answers.watched == set()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(7.25, (7.25, 7)), (0.0, (0.0, 0)), (0.2, (0.2, 0)), (1e30, (1e30, 2**63 - 1))],
)
async def test_one_value_as_a_float_under_the_name_that_was_asked_for(
    scaler, keda, value, shown
) -> None:
    scaler.answers.set("queue", measured(value))
    (found,) = (await keda.metrics(ref(), "as-asked")).metricValues
    assert (found.metricName, found.metricValueFloat, found.metricValue) == ("as-asked", *shown)


@pytest.mark.parametrize("is_active", [True, False])
async def test_activity(scaler, keda, is_active) -> None:
    scaler.answers.set("queue", measured(0.0, is_active=is_active))
    assert (await keda.is_active(ref())).result is is_active


async def test_what_was_never_known_is_an_error_with_its_reason_and_never_zero(
    scaler, keda
) -> None:
    scaler.answers.set("queue", UNAVAILABLE)
    for call in (keda.metrics(ref()), keda.is_active(ref())):
        error = await failure(call)
        assert (error.code(), error.details()) == (Code.UNAVAILABLE, UNAVAILABLE.reason)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
async def test_what_keda_would_make_a_zero_of_is_refused(scaler, keda, value) -> None:
    scaler.answers.set("queue", Answer(value, True, "measured", "", 1))
    assert (await failure(keda.metrics(ref()))).code() is Code.UNAVAILABLE


async def test_the_first_evaluation_is_waited_for_but_not_for_ever(
    scaler, keda, monkeypatch
) -> None:
    asking = asyncio.ensure_future(keda.is_active(ref()))
    await asyncio.sleep(2 * service.KEPT_AFTER_S)
    assert not asking.done()
    scaler.answers.set("queue", measured(1.0))
    assert (await asking).result
    monkeypatch.setattr(service, "FIRST_ANSWER_S", 0.1)
    error = await failure(keda.is_active(ref(metricName="never")))
    assert error.code() is Code.UNAVAILABLE
    assert "evaluated for the first time" in error.details()


async def test_a_decision_from_before_a_restart_counts_until_the_first_evaluation(
    scaler, keda
) -> None:
    scaler.answers.kept_answers["queue"] = held(5.0, 2.0)
    call = keda.metrics(ref())
    assert (await call).metricValues[0].metricValueFloat == 5.0
    assert dict(await call.trailing_metadata())["gpuscale-basis"] == "held"
    scaler.answers.set("queue", measured(1.0))
    assert (await keda.metrics(ref())).metricValues[0].metricValueFloat == 1.0


async def test_a_held_answer_says_so_and_how_old_it_is(scaler, keda) -> None:
    scaler.answers.set("queue", held(5.0, 42.0))
    call = keda.metrics(ref())
    assert (await call).metricValues[0].metricValueFloat == 5.0
    trailing = dict(await call.trailing_metadata())
    assert trailing["gpuscale-basis"] == "held"
    assert trailing["gpuscale-held-seconds"] == "42.000"
    assert trailing["gpuscale-reason-bin"] == b"the source is away"
    families = {each.name: each for each in scaler.metrics.families({}, {"open": 0}, 0)}
    (sample,) = families["gpuscale_scaler_held_seconds"].samples
    assert (dict(sample.labels)["scaledobject"], sample.value) == ("so", 42.0)
    scaler.answers.set("queue", measured(5.0))
    await keda.metrics(ref())
    families = {each.name: each for each in scaler.metrics.families({}, {"open": 0}, 0)}
    assert families["gpuscale_scaler_held_seconds"].samples == ()


async def test_bad_metadata_is_refused_with_every_fault(scaler, keda) -> None:
    bad = ref(pollingInterval="soon")
    del bad.scalerMetadata["workload"]
    del bad.scalerMetadata["target"]
    for call in (keda.get_spec(bad), keda.metrics(bad), keda.activity(bad).read()):
        error = await failure(call)
        assert error.code() is Code.INVALID_ARGUMENT
        assert all(each in error.details() for each in ("workload", "target", "pollingInterval"))


async def test_more_triggers_than_are_watched_are_refused() -> None:
    async with served(most=1) as scaler, client_of(scaler) as keda:
        scaler.answers.set("queue", measured(1.0))
        await keda.is_active(ref())
        for call in (
            keda.is_active(ref(metricName="b")),
            keda.activity(ref(metricName="c")).read(),
        ):
            assert (await failure(call)).code() is Code.RESOURCE_EXHAUSTED
        assert (await keda.is_active(ref())).result
        await keda.get_spec(ref(metricName="b"))


async def test_a_push_comes_on_the_edge_and_again_for_a_keda_that_was_not_ready(
    scaler, keda
) -> None:
    scaler.answers.set("queue", measured(0.0))
    stream = keda.activity(ref())
    assert (await stream.read()).result is False
    scaler.answers.set("queue", measured(3.0))
    assert (await stream.read()).result is True
    assert (await stream.read()).result is True  # two seconds later


async def test_each_stream_begins_with_the_activity_there_is(scaler, keda) -> None:
    scaler.answers.set("queue", measured(3.0))
    for _ in range(2):
        stream = keda.activity(ref())
        assert (await stream.read()).result is True
        stream.cancel()


async def test_specs_come_at_once_and_the_stream_stays(scaler, keda) -> None:
    stream = keda.specs(ref())
    (spec,) = (await stream.read()).metricSpecs
    assert spec.targetSizeFloat == 2.5
    later = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.3)
    assert not later.done()
    stream.cancel()


async def test_streams_end_well_when_their_time_is_over() -> None:
    async with served(stream_lifetime_s=0.3) as scaler, client_of(scaler) as keda:
        scaler.answers.set("queue", measured(0.0))
        for stream in (keda.activity(ref()), keda.specs(ref())):
            await stream.read()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK


async def test_stopping_ends_streams_well_and_lets_calls_end() -> None:
    async with served() as scaler, client_of(scaler) as keda:
        scaler.answers.set("queue", measured(0.0))
        streams = [keda.activity(ref()), keda.specs(ref())]
        for stream in streams:
            await stream.read()
        asking = asyncio.ensure_future(keda.is_active(ref(metricName="soon")))
        await asyncio.sleep(0.05)
        stopping = asyncio.ensure_future(scaler.server.stop(5.0))
        scaler.answers.set("soon", measured(1.0))
        assert (await asking).result
        for stream in streams:
            assert await stream.read() is grpc.aio.EOF
        await stopping


async def test_a_stream_that_the_client_leaves_is_forgotten(scaler, keda) -> None:
    scaler.answers.set("queue", measured(1.0))
    stream = keda.activity(ref())
    await stream.read()
    assert scaler.server.streams == {"StreamIsActive": 1}
    stream.cancel()
    for _ in range(100):
        if not scaler.server.streams:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(scaler.server.streams)


async def test_health_by_service_turns_while_draining(scaler, keda) -> None:
    check = keda.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    status = health_pb2.HealthCheckResponse
    asked = health_pb2.HealthCheckRequest(service="externalscaler.ExternalScaler")
    assert (await check(asked)).status == status.SERVING
    assert (await check(health_pb2.HealthCheckRequest())).status == status.SERVING
    watching = keda.channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )(asked)
    assert (await watching.read()).status == status.SERVING
    scaler.server.say_not_ready()
    assert (await check(asked)).status == status.NOT_SERVING
    assert (await watching.read()).status == status.NOT_SERVING
    unknown = health_pb2.HealthCheckRequest(service="nothing")
    assert (await failure(check(unknown))).code() is Code.NOT_FOUND


async def test_reflection_names_the_services_and_gives_their_messages(keda) -> None:
    info = keda.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await info.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {each.name for each in (await info.read()).list_services_response.service}
    assert {"externalscaler.ExternalScaler", "grpc.health.v1.Health"} <= names
    symbol = "externalscaler.ExternalScaler"
    await info.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
    (described,) = (await info.read()).file_descriptor_response.file_descriptor_proto
    assert b"scalerMetadata" in described
    await info.done_writing()
