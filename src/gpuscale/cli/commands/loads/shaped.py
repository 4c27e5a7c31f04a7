"""The load that options of `gpuscale load http` ask for: shapes, scenarios, traces and other tools' plans."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import UsageError
from gpuscale.base.text_files import read_text, shown_name
from gpuscale.cli.texts import printable
from gpuscale.lab import find_setup, shipped_names

if TYPE_CHECKING:
    from gpuscale.base.loads import Load
    from gpuscale.load import Lengths, LoadUnit
    from gpuscale.load.plans import ForeignPlan
    from gpuscale.load.results import RequestResult as TracedRequest

_LONGEST_TRACE_S = 3e9
TRACE_MIB = 256
"""Of a trace's file: five million rows, which is as many as are read."""
_SHAPES = "--rate, --ramp, --steps, --spikes, --scenario, --trace or --plan"


def shaped_load(
    shapes: dict[str, object],
    duration_s: float | None,
    trace: tuple[str, str | None, float],
    foreign: "ForeignPlan | None",
    service: str | None,
    *,
    is_closed: bool,
) -> "tuple[Load | None, float, str]":
    """Return the load, its duration, and its name."""
    from gpuscale.load import RATES

    if len(shapes) > 1 or (is_closed == bool(shapes) and not (is_closed and foreign)):
        found = " and ".join(shapes) or "no load"
        beside = " with --closed-loop" if is_closed else ""
        expected = "--users alone" if is_closed else f"one of {_SHAPES}"
        raise UsageError(f"found {found}{beside}, expected {expected}")
    if service is not None and "--scenario" not in shapes:
        raise UsageError("found --service, expected --scenario beside it")
    name, value = next(iter(shapes.items()), ("", ""))
    text = str(value)
    own_s: float | None = None
    load: Load | None = None
    with naming(name):
        match name:
            case "":
                pass  # a closed loop: users wait for answers
            case "--scenario":
                load, own_s = _of_scenario(text, service)
            case "--trace":
                load = _of_trace(text, *trace)
            case "--plan":
                assert foreign is not None  # noqa: S101 - it was read from the option's file
                _check_loop(foreign, text, is_closed=is_closed)
                load, own_s = foreign.load, foreign.duration_s
            case _:
                load, own_s = plain_shape(name, text, duration_s, RATES)
    return load, lasting(duration_s, own_s), f"{name.removeprefix('--')} {_shown(value)}"


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Prefix errors about a text with the option's name.

    Raises:
        UsageError: a text can't be used.
    """
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def plain_shape(
    option: str, text: str, duration_s: float | None, unit: "LoadUnit"
) -> "tuple[Load, float | None]":
    """Return the load of a shape option, and its own duration.

    Args:
        option: such as `--steps`.
        text: its value.
        duration_s: of the run, where it is known.
        unit: of the load.

    Raises:
        ValueError: the text is no such shape.
    """
    from gpuscale.load import shapes as made

    match option:
        case "--ramp":
            return made.ramp(text, duration_s or 1.0, unit), None
        case "--steps":
            return made.steps(text, unit)
        case "--spikes":
            return made.spikes(text), None
        case "--sine":
            return made.sine(text, unit), None
        case _:
            return made.constant(float(text), unit), None


def lasting(wanted_s: float | None, own_s: float | None) -> float:
    """Return a load's duration: the requested one, else its own.

    Raises:
        UsageError: neither is known, or it is too long.
    """
    from gpuscale.load import MAX_DURATION_S

    found_s = wanted_s or own_s
    if found_s is None:
        raise UsageError("found no --for, expected how long the load lasts, such as --for 2m")
    if found_s > MAX_DURATION_S:
        raise UsageError(f"--for: found {found_s:g} s, expected a week at most")
    return found_s


def _of_scenario(text: str, service: str | None) -> "tuple[Load, float]":
    """Return the load on a scenario's service, and the scenario's duration."""
    known = shipped_names()
    name, _, wanted = text.partition("/") if text.partition("/")[0] in known else (text, "", "")
    wanted = service or wanted
    setup = find_setup(name)
    services = {each.deployment.partition("/")[2]: each.load for each in setup.workloads}
    if not services:
        raise UsageError(f"--scenario: found no service with a load in {name}, expected one")
    if wanted and wanted not in services:
        names = ", ".join(services)
        raise UsageError(
            f"--scenario: found no service {wanted!r} in {name}, expected one of: {names}"
        )
    if not wanted and len(services) > 1:
        names = ", ".join(services)
        raise UsageError(
            f"--scenario: found {len(services)} services, expected --service with one of: {names}"
        )
    load = services[wanted] if wanted else next(iter(services.values()))
    return load, setup.duration_ms / 1000


def foreign_plan(name: str) -> "ForeignPlan":
    """Return another tool's plan, and print what is left out of it."""
    from gpuscale.load.plans import read_plan

    foreign = read_plan(
        read_text(name), shown_name(name), lambda file: read_text(str(Path(name).parent / file))
    )
    for each in foreign.left_out:
        print(f"gpuscale: {printable(each)}", file=sys.stderr)
    return foreign


def _check_loop(foreign: "ForeignPlan", name: str, *, is_closed: bool) -> None:
    if foreign.load is None and not is_closed:
        raise UsageError(
            f"--plan {name}: found {foreign.users} users who wait for answers, expected requests per second: "
            "such users never ask for more than the service gives, so they can't show whether it scales; "
            "say a rate instead, such as --rate 20, or add --closed-loop"
        )
    if foreign.load is not None and is_closed:
        raise UsageError(f"--plan {name}: found rates, expected users with --closed-loop")


def _of_trace(name: str, time_column: str, rate_column: str | None, scale: float) -> "Load":
    from gpuscale.base.loads import TraceLoad
    from gpuscale.lab.sim.load import load_trace

    if is_jsonl(name):
        times_s = sorted(each.start_ms / 1000 for each in mooncake_requests(name))
        if not times_s or not 0 <= times_s[0] <= times_s[-1] < _LONGEST_TRACE_S:
            raise UsageError(f"--trace: found no entries in {name}, or times of over a century")
        return TraceLoad([each - times_s[0] for each in times_s], scale)
    text = read_text(name, TRACE_MIB)
    return load_trace(text, name, time_column=time_column, rate_column=rate_column, scale=scale)


def is_jsonl(name: str) -> bool:
    """Return whether a trace has a JSON document on each line, as Mooncake's do."""
    return Path(name).suffix in (".jsonl", ".ndjson")


def mooncake_requests(name: str) -> "Sequence[TracedRequest]":
    """Return the requests of a Mooncake trace."""
    from gpuscale.load.results import read_mooncake

    return read_mooncake(read_text(name, TRACE_MIB).splitlines(), shown_name(name)).requests


def token_lengths(tokens: str | None, trace: str | None) -> "tuple[Lengths, ...]":
    """Return the requests' token lengths in order; none if no option gives them."""
    from gpuscale.load import parse_lengths, read_lengths

    if trace is not None and is_jsonl(trace):
        entries = mooncake_requests(trace)
        return tuple((each.prompt_tokens or 0, each.output_tokens or 0) for each in entries)
    if tokens is None:
        return ()
    columns = tokens.split(",")
    if trace is not None and len(columns) == 2:
        return read_lengths(read_text(trace, TRACE_MIB), shown_name(trace), columns)
    try:
        return (parse_lengths(tokens),)
    except ValueError as error:
        raise UsageError(f"--tokens: {error}") from None
