"""Which replica follows an agent: rendezvous hashing over the replicas that are up.

Every replica ranks all replicas for each agent by a hash of both names; the first one follows the agent. When
a replica goes, only its agents have another first; when it comes back, only they return. Nothing is agreed
on: each replica decides by what it sees, and looks at what is delivered as well as at who should deliver. So
replicas that see each other in part, or that know different agents, overlap rather than leave a gap.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Generic, TypeVar

PATIENCE_S = 3.0
"""How long an agent may be delivered by no replica until one that is not its first follows it."""

T = TypeVar("T")


@lru_cache(maxsize=65_536)
def rank(agent: str, replica: str) -> tuple[bytes, str]:
    """Return the rank of a replica for an agent; the highest follows it."""
    return blake2b(f"{agent}\0{replica}".encode(), digest_size=8).digest(), replica


def first(agent: str, replicas: Iterable[str]) -> str:
    """Return the replica that ranks first for an agent."""
    return max(replicas, key=lambda replica: rank(agent, replica))


@dataclass(slots=True)
class Division(Generic[T]):
    """The assignment of agents to replicas, as one replica sees it.

    Args:
        own: the name of this replica.
        now_s: the machine's time.
        agent_name: returns the name of an agent that all replicas know it by.
    """

    own: str
    now_s: Callable[[], float]
    agent_name: Callable[[T], str]
    delivered: dict[str, set[T]] = field(default_factory=dict)
    """What each other replica that is up delivers, by its name."""
    _missed_s: dict[T, float] = field(default_factory=dict)
    """Since when agents of other replicas are delivered by none of them."""

    def up(self, replica: str) -> None:
        self.delivered.setdefault(replica, set())

    def down(self, replica: str) -> None:
        """Record that a replica is down."""
        self.delivered.pop(replica, None)

    def delivers(self, replica: str, agent: T) -> None:
        self.delivered.setdefault(replica, set()).add(agent)

    def delivers_only(self, replica: str, agents: Iterable[T]) -> None:
        self.delivered[replica] = set(agents)

    def leaves(self, replica: str, agent: T) -> None:
        """Record that a replica no longer delivers an agent."""
        self.delivered.get(replica, set()).discard(agent)

    def is_first(self, agent: T) -> bool:
        """Return whether this replica ranks first for an agent."""
        return first(self.agent_name(agent), (self.own, *self.delivered)) == self.own

    def outranks(self, agent: T, one: str, other: str) -> bool:
        """Return whether one replica outranks another for an agent."""
        name = self.agent_name(agent)
        return rank(name, one) > rank(name, other)

    def follows(self, agent: T, *, is_followed: bool) -> bool:
        """Return whether this replica should follow an agent now.

        Args:
            agent: one that exists.
            is_followed: whether it follows the agent already. It goes on until one before it delivers.
        """
        name = self.agent_name(agent)
        own = rank(name, self.own)
        before = [replica for replica in self.delivered if rank(name, replica) > own]
        if not before:
            self._missed_s.pop(agent, None)
            return True
        if any(agent in self.delivered[replica] for replica in before):
            self._missed_s.pop(agent, None)
            return False
        if is_followed:
            return True
        now_s = self.now_s()
        return now_s - self._missed_s.setdefault(agent, now_s) >= PATIENCE_S

    def keep(self, agents: Iterable[T]) -> None:
        for agent in self._missed_s.keys() - set(agents):
            del self._missed_s[agent]
