"""The template functions of Helm and Sprig that the chart uses.

Numbers stay as whole as the values file has them, while Helm makes floats of all. A template that only works
here for it fails with Helm, where a test renders the same values.

Source: Helm 3.17 pkg/engine/funcs.go; Masterminds/sprig 3.3 (dict.go, list.go, numeric.go, regex.go,
strings.go, url.go); dario.cat/mergo 1.0 (merge.go deepMerge).
"""

import base64
import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.base.golang.durations import go_quote
from gpuscale.base.golang.template import TemplateError
from gpuscale.base.golang.template.functions import FUNCTIONS as OF_GO
from gpuscale.base.golang.template.functions import Function
from gpuscale.base.golang.template.values import plain

Data = Any
"""What templates pass around: text, numbers, lists and maps."""
_KINDS = (
    (bool, "bool"),
    (str, "string"),
    (int, "int"),
    (float, "float64"),
    (list, "slice"),
    (dict, "map"),
)


def merged(kept: dict[str, Data], more: dict[str, Data], *, overwrite: bool) -> dict[str, Data]:
    """Merge a map into another in place, nested maps too, and return the other.

    What is there and not empty stays, unless it is to be overwritten.
    """
    for key, value in more.items():
        there = kept.get(key)
        if isinstance(value, dict) and isinstance(there, dict) and there:
            merged(there, value, overwrite=overwrite)
        elif overwrite or not there:
            kept[key] = value
    return kept


def as_yaml(data: Data) -> str:
    """Return data as YAML without a final newline; keys stay in order, where Helm would sort them."""
    return dump_documents([_whole(data)]).rstrip("\n")


def from_yaml(text: str) -> Data:
    """Parse YAML; an empty text gives None."""
    # A copy, as templates modify parsed data, and parse the same text many times.
    return msgspec.json.decode(_read(text))


@lru_cache(maxsize=1024)
def _read(text: str) -> bytes:
    found = load_documents(text, "template")
    return msgspec.json.encode(found[0].data if found else None)


def _whole(data: Data) -> Data:
    if isinstance(data, dict):
        return {key: _whole(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_whole(each) for each in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _text(value: Data) -> str:
    return value if isinstance(value, str) else plain(value)


def _number(value: Data) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return 0
    return value or 0


def _integer(value: Data) -> int:
    return int(_number(value))


def _quoted(*values: Data) -> str:
    return " ".join(go_quote(_text(each)) for each in values if each is not None)


def _dig(*arguments: Data) -> Data:
    *keys, default, found = arguments
    for key in keys:
        if key not in found:
            return default
        found = found[key]
    return found


def _dict(*pairs: Data) -> dict[str, Data]:
    return {_text(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _set(found: dict[str, Data], key: str, value: Data) -> dict[str, Data]:
    found[key] = value
    return found


def _unique(values: Sequence[Data]) -> list[Data]:
    found: list[Data] = []
    for each in values:
        if each not in found:
            found.append(each)
    return found


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


def _merge(kept: dict[str, Data], *more: dict[str, Data]) -> dict[str, Data]:
    for each in more:
        merged(kept, each, overwrite=False)
    return kept


def _merge_overwrite(kept: dict[str, Data], *more: dict[str, Data]) -> dict[str, Data]:
    for each in more:
        merged(kept, each, overwrite=True)
    return kept


def _kind_is(kind: str, value: Data) -> bool:
    return kind == next((name for each, name in _KINDS if isinstance(value, each)), "invalid")


def _fail(text: str) -> str:
    raise TemplateError(text)


def _product(values: Any) -> Any:  # noqa: ANN401 - whole numbers, or others
    found = 1
    for each in values:
        found *= each
    return found


_FUNCTIONS: dict[str, Callable[..., Data]] = {
    "add": lambda *values: sum(map(_integer, values)),
    "append": lambda values, value: [*values, value],
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "coalesce": lambda *values: next((each for each in values if each), None),
    "concat": lambda *lists: [each for values in lists for each in values or ()],
    "contains": lambda part, text: part in text,
    "deepCopy": copy.deepcopy,
    "default": lambda default, value=None: value or default,
    "dict": _dict,
    "dig": _dig,
    "div": lambda value, by: _integer(value) // _integer(by),
    "empty": lambda value: not value,
    "fail": _fail,
    "first": lambda values: values[0] if values else None,
    "float64": lambda value: float(_number(value)),
    "fromYaml": lambda text: from_yaml(text) or {},
    "fromYamlArray": lambda text: from_yaml(text) or [],
    "get": lambda found, key: found.get(key, ""),
    "has": lambda value, values: value in values,
    "hasKey": lambda found, key: key in found,
    "hasPrefix": lambda part, text: text.startswith(part),
    "int": _integer,
    "int64": _integer,
    "join": lambda by, values: by.join(_text(each) for each in values if each is not None),
    "keys": list,
    "kindIs": _kind_is,
    "last": lambda values: values[-1] if values else None,
    "list": lambda *values: list(values),
    "lower": str.lower,
    "max": lambda *values: max(map(_integer, values)),
    "merge": _merge,
    "mergeOverwrite": _merge_overwrite,
    "min": lambda *values: min(map(_integer, values)),
    "mul": lambda *values: _product(map(_integer, values)),
    "mulf": lambda *values: _product(map(_number, values)),
    "nindent": lambda width, text: "\n" + " " * width + text.replace("\n", "\n" + " " * width),
    "omit": lambda found, *keys: {key: found[key] for key in found if key not in keys},
    "pick": lambda found, *keys: {key: found[key] for key in keys if key in found},
    "quote": _quoted,
    "regexFind": _find,
    "regexReplaceAll": lambda pattern, text, by: re.sub(pattern, by, text),
    "replace": lambda old, new, text: text.replace(old, new),
    "rest": lambda values: values[1:],
    "set": _set,
    "sortAlpha": lambda values: sorted(map(_text, values)),
    "splitList": lambda by, text: text.split(by),
    "sub": lambda value, by: _integer(value) - _integer(by),
    "ternary": lambda yes, no, which: yes if which else no,
    "toJson": lambda value: json.dumps(
        _whole(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    ),
    "toString": _text,
    "toYaml": as_yaml,
    "trim": str.strip,
    "trimPrefix": lambda part, text: text.removeprefix(part),
    "uniq": _unique,
    "untitle": lambda text: text[:1].lower() + text[1:],
    "urlParse": lambda text: {"host": urlsplit(text).netloc},
}


def served(functions: Mapping[str, Callable[..., Data]]) -> dict[str, Function]:
    """Return functions by name, with the argument conventions of templates."""
    return {name: Function(partial(_run, run)) for name, run in functions.items()}


def _run(run: Callable[..., Data], arguments: Sequence[Data]) -> Data:
    return run(*arguments)


FUNCTIONS = {**OF_GO, **served(_FUNCTIONS)}
"""By their names. What depends on the chart or the cluster, such as `include`, is its renderer's."""
