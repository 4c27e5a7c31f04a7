"""How long a language model takes: prompts are read, then each step gives every running request one token.

New requests join between steps (continuous batching), as long as there is room in the batch and in the KV
cache; the others wait in order. This is only arithmetic, without a clock, so that it can be tested in virtual
time.

It leaves out what vLLM has beyond that: a request keeps room for all the tokens that it may make, so none is
ever preempted; prompts are read whole, in one step; there is no prefix cache.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Speed:
    """What a step takes, seconds."""

    step: float = 0.02
    """Of every step."""
    per_sequence: float = 0.0002
    """For each request in the batch, on top."""
    per_prompt_token: float = 0.0001
    """For each token of the prompts that are read in the step, on top."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the engine."""

    prompt_tokens: int
    most_tokens: int
    """How many it makes."""
    made: int = 0

    @property
    def room(self) -> int:
        """Return the tokens that it may hold in the KV cache."""
        return self.prompt_tokens + self.most_tokens

    @property
    def is_done(self) -> bool:
        """Return whether all its tokens are made."""
        return self.made >= self.most_tokens


@dataclass(slots=True)
class Engine:
    """The batch and who waits for it.

    Args:
        speed: what steps take.
        most_sequences: requests in the batch.
        cache_tokens: tokens that the KV cache holds.
    """

    speed: Speed
    most_sequences: int
    cache_tokens: int
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)

    @property
    def cache_use(self) -> float:
        """Return the share of the KV cache that is held, 0 to 1."""
        return sum(each.room for each in self.running) / self.cache_tokens

    def begin_step(self) -> tuple[float, list[Sequence]]:
        """Take in who has room, and return what the step takes and who is new."""
        free = self.cache_tokens - sum(each.room for each in self.running)
        new: list[Sequence] = []
        while self.waiting and len(self.running) < self.most_sequences:
            if self.waiting[0].room > free:
                break
            new.append(self.waiting.popleft())
            self.running.append(new[-1])
            free -= new[-1].room
        prompts = sum(each.prompt_tokens for each in new)
        seconds = self.speed.step + self.speed.per_sequence * len(self.running)
        return seconds + self.speed.per_prompt_token * prompts, new

    def end_step(self) -> list[Sequence]:
        """Give every running request its token, and return them all; those that are done leave."""
        stepped = self.running
        for each in stepped:
            each.made += 1
        self.running = [each for each in stepped if not each.is_done]
        return stepped

    def leave(self, sequence: Sequence) -> None:
        """Drop a request whose client has gone."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
