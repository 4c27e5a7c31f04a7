"""Answers of a gRPC call, as a server's end of HTTP/2 writes them, and what is no answer.

That calls work with gRPC's own server is shown by tests/integration/test_attribution_podresources.py.
"""

import struct

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.attribution.kubelet.unary import CallStatus, Exchange, StatusError

METHOD = "/v1.PodResourcesLister/List"
OK = [(":status", "200"), ("content-type", "application/grpc")]


def message(body: bytes, *, compressed: bool = False) -> bytes:
    return struct.pack(">?I", compressed, len(body)) + body


class Call:
    """Both ends of a call; what the server's end sends is given to ours when asked for."""

    def __init__(self, max_bytes: int = 1000) -> None:
        self.exchange = Exchange(max_bytes)
        self.exchange.ask(METHOD, b"question", 2.0)
        self.server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.server.initiate_connection()
        events = self.server.receive_data(self.exchange.to_send())
        (request,) = (each for each in events if isinstance(each, h2.events.RequestReceived))
        (data,) = (each for each in events if isinstance(each, h2.events.DataReceived))
        self.stream = request.stream_id
        self.headers = {name.decode(): value.decode() for name, value in request.headers or ()}
        self.question = data.data

    def answer(self, *bodies: bytes, status: str | None = "0", text: str = "") -> None:
        """Send headers, data and trailers."""
        self.server.send_headers(self.stream, OK)
        for body in bodies:
            self.server.send_data(self.stream, body)
        trailers = [("grpc-status", status)] if status is not None else [("x", "y")]
        self.server.send_headers(self.stream, [*trailers, ("grpc-message", text)], end_stream=True)

    def received(self) -> bytes:
        self.exchange.receive(self.server.data_to_send())
        assert self.exchange.is_over
        return self.exchange.message()


def refusal(call: Call) -> tuple[CallStatus, str]:
    with pytest.raises(StatusError) as caught:
        call.received()
    return caught.value.status, caught.value.details


def test_the_request_is_that_of_grpc() -> None:
    call = Call()
    assert call.headers[":path"] == METHOD
    assert call.headers["te"] == "trailers"
    assert call.headers["content-type"] == "application/grpc"
    assert call.headers["grpc-timeout"] == "2000m"
    assert call.question == message(b"question")


def test_a_message_comes_in_any_parts() -> None:
    call = Call()
    whole = message(b"answer")
    call.answer(whole[:3], whole[3:7], whole[7:])
    assert call.received() == b"answer"


def test_an_answer_may_be_empty() -> None:
    call = Call()
    call.answer(message(b""))
    assert call.received() == b""


def test_a_refusal_may_come_without_a_message() -> None:
    call = Call()
    call.server.send_headers(
        call.stream, [*OK, ("grpc-status", "8"), ("grpc-message", "50%25 of it")], end_stream=True
    )
    assert refusal(call) == (CallStatus.RESOURCE_EXHAUSTED, "50% of it")


@pytest.mark.parametrize("status", ["99", "-1", "x", ""])
def test_an_unknown_status_is_one(status: str) -> None:
    call = Call()
    call.answer(message(b"answer"), status=status, text="why")
    assert refusal(call) == (CallStatus.UNKNOWN, "why")


def test_an_answer_without_a_status_is_none() -> None:
    call = Call()
    call.answer(message(b"answer"), status=None)
    assert refusal(call) == (CallStatus.UNKNOWN, "no status")


def test_an_answer_of_something_else_than_grpc_is_none() -> None:
    call = Call()
    call.server.send_headers(call.stream, [(":status", "404")], end_stream=True)
    assert refusal(call) == (CallStatus.UNKNOWN, "HTTP status 404")


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0", message(b"ab")[:-1], message(b"a") * 2, message(b"a", compressed=True)],
    ids=["nothing", "half a prefix", "too short", "two messages", "compressed"],
)
def test_what_is_not_one_message_is_none(body: bytes) -> None:
    call = Call()
    call.answer(body)
    assert refusal(call)[0] is CallStatus.INTERNAL


def test_a_message_of_the_most_bytes_is_taken_and_none_of_one_more() -> None:
    call = Call(max_bytes=1000)
    call.answer(message(b"a" * 1000))
    assert call.received() == b"a" * 1000
    call = Call(max_bytes=1000)
    call.answer(message(b"a" * 1001))
    assert refusal(call) == (CallStatus.RESOURCE_EXHAUSTED, "the answer has more than 1000 bytes")


def test_a_message_that_is_announced_as_too_large_is_not_waited_for() -> None:
    call = Call(max_bytes=1000)
    call.server.send_headers(call.stream, OK)
    call.server.send_data(call.stream, message(b"a" * 1001)[:10])
    assert refusal(call) == (CallStatus.RESOURCE_EXHAUSTED, "the answer has more than 1000 bytes")


def test_a_server_that_goes_away_in_between_is_unavailable() -> None:
    call = Call()
    call.server.send_headers(call.stream, OK)
    call.server.close_connection()
    assert refusal(call)[0] is CallStatus.UNAVAILABLE
    call = Call()
    call.server.reset_stream(call.stream)
    assert refusal(call)[0] is CallStatus.UNAVAILABLE


def test_a_server_may_go_away_after_its_answer() -> None:
    call = Call()
    call.answer(message(b"answer"))
    call.server.close_connection()
    assert call.received() == b"answer"


@given(
    at=st.integers(0, 120),
    change=st.binary(min_size=1, max_size=40),
    is_put_in=st.booleans(),
)
def test_changed_bytes_end_with_an_error_or_an_answer(
    at: int, change: bytes, is_put_in: bool
) -> None:
    call = Call()
    call.answer(message(b"answer"))
    sent = call.server.data_to_send()
    changed = sent[:at] + change + sent[at if is_put_in else at + len(change) :]
    try:
        call.exchange.receive(changed)
        if call.exchange.is_over:
            call.exchange.message()
    except (StatusError, h2.exceptions.H2Error):
        pass
