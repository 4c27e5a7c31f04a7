"""What a cloud has to give: times without stock, a quota of GPUs, and nodes that it takes back."""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuscale.base.streams import stream
from gpuscale.hpa.cluster.nodes import Offering
from gpuscale.lab.queueing.times import Times

OUT_OF_STOCK = "InsufficientInstanceCapacity"
OVER_QUOTA = "QuotaExceeded"
NOT_RESERVED = "ReservationNotActive"
RESERVATION_USED = "ReservationCapacityExceeded"
_SHORTEST_MS = 1000.0
"""Of a stock-out, and between two: a month has at most a few million then."""


@dataclass(frozen=True, slots=True)
class StockOut:
    """Times at which some instance types of a pool can't be had."""

    from_ms: int
    """Of the scenario, when the first begins; with `every`, the earliest."""
    length: Times
    """In seconds, of each."""
    every: Times | None = None
    """In seconds, from the end of one to the next; None: there is one alone."""
    instance_types: tuple[str, ...] = ()
    """Empty: all of the pool."""
    zones: tuple[str, ...] = ()
    """Empty: all."""
    capacity_types: tuple[str, ...] = ()
    """Empty: all."""
    code: str = OUT_OF_STOCK

    def concerns(self, instance_type: str, offering: Offering) -> bool:
        """Return whether an offering can't be had while it lasts."""
        return (
            (not self.instance_types or instance_type in self.instance_types)
            and (not self.zones or offering.zone in self.zones)
            and (not self.capacity_types or offering.capacity_type in self.capacity_types)
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes of one instance type that are held for us, for a while or for good."""

    instance_type: str
    offering: Offering
    count: int
    from_ms: int = 0
    """Of the scenario."""
    until_ms: int | None = None
    """When its nodes are taken back, as at the end of a capacity block; None: never."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What limits a pool's nodes beside its own bounds."""

    stock_outs: tuple[StockOut, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    quota_gpus: int | None = None
    """GPUs that all nodes of the pool may have; None: no limit."""
    interrupted_after: Times | None = None
    """In seconds, from a spot node's start until the cloud takes it back; None: never."""
    notice_ms: int = 120_000
    """How long before that it is said."""


class Stock:
    """The stock of one pool in one run.

    Args:
        supply: what limits it.
        seed: of the run.
        pool: its name.
    """

    def __init__(self, supply: Supply, seed: int, pool: str) -> None:
        self._reservations = supply.reservations
        self._notice_ms = supply.notice_ms
        self._stock_outs = [
            (each, _Windows(each, stream(seed, "stock-out", pool, str(number)).random))
            for number, each in enumerate(supply.stock_outs)
        ]

    def refusal(self, time_ms: int, instance_type: str, offering: Offering, had: int) -> str:
        """Return the cloud's code for refusing a node at that time of the scenario; empty if it gives one.

        Args:
            time_ms: of the scenario.
            instance_type: that is asked for.
            offering: how.
            had: how many of these there are already.
        """
        for reservation in self._reservations:
            if (reservation.instance_type, reservation.offering) == (instance_type, offering):
                until_ms = reservation.until_ms
                # Nobody gets a node that would be told at once to go.
                is_over = until_ms is not None and time_ms >= until_ms - self._notice_ms
                if time_ms < reservation.from_ms or is_over:
                    return NOT_RESERVED
                return RESERVATION_USED if had >= reservation.count else ""
        for each, windows in self._stock_outs:
            if each.concerns(instance_type, offering) and windows.hold(time_ms):
                return each.code
        return ""

    def reserved(
        self, time_ms: int, had: Callable[[str, Offering], int]
    ) -> Iterator[tuple[tuple[str, Offering], int]]:
        """Yield how many nodes more each reservation gives at that time of the scenario.

        Args:
            time_ms: of the scenario.
            had: says how many nodes of a type there are that were had in one way.
        """
        for each in self._reservations:
            key = each.instance_type, each.offering
            is_over = self.refusal(time_ms, *key, 0)
            yield key, 0 if is_over else max(0, each.count - had(*key))


class _Windows:
    """The times of one stock-out, drawn as far as was asked for."""

    def __init__(self, stock_out: StockOut, random: Callable[[], float]) -> None:
        self._stock_out = stock_out
        self._random = random
        self._bounds = [float(stock_out.from_ms)]
        """Beginnings and ends in turn."""

    def hold(self, time_ms: int) -> bool:
        """Return whether one of them lasts at that time."""
        times, bounds = self._stock_out, self._bounds
        while bounds[-1] <= time_ms:
            drawn = times.length if len(bounds) % 2 else times.every
            if drawn is None:
                break
            bounds.append(bounds[-1] + max(_SHORTEST_MS, 1000 * drawn.at(self._random())))
        return bisect.bisect_right(bounds, time_ms) % 2 == 1
