"""Selectors of devices: CEL over a device's driver, attributes and capacity.

The expressions are evaluated by cel-expr-python, Google's CEL for C++, with Kubernetes' additions for
quantities and semantic versions. What it has no types for is a value of bytes here, which no attribute is.
Known differences: types are checked when an expression is evaluated, not when it is read; of Kubernetes'
other libraries (lists, regex `find`, URLs, IP addresses, sets) there is none.

Source: kubernetes v1.37 staging/src/k8s.io/dynamic-resource-allocation/cel (compile.go) and apiserver
pkg/cel/library (quantity.go, semverlib.go); semver.org 2.0.0 for the order of versions.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from gpuscale.base.errors import UnavailableError
from gpuscale.base.objects.devices import Device, Version
from gpuscale.base.quantity import parse_quantity

INSTALL = "pip install 'gpuscale[dra]'"
_NANO = 1_000_000_000
_LARGEST = (1 << 63) - 1
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"')
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_Order = tuple[int, tuple[int, ...], tuple[tuple[int, int, str], ...]]


class SelectorError(Exception):
    """An expression can't be read, or not be evaluated for a device."""


_answers: WeakKeyDictionary[Device, dict[str, bool | SelectorError]] = WeakKeyDictionary()
"""What expressions said of devices, which don't change."""


def check_selector(expression: str) -> None:
    """Read an expression.

    Raises:
        SelectorError: it can't be read.
        UnavailableError: the package that reads it is not installed.
    """
    _program(expression)


def matches(expression: str, device: Device) -> bool:
    """Return whether a device is one that an expression selects.

    Raises:
        SelectorError: the expression asks for what the device has not, or is no condition.
        UnavailableError: the package that evaluates it is not installed.
    """
    known = _answers.setdefault(device, {})
    if expression not in known:
        try:
            known[expression] = _evaluated(expression, device)
        except SelectorError as error:
            known[expression] = error
    answer = known[expression]
    if isinstance(answer, SelectorError):
        raise answer
    return answer


def selects(expression: str, device: Device) -> bool:
    """Return what `matches` does, False for a device that the expression can't be evaluated for."""
    try:
        return matches(expression, device)
    except SelectorError:
        return False


def _evaluated(expression: str, device: Device) -> bool:
    attributes: dict[str, dict[str, object]] = {}
    capacity: dict[str, dict[str, object]] = {}
    for name, attribute in device.attributes.items():
        domain, _, key = name.rpartition("/")
        value = _version(attribute.text) if isinstance(attribute, Version) else attribute
        attributes.setdefault(domain or device.driver, {})[key] = value
    for name, quantity in device.capacity.items():
        domain, _, key = name.rpartition("/")
        capacity.setdefault(domain or device.driver, {})[key] = _quantity(quantity.nano)
    facts = {
        "driver": device.driver,
        "allowMultipleAllocations": False,
        "attributes": attributes,
        "capacity": capacity,
    }
    while True:
        found = _program(expression).eval(data={"device": facts})
        value = found.value()
        if isinstance(value, bool):
            return value
        missing = _MISSING_KEY.search(str(value))
        # A domain that the device has nothing of is an empty map.
        if missing is None or missing[1] in attributes.keys() & capacity.keys():
            break
        attributes.setdefault(missing[1], {})
        capacity.setdefault(missing[1], {})
    if str(found.type()) != "ERROR":
        raise SelectorError(f"CEL runtime error: it gives {value!r}, not true or false")
    said = f"no such key: {missing[1]}" if missing else _first_line(value)
    raise SelectorError(f"CEL runtime error: {said}")


@lru_cache(1000)
def _program(expression: str) -> Any:  # noqa: ANN401 - the package has no types
    """Return what evaluates an expression."""
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        raise SelectorError(f"CEL compile error: {_first_line(error)}") from None


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0]


def _quantity(nano: int) -> bytes:
    return b"quantity %d" % nano


def _version(text: str) -> bytes:
    if not _SEMVER.fullmatch(text):
        raise SelectorError(f"parse semantic version: found {text!r}")
    return b"semver " + text.partition("+")[0].encode()


def _order(value: bytes) -> _Order:
    """Return what two quantities, or two versions, are compared by."""
    kind, _, text = value.decode().partition(" ")
    if kind == "quantity":
        return 0, (int(text),), ()
    numbers, _, before = text.partition("-")
    parts = ((0, int(each), "") if each.isdecimal() else (1, 0, each) for each in before.split("."))
    # A version comes after those before it, such as 1.0.0-rc.1.
    return 1, tuple(map(int, numbers.split("."))), tuple(parts) if before else ((2, 0, ""),)


def _compared(left: bytes, right: bytes) -> int:
    mine, other = _order(left), _order(right)
    if mine[0] != other[0]:
        raise ValueError("a quantity and a version can't be compared")
    return (mine > other) - (mine < other)


def _number(quantity: bytes) -> int:
    kind, _, text = quantity.decode().partition(" ")
    if kind != "quantity":
        raise ValueError("found a version, expected a quantity")
    return int(text)


def _part(version: bytes, place: int) -> int:
    kind, _, text = version.decode().partition(" ")
    if kind != "semver":
        raise ValueError("found a quantity, expected a version")
    return int(text.partition("-")[0].split(".")[place])


def _is_integer(quantity: bytes) -> bool:
    whole, rest = divmod(_number(quantity), _NANO)
    return not rest and -_LARGEST <= whole <= _LARGEST


def _as_integer(quantity: bytes) -> int:
    if not _is_integer(quantity):
        raise ValueError("cannot convert value to integer")
    return _number(quantity) // _NANO


def _normalized(text: str) -> str:
    """Return a version as tags have it, `v1.2` or `01.2.3`, in its strict form."""
    head, rest = re.fullmatch(r"([^-+]*)(.*)", text.removeprefix("v"), re.DOTALL).groups()  # type: ignore[union-attr]
    numbers = [each.lstrip("0") or "0" for each in head.split(".")]
    return ".".join((*numbers, *["0"] * (3 - len(numbers)))) + rest


def _succeeds(make: Callable[..., object], *given: object) -> bool:
    try:
        make(*given)
    except (ValueError, SelectorError):
        return False
    return True


@cache
def _environment() -> Any:  # noqa: ANN401
    """Return what compiles expressions."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    except ImportError:
        raise UnavailableError(
            "selectors of devices are in CEL, which the package cel-expr-python reads; "
            f"install it with: {INSTALL}"
        ) from None
    type_ = cel.Type
    # Quantities and versions.
    own, text, whole, truth = type_.BYTES, type_.STRING, type_.INT, type_.BOOL

    def quantity(given: str) -> bytes:
        return _quantity(parse_quantity(given).nano)

    def version(given: str, normalize: bool = False) -> bytes:
        return _version(_normalized(given) if normalize else given)

    functions: dict[str, list[tuple[list[Any], Any, bool, Callable[..., object]]]] = {
        "quantity": [([text], own, False, quantity)],
        "isQuantity": [([text], truth, False, lambda given: _succeeds(quantity, given))],
        "semver": [([text], own, False, version), ([text, truth], own, False, version)],
        "isSemver": [
            ([text], truth, False, lambda given: _succeeds(version, given)),
            ([text, truth], truth, False, lambda given, loose: _succeeds(version, given, loose)),
        ],
        "compareTo": [([own, own], whole, True, _compared)],
        "isLessThan": [([own, own], truth, True, lambda a, b: _compared(a, b) < 0)],
        "isGreaterThan": [([own, own], truth, True, lambda a, b: _compared(a, b) > 0)],
        "sign": [([own], whole, True, lambda a: (_number(a) > 0) - (_number(a) < 0))],
        "isInteger": [([own], truth, True, _is_integer)],
        "asInteger": [([own], whole, True, _as_integer)],
        "asApproximateFloat": [([own], type_.DOUBLE, True, lambda a: _number(a) / _NANO)],
        "add": [
            ([own, own], own, True, lambda a, b: _quantity(_number(a) + _number(b))),
            ([own, whole], own, True, lambda a, b: _quantity(_number(a) + b * _NANO)),
        ],
        "sub": [
            ([own, own], own, True, lambda a, b: _quantity(_number(a) - _number(b))),
            ([own, whole], own, True, lambda a, b: _quantity(_number(a) - b * _NANO)),
        ],
        "major": [([own], whole, True, lambda a: _part(a, 0))],
        "minor": [([own], whole, True, lambda a: _part(a, 1))],
        "patch": [([own], whole, True, lambda a: _part(a, 2))],
    }
    return cel.NewEnv(
        variables={"device": type_.DYN},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
        functions=[
            cel.FunctionDecl(
                name,
                [
                    cel.Overload(
                        f"{name}_{number}", result, parameters, is_member=is_member, impl=does
                    )
                    for number, (parameters, result, is_member, does) in enumerate(overloads)
                ],
            )
            for name, overloads in functions.items()
        ],
    )
