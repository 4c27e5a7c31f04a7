"""What GPUs did over time, as a chart for terminals, a picture, and rows."""

import html
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gpuscale.base.pages.words import number_text, plain_text
from gpuscale.base.words import counted, rfc3339
from gpuscale.ops.history.questions import Use

_UNITS = {"use": "%", "memory": "MiB", "power": "W"}
_WORDS = {"use": "GPU use", "memory": "GPU memory used", "power": "GPU power"}
_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
"""Told apart by people who see fewer colours; more lines than these can't be told apart by anybody."""
_WIDTH, _HEIGHT, _LEFT, _TOP, _ROW = 900, 300, 60, 40, 18
_TICKS = 5

Key = tuple[str, ...]
Bins = Sequence[tuple[int, float, float, float]]


def use_rows(use: Use) -> Iterator[Sequence[object]]:
    """Yield rows for programs: begin of the bin, the key's parts, mean, least and highest value."""
    for key, bins in use.series.items():
        for begin, *values in bins:
            yield rfc3339(begin), *key, *(round(each, 3) for each in values)


def use_columns(use: Use) -> list[str]:
    """Return the names of those rows' columns."""
    return ["time", *use.names, "mean", "min", "max"]


def use_lines(use: Use, width: int) -> Iterator[str]:
    """Return a terminal's chart: a line for each key, with one letter or more bins in a letter.

    Args:
        use: what to show.
        width: of a line in letters.
    """
    yield _headline(use)
    yield ""
    named = {_name(key): (key, bins) for key, bins in use.series.items()}
    longest = max((*map(len, named), 4))
    room = max(10, width - longest - 33)
    head = f"{_UNITS[use.measure]:>9}"
    yield f"{'':<{longest}}  {'MEAN ' + head.strip():>9}  {'MIN':>7}  {'MAX':>7}"
    for name, (_, bins) in sorted(named.items(), key=lambda item: -_mean(item[1][1])):
        figures = (_mean(bins), min(each[2] for each in bins), max(each[3] for each in bins))
        mean, least, most = map(number_text, figures)
        yield f"{name:<{longest}}  {mean:>9}  {least:>7}  {most:>7}  {_spark(use, bins, room)}"
    if not use.series:
        yield "Nothing is kept of this time."


def use_picture(use: Use) -> str:
    """Return the chart as an SVG that loads nothing: the lines with the highest means, and how many more."""
    ordered = sorted(use.series.items(), key=lambda item: -_mean(item[1]))
    shown = ordered[: len(_COLOURS)]
    top = _ceiling(use, shown)
    bottom = _TOP + _HEIGHT
    legend = bottom + 50
    height = legend + _ROW * (len(shown) + 1)
    span = max(1, use.end_s - use.begin_s)

    def x(at_s: float) -> float:
        return _LEFT + (at_s - use.begin_s) / span * (_WIDTH - _LEFT - 20)

    def y(value: float) -> float:
        return bottom - value / top * _HEIGHT

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{html.escape(_headline(use))}</title>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{html.escape(_headline(use))}</text>',
    ]
    for tick in range(_TICKS + 1):
        value, at_s = top * tick / _TICKS, use.begin_s + span * tick / _TICKS
        parts += [
            f'<path d="M{_LEFT} {y(value):.1f}H{_WIDTH - 20}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{number_text(value)}</text>',
            f'<text x="{x(at_s):.1f}" y="{bottom + 20}" text-anchor="middle">'
            f"{_moment(round(at_s), span)}</text>",
        ]
    for number, (key, bins) in enumerate(shown):
        path, before = [], None
        for begin, mean, *_ in bins:
            letter = "L" if before == begin - use.every_s else "M"
            path.append(f"{letter}{x(begin):.1f} {y(mean):.1f}H{x(begin + use.every_s):.1f}")
            before = begin
        row = legend + _ROW * number
        parts += [
            f'<path d="{"".join(path)}" fill="none" stroke="{_COLOURS[number]}" stroke-width="1.5"/>',
            f'<rect x="{_LEFT}" y="{row - 9}" width="14" height="4" fill="{_COLOURS[number]}"/>',
            f'<text x="{_LEFT + 20}" y="{row}">{html.escape(_name(key))}: {number_text(_mean(bins))} '
            f"{_UNITS[use.measure]}</text>",
        ]
    if len(ordered) > len(shown):
        more = f"and {len(ordered) - len(shown)} more with lower means"
        parts.append(f'<text x="{_LEFT + 20}" y="{legend + _ROW * len(shown)}">{more}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _headline(use: Use) -> str:
    every = counted(use.every_s, "second") if use.every_s < 120 else f"{use.every_s // 60} minutes"
    span = f"{_moment(use.begin_s, 10**9)} to {_moment(use.end_s, 10**9)} UTC"
    return f"{_WORDS[use.measure]}, mean of each {every}, {span}"


def _name(key: Key) -> str:
    return plain_text("/".join(filter(None, key))) or "all"


def _mean(bins: Bins) -> float:
    return sum(each[1] for each in bins) / len(bins)


def _ceiling(use: Use, shown: Sequence[tuple[Key, Bins]]) -> float:
    if use.measure == "use":
        return 100.0
    return max((each[1] for _, bins in shown for each in bins), default=0.0) or 1.0


def _spark(use: Use, bins: Bins, room: int) -> str:
    """Return bars of means; a space where there is nothing."""
    count = max(1, -(-(use.end_s - use.begin_s) // use.every_s))
    letters: list[list[float]] = [[] for _ in range(min(room, count))]
    for begin, mean, *_ in bins:
        at = (begin - use.begin_s) // use.every_s * len(letters) // count
        letters[max(0, min(at, len(letters) - 1))].append(mean)
    top = _ceiling(use, [((), bins)])
    return "".join(
        _BARS[min(7, int(sum(each) / len(each) / top * 8))] if each else " " for each in letters
    ).rstrip()


def _moment(at_s: int, span_s: int) -> str:
    shown = "%H:%M" if span_s <= 86_400 else "%m-%d %H:%M" if span_s < 10**9 else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(at_s, UTC).strftime(shown)
