"""JSON schemas with field descriptions taken from the docstrings of attributes."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

from gpuscale.base.documents.models import Model

Schema = dict[str, Any]


def described_schema(model: type[Model]) -> Schema:
    """Return a model's JSON schema, in which the docstring of an attribute is its description."""
    schema = model.model_json_schema()
    for each in set(_models(model)):
        found = schema if each is model else schema["$defs"].get(each.__name__, {})
        texts = _docstrings(each)
        for name, field in each.model_fields.items():
            shown = found.get("properties", {}).get(field.alias or name)
            if shown is not None and name in texts:
                shown.setdefault("description", texts[name])
            elif shown is not None and (kind := _model_of(field.annotation)) is not None:
                shown.setdefault("description", _summary(kind))
    return schema


def fields_without_description(schema: Schema) -> list[str]:
    """Return the schema's fields without description, as TYPE.FIELD."""
    types = {schema.get("title", ""): schema, **schema.get("$defs", {})}
    return [
        f"{name}.{field}"
        for name, found in types.items()
        for field, shown in found.get("properties", {}).items()
        if not shown.get("description")
    ]


def _models(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for field in model.model_fields.values():
        for each in models_in(field.annotation):
            yield from _models(each)


def models_in(annotation: object) -> Iterator[type[Model]]:
    """Yield the models in an annotation, such as both of `list[A] | B`."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for each in get_args(annotation):
        yield from models_in(each)


def _model_of(annotation: object) -> type[Model] | None:
    return next(models_in(annotation), None)


def _summary(kind: type[Model]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _docstrings(model: type[Model]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Model) and each is not Model:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            found |= dict(_documented(tree))
    return found


def _documented(tree: ast.stmt) -> Iterator[tuple[str, str]]:
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield field.target.id, " ".join(inspect.cleandoc(below.value.value).split())
