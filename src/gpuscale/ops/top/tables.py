"""Tables of a picture: their columns, which of them a narrow terminal has, and how rows are sorted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from gpuscale.base.pages.columns import GAP, aligned, shortened
from gpuscale.base.pages.words import NO_DATA, number_text, plain_text
from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, NodeRow, Picture, mean_use

_LEAST_NAME, _LEAST_SENTENCE = 10, 24
"""Letters of a column of words that still say something."""
_ENOUGH_WORDS = 24
"""That it gets before others get more than they need at least."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    head: str
    text: Callable[[Any], str]
    key: Callable[[Any], Any]
    """By which rows are sorted; None is last."""
    importance: int
    """Of a narrow terminal's columns those with the lowest number stay."""
    least: int | None = None
    """Letters of a column of words, which stands to the left, from which on it is shortened where there is no
    room; None of a column of numbers, which are never cut."""
    falls: bool = True
    """Whether sorting begins with the highest."""


@dataclass(frozen=True, slots=True)
class Table:
    """One of the tables of a picture."""

    name: str
    rows: Callable[[Picture], Sequence[Any]]
    columns: tuple[Column, ...]
    nothing: str
    """Said where there are no rows."""

    def sorted_rows(self, picture: Picture, column: int | None, wanted: str = "") -> list[Any]:
        """Return the rows by one column, those that have the wanted text somewhere."""
        rows = [row for row in self.rows(picture) if self._has(row, wanted.casefold())]
        if column is None:
            return rows
        by = self.columns[column]
        known = [row for row in rows if by.key(row) is not None]
        return sorted(known, key=by.key, reverse=by.falls) + [
            row for row in rows if by.key(row) is None
        ]

    def _has(self, row: object, wanted: str) -> bool:
        return not wanted or any(wanted in each.text(row).casefold() for each in self.columns)

    def fitting(self, rows: Sequence[object], width: int) -> "Fitting":
        """Return which columns have room within a width of letters, and how wide each is."""
        widths = [
            max([len(each.head), *(len(each.text(row)) for row in rows)]) for each in self.columns
        ]
        least = [
            whole if each.least is None else min(whole, max(each.least, len(each.head)))
            for each, whole in zip(self.columns, widths, strict=True)
        ]
        said = [any(each.text(row) != NO_DATA for row in rows) for each in self.columns]
        shown: list[int] = []
        by_importance = sorted(range(len(widths)), key=lambda at: self.columns[at].importance)
        for index in (each for each in by_importance if said[each]):
            if sum(least[each] + len(GAP) for each in (*shown, index)) - len(GAP) > width:
                break
            shown.append(index)
        shown = sorted(shown) or [0]
        spare = width - sum(least[each] + len(GAP) for each in shown) + len(GAP)
        given = {each: least[each] for each in shown}
        # What is left goes to the words, the most important first; none takes all before others have some.
        for most in (_ENOUGH_WORDS, width):
            for each in (each for each in by_importance if each in shown):
                more = max(0, min(spare, min(widths[each], most) - given[each]))
                given[each] += more
                spare -= more
        return Fitting(
            tuple(self.columns[each] for each in shown), tuple(given[each] for each in shown)
        )

    def details(self, row: object) -> list[str]:
        """Return all that is known of one row, a line for each column, nothing shortened."""
        width = max(len(each.head) for each in self.columns)
        return [f"{each.head:<{width}}  {each.text(row)}" for each in self.columns]

    def lines(self, rows: Sequence[object], width: int) -> list[str]:
        """Return the table as lines that fit a width: the headings, then the rows."""
        fitting = self.fitting(rows, width)
        heads = [each.head for each in fitting.columns]
        words = [at for at, each in enumerate(fitting.columns) if each.least is not None]
        return aligned([heads, *map(fitting.cells, rows)], words)


@dataclass(frozen=True, slots=True)
class Fitting:
    """The columns of a table that have room, and their widths."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]

    def cells(self, row: object) -> tuple[str, ...]:
        """Return a row's cells, words shortened to their column."""
        return tuple(
            each.text(row) if each.least is None else _cut(each.text(row), width)
            for each, width in zip(self.columns, self.widths, strict=True)
        )


def _cut(text: str, width: int) -> str:
    """Return words within a width: names keep both ends, sentences their beginning."""
    if " " not in text:
        return shortened(text, width)
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _words(
    head: str,
    text: Callable[[Any], str],
    importance: int,
    key: Callable[[Any], Any] | None = None,
    least: int = _LEAST_NAME,
) -> Column:
    def shown(row: object) -> str:
        return plain_text(text(row)) or NO_DATA

    return Column(head, shown, key or text, importance, least, falls=False)


def _number(head: str, name: str, importance: int, unit: str = "") -> Column:
    value = attrgetter(name)

    def shown(row: object) -> str:
        found = value(row)
        return NO_DATA if found is None else f"{number_text(found)}{unit}"

    return Column(head, shown, value, importance)


def _age(name: str, importance: int) -> Column:
    value = attrgetter(name)

    def shown(row: object) -> str:
        found = value(row)
        return NO_DATA if found is None else age_text(found)

    return Column("AGE", shown, value, importance)


def age_text(seconds: float) -> str:
    """Return an age as `kubectl` writes short ones: `45s`, `12m`, `5h`, `3d`."""
    for least, unit_s, unit in ((172_800, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "m")):
        if seconds >= least:
            return f"{int(seconds // unit_s)}{unit}"
    return f"{int(seconds)}s"


def _memory(row: GpuRow) -> str:
    if row.memory_used_mib is None:
        return NO_DATA
    used = number_text(row.memory_used_mib / 1024)
    total = "" if row.memory_total_mib is None else f"/{number_text(row.memory_total_mib / 1024)}"
    return f"{used}{total}G"


def _owners(row: GpuRow) -> str:
    return ", ".join(row.owners)


def _place(row: Any) -> str:  # noqa: ANN401 - several kinds of rows have a namespace and a name
    return f"{row.namespace}/{row.name}"


def _running_of(row: JobRow) -> str:
    planned = NO_DATA if row.planned is None else str(row.planned)
    return f"{row.succeeded}/{planned}"


def _asked(row: NodeRow) -> str:
    return f"{row.asked_gpus}/{row.gpus}"


GPUS = Table(
    "GPUs",
    attrgetter("gpus"),
    (
        _words("NODE", attrgetter("node"), 1),
        _words("GPU", attrgetter("index"), 0),
        _number("USE", "use_percent", 2, "%"),
        Column("MEMORY", _memory, attrgetter("memory_used_mib"), 4),
        _number("POWER", "power_watts", 6, "W"),
        _number("TEMP", "temperature_celsius", 7, "°"),
        _words("MODEL", attrgetter("model"), 8),
        _words("OWNER", _owners, 3),
        _words("FAULTS", lambda row: ", ".join(row.faults), 5, lambda row: row.faults or None),
    ),
    "no GPU says anything",
)
NODES = Table(
    "Nodes",
    attrgetter("nodes"),
    (
        _words("NAME", attrgetter("name"), 0),
        _words("STATUS", attrgetter("status"), 2),
        Column("GPUS", _asked, attrgetter("gpus"), 1),
        _number("USE", "use_percent", 3, "%"),
        _words("TYPE", attrgetter("instance_type"), 5),
        _words("POOL", attrgetter("pool"), 6),
        _age("age_s", 4),
        _words("NOTES", lambda row: ", ".join(row.notes), 7, lambda row: row.notes or None),
    ),
    "no node has GPUs",
)
WORKLOADS = Table(
    "Workloads",
    attrgetter("workloads"),
    (
        _words("HPA", _place, 0),
        _words("TARGETS", attrgetter("metrics"), 2, attrgetter("times_target")),
        _number("MIN", "least", 7),
        _number("MAX", "most", 6),
        _number("WANTED", "wanted", 3),
        _number("READY", "running", 1),
        _number("PENDING", "pending", 4),
        _words("WHY", attrgetter("reason"), 5, least=_LEAST_SENTENCE),
    ),
    "no HPA",
)
JOBS = Table(
    "Jobs",
    attrgetter("jobs"),
    (
        _words("JOB", _place, 0),
        _words("STATE", attrgetter("state"), 1),
        _number("PENDING", "pending", 3),
        _number("RUNNING", "running", 2),
        Column("DONE", _running_of, attrgetter("succeeded"), 4),
        _number("FAILED", "failed", 5),
        _age("age_s", 6),
    ),
    "no Job asks for GPUs",
)


def event_age(event: EventRow, at_ms: int) -> str:
    """Return how long ago an event was."""
    return age_text(max(0, at_ms - event.at_ms) / 1000)


def _timed(picture: Picture) -> list["_TimedEvent"]:
    return [_TimedEvent(each, event_age(each, picture.at_ms)) for each in picture.events]


@dataclass(frozen=True, slots=True)
class _TimedEvent:
    event: EventRow
    ago: str


EVENTS = Table(
    "Events",
    _timed,
    (
        Column("AGO", attrgetter("ago"), lambda row: row.event.at_ms, 0),
        _words("REASON", attrgetter("event.reason"), 1),
        _words("OBJECT", attrgetter("event.about"), 3),
        _words("MESSAGE", attrgetter("event.message"), 2, least=_LEAST_SENTENCE),
    ),
    "no event about scaling or nodes",
)
TABLES = (WORKLOADS, GPUS, NODES, JOBS, EVENTS)
"""All of them, as they are shown."""


def overview(picture: Picture) -> str:
    """Return the picture in one line."""
    gpus = picture.gpus
    allocatable = sum(each.gpus for each in picture.nodes) or len(gpus)
    parts = [f"{_count(allocatable, 'GPU')}"]
    use = mean_use(gpus)
    if use is not None:
        idle = sum(1 for each in gpus if each.use_percent is not None and each.use_percent < 1)
        parts.append(f"{number_text(use)}% in use, {idle} idle")
    if picture.nodes:
        ready = sum(each.status == "Ready" for each in picture.nodes)
        parts.append(f"{ready} of {_count(len(picture.nodes), 'node')} ready")
    pending = sum(each.pending for each in picture.workloads)
    pending += sum(each.pending for each in picture.jobs)
    if picture.workloads or picture.jobs:
        parts.append(f"{_count(pending, 'pod')} pending")
    faults = sum(bool(each.faults) for each in gpus)
    if faults:
        parts.append(f"{_count(faults, 'GPU')} with faults")
    return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def picture_lines(picture: Picture, width: int, most_events: int) -> Iterable[str]:
    """Return a picture as text that fits a width of letters."""
    yield f"{picture.source}: {overview(picture)}"
    for table in TABLES:
        rows = table.rows(picture)[: most_events if table is EVENTS else None]
        if rows:
            yield ""
            yield from table.lines(rows, width)
    if picture.unseen:
        yield ""
        yield "Not looked at:"
        yield from (f"  {each}" for each in picture.unseen)
