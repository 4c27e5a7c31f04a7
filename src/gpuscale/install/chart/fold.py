"""Folding the same document for many combinations of options into one template with conditions.

What is the same in all combinations is written once; where they differ, a condition is put around the
smallest part that differs, on the fewest options that decide it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

Combination = tuple[int, ...]
"""For each dimension, the index of its option."""
_MISSING = object()
_STEP = 2


@dataclass(frozen=True, slots=True)
class Dimension:
    """An option of the values file that objects depend on."""

    name: str
    conditions: tuple[str, ...]
    """For each of its options, the template expression that is true for it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A value and the combination that it was rendered for."""

    combination: Combination
    value: Any


class Folder:
    """Folds cases into lines of a template.

    Args:
        dimensions: of the combinations.
        scalar: writes a scalar as YAML on one line, or as a block with this indentation below its key.
        line: writes one line of a text.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        scalar: Callable[[Any, int], str],
        line: Callable[[str], str],
    ) -> None:
        self._dimensions = dimensions
        self._scalar = scalar
        self._line = line

    def document(self, cases: Sequence[Case]) -> list[str]:
        """Return the lines of a document that is there in some combinations: a value of None is none."""
        given = [Case(each.combination, _or_missing(each.value)) for each in cases]
        return self._present(given, lambda there: ["---", *self._mapping(there, 0)])

    def _mapping(self, cases: Sequence[Case], indent: int) -> list[str]:
        keys = _merged([list(case.value) for case in cases])
        return [
            line
            for key in keys
            for line in self._present(
                [Case(c.combination, c.value.get(key, _MISSING)) for c in cases],
                lambda there, key=key: self._entry(key, there, indent),  # type: ignore[misc]
            )
        ]

    def _entry(self, key: str, cases: Sequence[Case], indent: int) -> list[str]:
        text = self._scalar(key, indent)
        shown = key if text == json.dumps(key) and not _is_odd(key) else text
        return self._value(f"{' ' * indent}{shown}:", cases, indent)

    def _value(self, head: str, cases: Sequence[Case], indent: int) -> list[str]:
        """Return the lines of a value after its key or dash; values of different shapes are branches."""

        def write(some: Sequence[Case]) -> list[str]:
            value = some[0].value
            if isinstance(value, dict) and value:
                return [head, *self._mapping(some, indent + _STEP)]
            if isinstance(value, list) and value:
                return self._list(head, some, indent)
            if all(_is_foldable(case.value) for case in some):
                return [f"{head} |", *self._text(some, indent + _STEP)]
            return self._branches(
                some, lambda same: [f"{head} {self._scalar(same[0].value, indent + _STEP)}"]
            )

        return self._branches(cases, write, _shape)

    def _text(self, cases: Sequence[Case], indent: int) -> list[str]:
        """Return the lines of a text; those that some variants don't have are branches."""
        variants = list(dict.fromkeys(str(case.value) for case in cases))
        lines: list[str] = []
        for owners, group in groupby(_aligned(variants), key=lambda each: each[1]):
            shown = [f"{' ' * indent}{self._line(line)}" for line, _ in group]
            given = [
                Case(case.combination, None if variants.index(case.value) in owners else _MISSING)
                for case in cases
            ]
            lines += self._present(given, lambda _, shown=shown: shown)  # type: ignore[misc]
        return lines

    def _list(self, head: str, cases: Sequence[Case], indent: int) -> list[str]:
        lists = [[_key(item) for item in case.value] for case in cases]
        if len({len(each) for each in lists}) > 1:
            merged = _merged(lists)
            if not all(_is_in_order(each, merged) for each in lists):
                return self._branches(cases, lambda same: [head, *self._sequence(same, indent)])
        return [head, *self._sequence(cases, indent)]

    def _sequence(self, cases: Sequence[Case], indent: int) -> list[str]:
        lengths = {len(case.value) for case in cases}
        if len(lengths) == 1:
            return [
                line
                for index in range(lengths.pop())
                for line in self._item([Case(c.combination, c.value[index]) for c in cases], indent)
            ]
        items = _merged([[_key(item) for item in case.value] for case in cases])
        return [line for item in items for line in self._optional_item(item, cases, indent)]

    def _optional_item(self, item: str, cases: Sequence[Case], indent: int) -> list[str]:
        value = json.loads(item)
        given = [
            Case(case.combination, value if item in map(_key, case.value) else _MISSING)
            for case in cases
        ]
        return self._present(given, lambda there: self._item(there, indent))

    def _item(self, cases: Sequence[Case], indent: int) -> list[str]:
        dash = f"{' ' * indent}-"
        if all(isinstance(case.value, dict) and case.value for case in cases):
            first, *rest = self._mapping(cases, indent + _STEP)
            if first.lstrip().startswith("{{"):
                return [dash, first, *rest]
            return [f"{dash} {first.lstrip()}", *rest]
        return self._value(dash, cases, indent)

    def _present(
        self, cases: Sequence[Case], write: Callable[[Sequence[Case]], list[str]]
    ) -> list[str]:
        def some(branch: Sequence[Case]) -> list[str]:
            return [] if branch[0].value is _MISSING else write(branch)

        return self._branches(cases, some, lambda case: str(case.value is _MISSING))

    def _branches(
        self,
        cases: Sequence[Case],
        write: Callable[[Sequence[Case]], list[str]],
        variant: Callable[[Case], str] | None = None,
    ) -> list[str]:
        """Return lines for all cases, with conditions between those of different variants."""
        variant = variant or (lambda case: _key(case.value))
        if len({variant(case) for case in cases}) == 1:
            return write(cases)
        index, groups = self._split(cases, variant)
        lines: list[str] = []
        for options, group in groups:
            inner = self._branches(group, write, variant)
            if inner:
                word = "else if" if lines else "if"
                lines += [f"{{{{- {word} {self._condition(index, options)} }}}}", *inner]
        return [*lines, "{{- end }}"]

    def _split(
        self, cases: Sequence[Case], variant: Callable[[Case], str]
    ) -> tuple[int, list[tuple[list[int], list[Case]]]]:
        """Return the dimension that leaves the fewest variants in its branches, and the branches."""
        best: tuple[int, int, list[tuple[list[int], list[Case]]]] | None = None
        for index in range(len(self._dimensions)):
            groups = _grouped(cases, index, variant)
            if len(groups) < 2:
                continue
            left = sum(len({variant(case) for case in group}) for _, group in groups)
            if best is None or left < best[0]:
                best = (left, index, groups)
        if best is None:
            names = ", ".join(each.name for each in self._dimensions)
            raise ValueError(f"found values that differ by none of: {names}")
        return best[1], best[2]

    def _condition(self, index: int, options: Sequence[int]) -> str:
        conditions = self._dimensions[index].conditions
        wanted = [conditions[option] for option in options]
        return wanted[0] if len(wanted) == 1 else f"or {' '.join(f'({each})' for each in wanted)}"


def _grouped(
    cases: Sequence[Case], index: int, variant: Callable[[Case], str]
) -> list[tuple[list[int], list[Case]]]:
    """Return the cases by the options of one dimension; options that lead to the same are one branch."""
    by_option: dict[int, list[Case]] = {}
    for case in cases:
        by_option.setdefault(case.combination[index], []).append(case)
    branches: dict[str, tuple[list[int], list[Case]]] = {}
    for option, group in by_option.items():
        rest = {_without(case.combination, index): variant(case) for case in group}
        key = json.dumps(sorted(rest.items()))
        options, together = branches.setdefault(key, ([], []))
        options.append(option)
        together.extend(group)
    return list(branches.values())


def _without(combination: Combination, index: int) -> Combination:
    return combination[:index] + combination[index + 1 :]


def _merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return every item of some lists once, in an order that all of them agree with."""
    found: list[str] = []
    for items in {tuple(each): None for each in lists}:
        at = 0
        for item in items:
            if item in found:
                at = found.index(item) + 1
            else:
                found.insert(at, item)
                at += 1
    return found


def _aligned(variants: Sequence[str]) -> list[tuple[str, frozenset[int]]]:
    """Return the lines of all variants in one order, each with the variants that have it there."""
    merged: list[tuple[str, frozenset[int]]] = []
    for number, variant in enumerate(variants):
        own = [(line, frozenset({number})) for line in variant.splitlines()]
        old, new = [line for line, _ in merged], [line for line, _ in own]
        result: list[tuple[str, frozenset[int]]] = []
        for tag, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
            if tag == "equal":
                result += [(line, owners | {number}) for line, owners in merged[a:b]]
            else:
                result += [*merged[a:b], *own[c:d]]
        merged = result
    return merged


def _is_foldable(value: object) -> bool:
    """Return whether a text can be cut into lines: a condition eats the blanks before it."""
    if not isinstance(value, str) or not value.endswith("\n"):
        return False
    return value.count("\n") > 1 and all(
        line == line.rstrip() and line for line in value.splitlines()
    )


def _is_in_order(items: Sequence[str], order: Sequence[str]) -> bool:
    places = [order.index(item) for item in items]
    return places == sorted(places)


def _shape(case: Case) -> str:
    """Return what can be folded together: mappings, lists, and all else."""
    return type(case.value).__name__ if isinstance(case.value, (dict, list)) and case.value else ""


def _key(value: Any) -> str:  # noqa: ANN401 - JSON of any shape
    return json.dumps(value)


def _or_missing(value: Mapping[str, Any] | None) -> object:
    return _MISSING if value is None else value


def _is_odd(key: str) -> bool:
    """Return whether a key has to be written in quotes."""
    return not key.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum()
