"""Requests with token lengths: bodies for OpenAI-compatible endpoints, made from a template.

Source: OpenAI API reference, completions and chat completions, as vLLM 0.11 serves them.
"""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.errors import ConfigError, Problem

MAX_TOKENS = 1_000_000
MAX_REQUESTS = 2_000_000
_WORD = " hello"
"""One token to the tokenizers of GPT, Llama and Qwen models; to others it may be two."""
_PLACES = ("{prompt}", "{prompt_tokens}", "{output_tokens}")
_LENGTHS = re.compile(r"(\d{1,7}):(\d{1,7})")

Lengths = tuple[int, int]
"""Tokens of the prompt, tokens of the answer."""


@dataclass(frozen=True, slots=True)
class TokenBodies:
    """Request bodies in turn; after the last length, the first comes again."""

    template: str
    """With `{prompt}`, a text of so many tokens, `{prompt_tokens}` and `{output_tokens}`."""
    lengths: tuple[Lengths, ...]

    def body(self, index: int) -> bytes:
        """Return the body of the request with this number."""
        prompt, output = self.lengths[index % len(self.lengths)]
        text = self.template.replace("{prompt}", (_WORD * prompt).lstrip())
        text = text.replace("{prompt_tokens}", str(prompt))
        return text.replace("{output_tokens}", str(output)).encode()


def openai_template(path: str, model: str) -> str:
    """Return the template for a path of an OpenAI-compatible server.

    Raises:
        ValueError: the path is neither of completions nor of chat completions.
    """
    name = json.dumps(model)
    if path.endswith("/chat/completions"):
        message = '{"role": "user", "content": "{prompt}"}'
        return f'{{"model": {name}, "messages": [{message}], "max_tokens": {{output_tokens}}}}'
    if path.endswith("/completions"):
        return f'{{"model": {name}, "prompt": "{{prompt}}", "max_tokens": {{output_tokens}}}}'
    raise ValueError(
        f"found path {path!r}, expected one that ends with /completions or /chat/completions; "
        "for others give the body with --data"
    )


def has_places(template: str) -> bool:
    """Return whether a body has placeholders for token lengths."""
    return any(place in template for place in _PLACES)


def parse_lengths(text: str) -> Lengths:
    """Return the lengths of `512:128`.

    Raises:
        ValueError: the text is something else.
    """
    found = _LENGTHS.fullmatch(text)
    if found is None or max(int(found[1]), int(found[2])) > MAX_TOKENS:
        raise ValueError(f"found {text!r}, expected PROMPT:ANSWER tokens such as 512:128")
    return int(found[1]), int(found[2])


def read_lengths(text: str, source: str, columns: Sequence[str]) -> tuple[Lengths, ...]:
    """Return the token lengths in two columns of a CSV file.

    Raises:
        ConfigError: a column is missing, or a row has no whole numbers there.
    """
    rows = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(rows, [])]
    for name in columns:
        if name not in header:
            found = ", ".join(header)[:200] or "an empty file"
            raise ConfigError(Problem(source, 1, None, found, f"a column named {name!r}"))
    places = [header.index(name) for name in columns]
    lengths: list[Lengths] = []
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            prompt, output = (round(float(row[place])) for place in places)
        except (ValueError, IndexError, OverflowError):
            prompt = output = -1
        if not (0 <= prompt <= MAX_TOKENS and 0 <= output <= MAX_TOKENS):
            found, expected = ",".join(row)[:200], f"tokens from 0 to {MAX_TOKENS}"
            raise ConfigError(Problem(source, line, ", ".join(columns), found, expected))
        if len(lengths) >= MAX_REQUESTS:
            raise ConfigError(Problem(source, line, None, "more rows", f"at most {MAX_REQUESTS}"))
        lengths.append((prompt, output))
    return tuple(lengths)
