"""Tables that fit a terminal's width: columns may be left out, numbers and headings never cut."""

from collections.abc import Callable, Collection, Sequence

GAP = "  "
_MARKDOWN_BAR = "\\|"
_NAME_WIDTH = 8
"""Letters of a name that still identify things: its start and its end."""

Cells = Sequence[str]
Table = Callable[[Sequence[Cells], Collection[int]], Sequence[str]]
"""Writes one from its rows and the columns of words, such as `aligned`."""


def aligned(rows: Sequence[Cells], left: Collection[int] = (0,)) -> list[str]:
    """Return columns two blanks apart: those of words to the left, numbers to the right."""
    if not rows:
        return []
    widths = _widths(rows)
    return [_aligned_row(row, widths, left) for row in rows]


def markdown(rows: Sequence[Cells], left: Collection[int] = (0,)) -> list[str]:
    """Return the same columns as a table of Markdown."""
    if not rows:
        return []
    ends = ["---" if index in left else "---:" for index in range(len(rows[0]))]
    lines = [rows[0], ends, *rows[1:]]
    return [f"| {' | '.join(cell.replace('|', _MARKDOWN_BAR) for cell in row)} |" for row in lines]


def fitted(rows: Sequence[Cells], width: int, keep: Sequence[int], spare: int) -> list[str]:
    """Return the rows aligned within a width, without the columns that have no room.

    Args:
        rows: the headings, then a row per name; the name is the first cell.
        width: of the terminal, in letters.
        keep: indices of the other columns, the most important first; the last goes first.
        spare: how many of them go before names are shortened.
    """
    kept = list(keep)
    least = len(keep) - spare
    while len(kept) > least and _room_for_names(rows, width, kept) < _name_width(rows):
        kept.pop()
    while len(kept) > 1 and _room_for_names(rows, width, kept) < _NAME_WIDTH:
        kept.pop()
    room = max(1, _room_for_names(rows, width, kept))
    shown = sorted(kept)
    return aligned([(shortened(row[0], room), *(row[index] for index in shown)) for row in rows])


def shortened(name: str, width: int) -> str:
    """Return a name shortened to `width` characters in the middle, as ends tell siblings apart."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 3
    return name[: width - tail - 1] + "…" + (name[-tail:] if tail else "")


def fits(rows: Sequence[Cells], width: int) -> bool:
    """Return whether the rows fit a width as they are."""
    return sum(_widths(rows)) + len(GAP) * (len(rows[0]) - 1) <= width


def _room_for_names(rows: Sequence[Cells], width: int, kept: Sequence[int]) -> int:
    widths = _widths(rows)
    return width - sum(widths[index] + len(GAP) for index in kept)


def _name_width(rows: Sequence[Cells]) -> int:
    return max(len(row[0]) for row in rows)


def _widths(rows: Sequence[Cells]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def _aligned_row(row: Cells, widths: Sequence[int], left: Collection[int]) -> str:
    cells = (
        cell.ljust(width) if index in left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return GAP.join(cells).rstrip()
