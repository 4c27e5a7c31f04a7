"""OpenAI's API of completions and chats, as far as the usual clients need it."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from aiohttp import web

from common.devices import FullError
from text.batch import Batch
from text.engine import Sequence

MOST_TOKENS = 4096
_DEFAULT_TOKENS = 16
_TEXT = (
    "This text was made without a model. It says the same words again and again, one token at a "
    "time, at the pace that was declared for a GPU."
)
_WORDS = tuple(f"{word} " for word in _TEXT.split())


class BadRequestError(Exception):
    """A request is not what the API takes; the text says what is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for."""

    prompt: str
    most_tokens: int
    is_streamed: bool
    is_chat: bool

    @property
    def prompt_tokens(self) -> int:
        """Return the length of the prompt; a word counts as a token here."""
        return max(1, len(self.prompt.split()))


class Api:
    """The paths below /v1.

    Args:
        batch: makes the tokens.
        model: name that it is asked by.
    """

    def __init__(self, batch: Batch, model: str) -> None:
        self._batch = batch
        self._model = model
        self._started_s = int(time.time())

    def routes(self) -> list[web.RouteDef]:
        """Return the paths with what answers them."""
        return [
            web.get("/v1/models", self._models),
            web.post("/v1/completions", self._complete),
            web.post("/v1/chat/completions", self._chat),
        ]

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": self._model, "object": "model", "created": self._started_s}
        return web.json_response({"object": "list", "data": [{**model, "owned_by": "sample"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, is_chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, is_chat=True)

    async def _answer(self, request: web.Request, *, is_chat: bool) -> web.StreamResponse:
        try:
            asked = read(await request.text(), self._model, is_chat=is_chat)
        except (BadRequestError, UnicodeDecodeError) as error:
            return _error(400, "invalid_request_error", str(error))
        sequence = Sequence(asked.prompt_tokens, asked.most_tokens)
        if sequence.room > self._batch.engine.cache_tokens:
            text = "prompt and max_tokens are more than the KV cache holds"
            return _error(400, "invalid_request_error", text)
        try:
            async with aclosing(self._batch.tokens(sequence)) as tokens:
                if asked.is_streamed:
                    return await self._stream(request, asked, tokens)
                words = [_word(number) async for number in tokens]
        except FullError:
            return _error(503, "overloaded", "too many requests wait already")
        usage = {
            "prompt_tokens": asked.prompt_tokens,
            "completion_tokens": len(words),
            "total_tokens": asked.prompt_tokens + len(words),
        }
        content = "".join(words)
        part: dict[str, object] = {"text": content}
        if is_chat:
            part = {"message": {"role": "assistant", "content": content}}
        choice = {"index": 0, "finish_reason": "length", **part}
        return web.json_response({**self._head(asked), "choices": [choice], "usage": usage})

    async def _stream(
        self, request: web.Request, asked: Asked, tokens: AsyncIterator[int]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        head = self._head(asked)
        try:
            async for number in tokens:
                if not response.prepared:  # from here on no other status can be sent
                    await response.prepare(request)
                finish = "length" if number + 1 == asked.most_tokens else None
                word = _word(number)
                part: dict[str, object] = {"text": word}
                if asked.is_chat:
                    part = {"delta": {"content": word}}
                choice = {"index": 0, "finish_reason": finish, **part}
                await response.write(_event({**head, "choices": [choice]}))
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass  # the client has gone; leaving the loop ends its request
        return response

    def _head(self, asked: Asked) -> dict[str, object]:
        kind = "text_completion"
        if asked.is_chat:
            kind = "chat.completion.chunk" if asked.is_streamed else "chat.completion"
        return {
            "id": f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self._model,
        }


def read(text: str, model: str, *, is_chat: bool) -> Asked:
    """Return what a body asks for.

    Raises:
        BadRequestError: with what is wrong.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadRequestError("expected a JSON object")
    if body.get("model", model) != model:
        raise BadRequestError(f"model: expected {model}")
    most = body.get("max_completion_tokens", body.get("max_tokens", _DEFAULT_TOKENS))
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_TOKENS:
        raise BadRequestError(f"max_tokens: expected a whole number from 1 to {MOST_TOKENS}")
    prompt = _chat_text(body) if is_chat else body.get("prompt")
    if not isinstance(prompt, str):
        raise BadRequestError("prompt: expected a text")
    return Asked(prompt, most, body.get("stream") is True, is_chat)


def _chat_text(body: Mapping[str, object]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages: expected a list with at least one message")
    contents = [each.get("content") if isinstance(each, dict) else None for each in messages]
    texts = [each for each in contents if isinstance(each, str)]
    if len(texts) < len(contents):
        raise BadRequestError("messages: expected objects with a text as content")
    return "\n".join(texts)


def _word(number: int) -> str:
    return _WORDS[number % len(_WORDS)]


def _event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _error(status: int, kind: str, message: str) -> web.Response:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": error}, status=status)
