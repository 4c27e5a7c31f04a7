"""Binary operators on tables: the pairs of columns depend on labels only, and are computed once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql.elementwise import ARITHMETIC
from gpuscale.series.promql.functions.aggregate import Grouping
from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.tree import Binary, Cardinality, Matching
from gpuscale.series.promql.vectorised.aggregation import Reduction, Segments
from gpuscale.series.promql.vectorised.axis import Axis, Groups, Making
from gpuscale.series.promql.vectorised.blocks import Flags, Floats, Ints
from gpuscale.series.promql.vectorised.elementwise import arithmetic, compared
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.promql.vectorised.table import Table

_PAIRS_A_COLUMN = 4
"""Of each column, so many may be looked at; as many pods as a GPU has had within a range."""


def drops_name(node: Binary) -> bool:
    """Return whether an operator's result loses the metric's name."""
    return node.operator in ARITHMETIC or node.return_bool


def with_scalar(
    node: Binary,
    table: Table,
    numbers: Floats,
    number_ms: int | None,
    making: Making,
    *,
    swapped: bool,
) -> Table:
    """Return an operator's result for a vector and a scalar at each step.

    Args:
        node: the operation.
        table: the vector.
        numbers: K x 1.
        number_ms: when the number was measured, in an instant query; None where it was not.
        making: of the query's label sets.
        swapped: whether the number stands on the left.

    Raises:
        RowWiseError: label sets become alike.
    """
    left, right = (numbers, table.values) if swapped else (table.values, numbers)
    measured = table.measured_ms
    if measured is not None and number_ms is not None:
        measured = np.minimum(measured, number_ms)
    table = Table(table.axis, table.columns, table.values, table.present, measured)
    if node.operator in ARITHMETIC:
        return table.with_values(
            arithmetic(node.operator, left, right, making.budget), table.axis.nameless(making)
        )
    holds = compared(node.operator, left, right)
    if node.return_bool:
        return table.with_values(holds.astype(np.float64), table.axis.nameless(making))
    return table.where(holds)


def matched(node: Binary, left: Table, right: Table, making: Making) -> Table:
    """Return an operator's result for the matched pairs of columns.

    Raises:
        RowWiseError: a cell may have more than one partner, or label sets become alike.
    """
    matching = node.matching
    swapped = matching.cardinality is Cardinality.ONE_TO_MANY
    many, one = (right, left) if swapped else (left, right)
    fills = matching.fill_left, matching.fill_right
    fill_many, fill_one = reversed(fills) if swapped else fills
    sides = _signatures(matching, many.axis, one.axis, making)
    _check_single(one.of(sides.one.ids), one.presence())
    many_ids, one_ids = many.of(sides.many.ids), one.of(sides.translated)
    chosen, partners = _pairs(many_ids, one_ids)
    present = _both(many.present, chosen, one.present, partners)
    parts = [_Pairs(chosen, partners, present)]
    if fill_one is not None:
        there = many.presence() & ~_found(matching, many, one, making)[0]
        lonely = np.arange(many.width)
        parts.append(_Pairs(lonely, np.full(many.width, _NONE), there))
    if fill_many is not None:
        there = one.presence() & ~_found(matching, one, many, making)[0]
        lonely = np.arange(one.width)
        parts.append(_Pairs(np.full(one.width, _NONE), lonely, there))
    pairs = _Pairs.together(parts, len(many.values))
    cells = len(many.values) * len(pairs.many)
    making.budget.hold((9 if len(parts) == 1 else 27) * cells)
    many_values = _values(many, pairs.many, fill_many)
    one_values = _values(one, pairs.one, fill_one)
    there = np.ones(many_values.shape, np.bool_) if pairs.present is None else pairs.present
    is_single = matching.cardinality is Cardinality.ONE_TO_ONE
    if is_single and (pairs.many >= 0).any():
        ours = np.flatnonzero(pairs.many >= 0)
        _check_single(many_ids[pairs.many[ours]], there[:, ours])
    is_lone = len(parts) == 1 and len(np.unique(many_ids[chosen])) == len(chosen)
    axis = _joined_axis(node, many, one, pairs, making, is_lone=is_lone)
    first, second = (one_values, many_values) if swapped else (many_values, one_values)
    measured = None
    if many.measured_ms is not None and one.measured_ms is not None:
        measured = np.minimum(_times(many, pairs.many), _times(one, pairs.one))
    if node.operator in ARITHMETIC:
        values, kept = arithmetic(node.operator, first, second, making.budget), pairs.present
    else:
        holds = compared(node.operator, first, second)
        values, kept = (
            (holds.astype(np.float64), pairs.present)
            if node.return_bool
            else (first, there & holds)
        )
    joined = _joined(Table(axis, None, values, kept, measured), there, making)
    return joined.compressed_if_instant()


_NONE = -1
"""In place of the column that a pair lacks, and a number is filled in for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The matched columns of two tables."""

    many: Ints
    one: Ints
    present: Flags | None
    """K x P: at which steps both are there, or what there is of them where one is filled in."""

    @classmethod
    def together(cls, parts: Sequence["_Pairs"], steps: int) -> "_Pairs":
        """Return all pairs, sorted by the column of the "many" side."""
        if len(parts) == 1:
            return parts[0]
        many, one = (
            np.concatenate([getattr(each, side) for each in parts]) for side in ("many", "one")
        )
        there = [
            np.ones((steps, len(each.many)), np.bool_) if each.present is None else each.present
            for each in parts
        ]
        order = np.argsort(np.where(many == _NONE, len(many), many), kind="stable")
        return cls(many[order], one[order], np.concatenate(there, axis=1)[:, order])


def _values(table: Table, columns: Ints, fill: float | None) -> Floats:
    values: Floats = (
        table.values[:, columns] if table.width else np.empty((len(table.values), len(columns)))
    )
    if fill is not None:
        values[:, columns == _NONE] = fill
    return values


def _times(table: Table, columns: Ints) -> Ints:
    """Return the sample times of an instant query's columns; filled-in values have none."""
    times_ms = np.full((1, len(columns)), Reduction.NEVER_MS)
    there = columns != _NONE
    if table.measured_ms is not None:
        times_ms[:, there] = table.measured_ms[:, columns[there]]
    return times_ms


def _check_single(ids: Ints, there: Flags) -> None:
    """Raise if two columns of a group are present at the same step.

    Raises:
        RowWiseError: two are.
    """
    if len(np.unique(ids)) == len(ids):
        return
    if (Segments(ids).reduced(np.add, there.astype(np.int64)) > 1).any():
        raise RowWiseError("more than one partner")


def _pairs(many_ids: Ints, one_ids: Ints) -> tuple[Ints, Ints]:
    """Return the column pairs in equal groups, sorted by the column of the "many" side.

    A group has several of a side where series follow each other, such as those of a GPU's pods.

    Args:
        many_ids: the group of each column.
        one_ids: likewise; -1 where that is none of the many side's.

    Raises:
        RowWiseError: they are very many.
    """
    known = np.flatnonzero(one_ids >= 0)
    ordered = known[np.argsort(one_ids[known], kind="stable")]
    first = np.searchsorted(one_ids[ordered], many_ids)
    counts = np.searchsorted(one_ids[ordered], many_ids, "right") - first
    total = int(counts.sum())
    if total > _PAIRS_A_COLUMN * (len(many_ids) + len(one_ids)):
        raise RowWiseError("very many partners")
    chosen = np.repeat(np.arange(len(many_ids)), counts)
    place = np.arange(total) - np.repeat(counts.cumsum() - counts, counts)
    return chosen, ordered[np.repeat(first, counts) + place]


def _joined(table: Table, there: Flags, making: Making) -> Table:
    """Return the table with columns of equal labels merged.

    Args:
        table: the pairs.
        there: at which steps both of a pair are there, whatever a comparison says.
        making: of the query's label sets.

    Raises:
        RowWiseError: two of them are there at one step, which fails.
    """
    alike = making.once((table.axis,), "alike", lambda: _alike(table.axis, making))
    if len(alike.axis) == len(table.axis):
        return table
    if table.present is None or table.measured_ms is not None:
        raise RowWiseError("label sets are alike")
    _check_single(alike.places, there)
    shape = len(table.values), len(alike.axis)
    values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
    # One by one: columns with equal labels are present at different steps.
    order = np.argsort(alike.places, kind="stable")
    ids = alike.places[order]
    turn = np.arange(len(ids)) - np.searchsorted(ids, ids)
    for number in range(int(turn.max()) + 1):
        columns, places = order[turn == number], ids[turn == number]
        cells = table.present[:, columns]
        values[:, places] = np.where(cells, table.values[:, columns], values[:, places])
        present[:, places] |= cells
    return Table(alike.axis, None, values, present, None)


def _alike(axis: Axis, making: Making) -> "_Union":
    """Return the distinct label sets, and the index of each one of the axis."""
    if axis.is_known_unique:
        return _Union(axis, np.arange(len(axis)))
    return _union(Axis.listed([]), axis, making)


def _both(many: Flags | None, chosen: Ints, one: Flags | None, partners: Ints) -> Flags | None:
    if many is None:
        return None if one is None else one[:, partners]
    return many[:, chosen] if one is None else many[:, chosen] & one[:, partners]


@dataclass(frozen=True, slots=True, eq=False)
class _Signatures:
    """The labels by which label sets of two axes are matched."""

    many: Groups
    one: Groups
    translated: Ints
    """For each position of the one side its group on the many side; -1 where that has none."""


def _signatures(matching: Matching, many: Axis, one: Axis, making: Making) -> _Signatures:
    ours = many.groups(matching.labels, making, by=matching.on)
    theirs = one.groups(matching.labels, making, by=matching.on)

    def translated() -> Ints:
        translation = np.array([ours.by_key.get(key, -1) for key in theirs.by_key], np.int64)
        made = translation[theirs.ids] if len(translation) else theirs.ids
        making.budget.hold_labels(made.nbytes)
        return made

    key = ("translated", matching.labels, matching.on)
    return _Signatures(ours, theirs, making.once((many, one), key, translated))


def _joined_axis(
    node: Binary, many: Table, one: Table, pairs: _Pairs, making: Making, *, is_lone: bool
) -> Axis:
    """Return the label sets of matched pairs.

    Args:
        node: the operation.
        many: the side that may be many.
        one: the other one.
        pairs: their columns.
        making: of the query's label sets.
        is_lone: whether no two pairs are in one group.
    """
    ours = np.where(pairs.many == _NONE, _NONE, _columns(many)[pairs.many] if many.width else _NONE)
    theirs = np.where(pairs.one == _NONE, _NONE, _columns(one)[pairs.one] if one.width else _NONE)

    def made() -> Axis:
        ours_label, theirs_label = many.axis.label, one.axis.label
        ours_at, theirs_at = ours.tolist(), theirs.tolist()
        size = 100 * len(ours)
        making.budget.hold_labels(size)
        signature = Grouping(node.matching.labels, by=node.matching.on).made

        def label(place: int) -> LabelSet:
            our, their = ours_at[place], theirs_at[place]
            # A filled-in value has the labels that are matched on.
            if our == _NONE:
                other = theirs_label(their)
                return _joined_labels(node, signature(other), other)
            mine = ours_label(our)
            return _joined_labels(
                node, mine, signature(mine) if their == _NONE else theirs_label(their)
            )

        # If each group has one match, its labels are unique in the result.
        is_single = node.matching.cardinality is Cardinality.ONE_TO_ONE and is_lone
        return Axis(
            len(ours),
            label,
            size + many.axis.size + one.axis.size,
            is_unique=True if is_single and not node.matching.include else None,
        )

    key = ("joined", node.matching, drops_name(node), ours.tobytes(), theirs.tobytes())
    return making.once((many.axis, one.axis), key, made)


def _joined_labels(node: Binary, many: LabelSet, one: LabelSet) -> LabelSet:
    matching = node.matching
    labels = many.without_name() if drops_name(node) else many
    if matching.cardinality is Cardinality.ONE_TO_ONE:
        labels = labels.keep(matching.labels) if matching.on else labels.drop(matching.labels)
    if matching.include:
        labels = labels.override({name: one.value(name) for name in matching.include})
    return labels


def set_operation(node: Binary, left: Table, right: Table, making: Making) -> Table:
    """Return the result of `and`, `unless` or `or`."""
    if node.operator == "or":
        there, _ = _found(node.matching, right, left, making)
        return _together(left, right.where(~there), making)
    there, oldest_ms = _found(node.matching, left, right, making)
    if node.operator == "unless":
        return left.where(~there)
    if left.measured_ms is not None and oldest_ms is not None:
        measured = np.minimum(left.measured_ms, oldest_ms)
        left = Table(left.axis, left.columns, left.values, left.present, measured)
    return left.where(there)


def _found(
    matching: Matching, table: Table, other: Table, making: Making
) -> tuple[Flags, Ints | None]:
    """Return whether each cell has a match in the other table, and its oldest sample time."""
    sides = _signatures(matching, table.axis, other.axis, making)
    ids = other.of(sides.translated)
    groups = sides.many
    there = np.zeros((len(table.values), len(groups.axis)), np.bool_)
    oldest = None
    known = np.flatnonzero(ids >= 0)
    if other.measured_ms is not None:
        oldest = np.full(there.shape, Reduction.NEVER_MS)
    if known.size:
        segments = Segments(ids[known])
        there[:, segments.found] = segments.reduced(np.logical_or, other.presence()[:, known])
        if oldest is not None and other.measured_ms is not None:
            times = segments.reduced(np.minimum, other.measured_ms[:, known])
            oldest[:, segments.found] = times
    own = table.of(groups.ids)
    return there[:, own], None if oldest is None else oldest[:, own]


@dataclass(frozen=True, slots=True, eq=False)
class _Union:
    """The union of two axes' label sets."""

    axis: Axis
    """Those of the first, then what only the second has."""
    places: Ints
    """Where those of the second are."""

    @property
    def size(self) -> int:
        return self.places.nbytes + self.axis.size


def _union(one: Axis, other: Axis, making: Making) -> _Union:
    places = np.empty(len(other), np.int64)
    new: list[int] = []
    with making.holding(200 * (len(one) + len(other))):
        known: dict[LabelKey, int] = {}
        for part in making.parts(range(len(one))):
            known.update((one.label(place).key, place) for place in part)
        is_unique = len(known) == len(one)
        for part in making.parts(range(len(other))):
            for place in part:
                places[place] = known.setdefault(other.label(place).key, len(one) + len(new))
                if places[place] == len(one) + len(new):
                    new.append(place)
    size = places.nbytes + 40 * len(new)
    making.budget.hold_labels(size)
    first, second, border = one.label, other.label, len(one)
    axis = Axis(
        border + len(new),
        lambda place: first(place) if place < border else second(new[place - border]),
        one.size + other.size + size,
        is_unique=is_unique,
    )
    return _Union(axis, places)


def _together(left: Table, right: Table, making: Making) -> Table:
    """Return the cells of both tables, or raise if two have equal labels at one step.

    Raises:
        RowWiseError: two columns of one side are alike.
    """
    union = making.once(
        (left.axis, right.axis), "together", lambda: _union(left.axis, right.axis, making)
    )
    ours, theirs = _columns(left), union.places[_columns(right)]
    if len(np.unique(theirs)) < len(theirs):
        raise RowWiseError("label sets are alike")
    if left.measured_ms is not None and right.measured_ms is not None:
        values = np.concatenate([left.values, right.values], axis=1)
        measured = np.concatenate([left.measured_ms, right.measured_ms], axis=1)
        return Table(union.axis, np.concatenate([ours, theirs]), values, None, measured)
    column_of = np.full(len(union.axis), -1)
    column_of[ours] = np.arange(left.width)
    is_new = column_of[theirs] < 0
    values = np.concatenate([left.values, right.values[:, is_new]], axis=1)
    present = np.concatenate([left.presence(), right.presence()[:, is_new]], axis=1)
    both, there = column_of[theirs[~is_new]], right.presence()[:, ~is_new]
    values[:, both] = np.where(there, right.values[:, ~is_new], values[:, both])
    present[:, both] |= there
    return Table(union.axis, np.concatenate([ours, theirs[is_new]]), values, present, None)


def _columns(table: Table) -> Ints:
    return np.arange(table.width) if table.columns is None else table.columns
