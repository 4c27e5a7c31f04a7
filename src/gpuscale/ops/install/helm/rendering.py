"""The chart rendered in process, as Helm would: from values to objects.

Source: Helm 3.17 pkg/engine/engine.go.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.golang.template import Dialect, Template, TemplateError, parse_template
from gpuscale.ops.install.helm.functions import FUNCTIONS, from_yaml, served

Object = dict[str, Any]
_NOTES = "NOTES.txt"


class Rendering:
    """The chart with one set of values.

    Args:
        values: every field of a values file.
        namespace: of the release.
        changed: texts in place of files of the chart, by their names.
        certificate: `data` of the Secret with the serving certificate, as if the cluster had it already.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        namespace: str,
        *,
        changed: Mapping[str, str],
        certificate: Mapping[str, str],
    ) -> None:
        self._changed = changed
        self.root: Mapping[str, Any] = {
            "Values": values,
            "Release": {"Namespace": namespace},
            "Files": {"Get": self._file},
        }
        nothing = dict.fromkeys(("Cert", "Key"), "")
        own: dict[str, Callable[..., Any]] = {
            "include": lambda name, data: self._named[name].render(data),
            "lookup": lambda *_: {"data": certificate} if certificate else {},
            "genCA": lambda *_: nothing,
            "genSignedCert": lambda *_: nothing,
        }
        dialect = _dialect(own)
        parsed = _templates()
        self._pages = {
            name: Template(template.nodes, dialect)
            for name, template in parsed.items()
            if not name.startswith("_")
        }
        self._named = {
            name: Template(definition.nodes, dialect)
            for template in parsed.values()
            for name, definition in template.definitions.items()
        }

    def objects(self) -> list[Object]:
        """Return the rendered objects, in the order of the templates.

        Raises:
            TemplateError: the chart refuses the values.
        """
        found: list[Object] = []
        for name, page in self._pages.items():
            try:
                text = page.render(self.root)
            except TemplateError as error:
                raise TemplateError(f"{name}: {error}") from None
            found += [each.data for each in load_documents(text, name)]  # type: ignore[misc]
        return found

    def named(self, name: str, data: Any = None) -> Any:  # noqa: ANN401 - whatever it makes
        """Return the data that a named template makes from the values, or from other data."""
        return from_yaml(self._named[name].render(self.root if data is None else data))

    def _file(self, name: str) -> str:
        return self._changed.get(name) or chart_text(name)


def of_scale(template: str, scale: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever it makes
    """Return the data that a named template makes from one entry of `scale`.

    Args:
        template: such as `gpuscale.hpaSpec`.
        scale: as a values file has it.

    Raises:
        TemplateError: the scale is wrong in itself.
    """
    chart = _without_values()
    return chart.named(template, chart.named("gpuscale.scale", [chart.root, scale]))


def of_jobs(template: str, jobs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever it makes
    """Return the data that a named template makes from one entry of `jobs`."""
    return _without_values().named(template, jobs)


@cache
def _without_values() -> Rendering:
    return Rendering({}, "", changed={}, certificate={})


def _dialect(own: Mapping[str, Callable[..., Any]]) -> Dialect:
    return Dialect("{{", "}}", {**FUNCTIONS, **served(own)}, is_strict=False)


@cache
def _templates() -> Mapping[str, Template]:
    """Return the chart's parsed templates by file name; each rendering adds its own functions."""
    folder = _folder().joinpath("templates")
    dialect = _dialect(dict.fromkeys(("include", "lookup", "genCA", "genSignedCert"), dict))
    return {
        name: parse_template(chart_text(f"templates/{name}"), frozenset(), dialect)
        for name in sorted(each.name for each in folder.iterdir() if each.name != _NOTES)
    }


@cache
def chart_text(name: str) -> str:
    """Return the text of one of the chart's files, such as `values.yaml`."""
    return _folder().joinpath(name).read_text(encoding="utf-8")


def _folder() -> Traversable:
    return files("gpuscale.ops.install.helm").joinpath("gpuscale")
