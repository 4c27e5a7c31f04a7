"""Faults of queries on known series: rates of gauges, raw counters, sums."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.golang.durations import format_duration
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.inputs import Inputs
from gpuscale.ops.lint.servers import release_of
from gpuscale.ops.lint.workloads import Workload
from gpuscale.series.promql import Node
from gpuscale.server.rules.queries import Read, divides_vectors, labels_read, reads
from gpuscale.signals import facts_of, former_label, former_series

QUERY_CHECKS = Checks()
RATE_OF_GAUGE = QUERY_CHECKS.add(
    "rate-of-gauge",
    Severity.WARNING,
    "`rate` of a series that goes up and down by itself.",
    "Leave rate() out; for a mean over time use avg_over_time(), for a change delta().",
)
DELTA_OF_COUNTER = QUERY_CHECKS.add(
    "delta-of-counter",
    Severity.WARNING,
    "`delta` or `deriv` of a counter, which fall with every restart.",
    "Take increase() or rate(), which know restarts.",
)
RENAMED_SERIES = QUERY_CHECKS.add(
    "renamed-series",
    Severity.NOTE,
    "A series that newer releases of its server have under another name or not at all; a warning where such "
    "a one runs.",
    "Ask for the newer name, or for both with `or`.",
)
RENAMED_LABEL = QUERY_CHECKS.add(
    "renamed-label",
    Severity.WARNING,
    "A label that series have under another name since a release of who gives them, so that a query by it "
    "finds nothing; a note where an option brings it back.",
    "Ask for the newer label.",
)
COUNTER_WITHOUT_RATE = QUERY_CHECKS.add(
    "counter-without-rate",
    Severity.WARNING,
    "A counter as it is, which only ever grows.",
    "Put it into rate(...[5m]).",
)
COUNTER_BY_NAME = QUERY_CHECKS.add(
    "counter-by-name",
    Severity.NOTE,
    "A series that is read as it is, and that its name makes a counter; nothing else is known of it.",
    "Put it into rate(...[5m]), if it is one.",
)
SHORT_RATE_WINDOW = QUERY_CHECKS.add(
    "short-rate-window",
    Severity.NOTE,
    "A range that may hold fewer than two samples; a warning where a monitor says that it does.",
    "Take four scrape intervals, such as [2m] at 30 s.",
)

SHORTEST_WINDOW_MS = 60_000
"""Two scrapes at the 30 s that many exporters are scraped at; Prometheus' own default needs 2 min."""
_OF_COUNTERS = frozenset({"rate", "irate", "increase"})
_OF_GAUGES = frozenset({"delta", "idelta", "deriv", "predict_linear"})
_ANY_COUNTER_GOES = frozenset(
    {*_OF_COUNTERS, "resets", "changes", "absent", "absent_over_time", "present_over_time"}
)


def query_findings(
    inputs: Inputs, node: Node, place: Place, query: str, workload: Workload | None = None
) -> Iterator[LintFinding]:
    """Return a query's faults that follow from the kinds of its series, each series once.

    Args:
        inputs: the files, for how often series are scraped.
        node: the query.
        place: of the finding.
        query: the text that the user wrote, as evidence.
        workload: whose pods have the series; None where that is not known.
    """
    grows = not divides_vectors(node)
    yield from renamed_findings(node, place, query, workload)
    yield from _renamed_labels(node, place, query)
    for read in dict.fromkeys(reads(node)):
        yield from _kind_findings(read, place, query, grows=grows)
        needs_two = read.function in _OF_COUNTERS | {"delta", "idelta", "deriv"}
        if needs_two:
            yield from _short(inputs, read, place)


def _kind_findings(read: Read, place: Place, query: str, *, grows: bool) -> Iterator[LintFinding]:
    known = facts_of(read.series) if read.series is not None else None
    if known is None:
        return
    if known.kind == "gauge" and read.function in _OF_COUNTERS:
        yield RATE_OF_GAUGE.found(
            place,
            f"{read.function}() of {read.series}, which is a gauge: "
            "each fall of the value counts as a restart.",
            query,
            f"Leave {read.function}() out; for a mean over time use avg_over_time(), "
            "for a change delta().",
        )
    elif known.kind == "counter" and read.function in _OF_GAUGES and not known.is_guessed:
        yield DELTA_OF_COUNTER.found(
            place,
            f"{read.function}() of {read.series}, which is a counter: it falls to 0 when its process starts "
            "again, and the value is negative then.",
            query,
        )
    elif known.kind != "counter" or not grows or read.function in _ANY_COUNTER_GOES:
        return
    elif known.is_guessed:
        yield COUNTER_BY_NAME.found(
            place,
            f"{read.series} is a counter by its name; if it is one, it only grows, so that an HPA ends at "
            "maxReplicas and stays there. Some gauges are named so too.",
            query,
        )
    else:
        yield COUNTER_WITHOUT_RATE.found(
            place,
            f"{read.series} is a counter and is read as it is: it only grows, "
            "so that an HPA ends at maxReplicas and stays there.",
            query,
        )


def renamed_findings(
    node: Node, place: Place, query: str, workload: Workload | None
) -> Iterator[LintFinding]:
    """Report older names where the newer one is not asked for beside them; see `query_findings`."""
    names = {read.series for read in reads(node)}
    for name in sorted(each for each in names if each is not None):
        yield from _renamed(name, names, place, query, workload)


def _renamed(
    name: str, names: set[str | None], place: Place, query: str, workload: Workload | None
) -> Iterator[LintFinding]:
    former = former_series(name)
    if former is None or former.successor in names:
        return
    server, now = former.family.title, former.successor
    check, evidence = RENAMED_SERIES, query
    what = f"Newer releases of {server} have no {name}, and nothing stands in its place."
    if now:
        what = f"{name} is {now} in newer releases of {server}, which have no series of the older name."
    running = None if workload is None else release_of(workload, former.family.name)
    if former.gone and running is not None and running[0] >= former.gone:
        check, evidence = RENAMED_SERIES.at(Severity.WARNING), f"{running[1]}; {query}"
        gone = ".".join(map(str, former.gone))
        what = f"{server} {gone} and later have no {name}"
        what += f": it is {now} there." if now else ", and nothing stands in its place."
    fix = f"Ask for {now}, or for both: {now} or {name}." if now else "Ask for another series."
    yield check.found(place, what, evidence, fix)


def _renamed_labels(node: Node, place: Place, query: str) -> Iterator[LintFinding]:
    """Report each label that is gone, unless the query asks for the newer one beside it."""
    read = tuple(labels_read(node))
    asked = {label for _, label, _ in read}
    told: set[str] = set()
    for series, label, matcher in read:
        former = former_label(series, label)
        if former is None or former.successor in asked or label in told:
            continue
        told.add(label)
        since = f"Since {former.server} {former.gone}"
        since += f", unless it runs with {former.unless}," if former.unless else ""
        if matcher is None:
            then = "the rows that are grouped by it are one"
        else:
            then = f"{matcher} " + ("leaves none out" if matcher.predicate()("") else "finds none")
        yield RENAMED_LABEL.at(Severity.NOTE if former.unless else Severity.WARNING).found(
            place,
            f"{since} series such as {series} have {former.successor} in place of {label}: {then}.",
            query,
            f"Write {former.successor} in place of {label}.",
        )


def _short(inputs: Inputs, read: Read, place: Place) -> Iterator[LintFinding]:
    """Report a range without room for two samples, by what the files say of scrapes or by what is usual."""
    range_ms = read.range_ms or 0
    window = format_duration(range_ms)
    what = f"{read.function}() over {window} needs two samples in {window}"
    scrapes = [each for each in inputs.scrapes if not each.of]
    own = [each for each in inputs.scrapes if each.of and (read.series or "").startswith(each.of)]
    known = [
        (each.interval_ms, each.place) for each in own or scrapes if each.interval_ms is not None
    ]
    is_known = bool(known) and len(known) == len(own or scrapes)
    shortest, where = min(known, key=lambda each: each[0], default=(0, None))
    if is_known and 2 * shortest > range_ms:
        interval = format_duration(shortest)
        yield SHORT_RATE_WINDOW.at(Severity.WARNING).found(
            place,
            f"{what}, and one is taken every {interval}: it has no value.",
            f"{where}: every {interval}",
            f"Take [{format_duration(4 * shortest)}], four scrape intervals.",
        )
    elif range_ms < SHORTEST_WINDOW_MS and not is_known:
        yield SHORT_RATE_WINDOW.found(
            place,
            f"{what}.",
            "Prometheus scrapes every minute by default, with kube-prometheus-stack every 30 s.",
        )
