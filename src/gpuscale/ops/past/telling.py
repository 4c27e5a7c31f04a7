"""What happened, as text, as Markdown for a ticket, and for programs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from gpuscale.base.pages.columns import markdown
from gpuscale.base.pages.words import plain_text, seconds_text
from gpuscale.base.words import counted, rfc3339
from gpuscale.ops.past.incidents import Incident, Past


def past_lines(past: Past) -> Iterator[str]:
    """Return the past as text: a line of counts, then a line for each thing that happened."""
    yield _headline(past)
    yield ""
    for each in past.incidents:
        yield f"{_when(each, past):<27}  {plain_text(each.about)}  {plain_text(each.what)}{_lasted(each)}"
    if not past.incidents:
        yield "Nothing that is told happened."
    for each_ in past.unseen:
        yield f"Not seen: {plain_text(each_)}"


def past_markdown(past: Past) -> Iterator[str]:
    """Return the past as Markdown, for a ticket."""
    yield f"**{_headline(past)}**"
    yield ""
    rows = [("when (UTC)", "what", "happened")]
    for each in past.incidents:
        cells = (_when(each, past), each.about, f"{each.what}{_lasted(each)}")
        rows.append((plain_text(cells[0]), plain_text(cells[1]), plain_text(cells[2])))
    yield from markdown(rows, range(3))
    for each_ in past.unseen:
        yield ""
        yield f"Not seen: {plain_text(each_)}"


def past_document(past: Past) -> Mapping[str, object]:
    """Return the past for programs."""
    return {
        "from": rfc3339(past.begin_s),
        "to": rfc3339(past.end_s),
        "stepSeconds": past.step_s,
        "incidents": [
            {
                "kind": each.kind,
                "about": each.about,
                "what": each.what,
                "from": rfc3339(each.begin_s),
                "to": rfc3339(each.end_s),
                "seconds": each.end_s - each.begin_s,
                "beginsBefore": each.begins_before,
                "goesOn": each.goes_on,
            }
            for each in past.incidents
        ],
        "unseen": list(past.unseen),
    }


def _headline(past: Past) -> str:
    counts = Counter(each.kind for each in past.incidents)
    said = ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "nothing"
    span = f"{_moment(past.begin_s)} to {_moment(past.end_s)} UTC"
    return f"{span}: {said}; moments are {counted(past.step_s, 'second')} apart"


def _when(each: Incident, past: Past) -> str:
    shown = _moment if past.end_s - past.begin_s > 86_400 else _clock
    begin = f"before {shown(each.begin_s)}" if each.begins_before else shown(each.begin_s)
    if each.goes_on:
        return f"{begin} to the end"
    return begin if each.end_s == each.begin_s else f"{begin} to {_clock(each.end_s)}"


def _lasted(each: Incident) -> str:
    length_s = each.end_s - each.begin_s
    return f" ({seconds_text(length_s)})" if length_s else ""


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")
