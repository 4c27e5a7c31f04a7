"""The representations a client can request: whole objects, their metadata only, or a table.

Source: apiserver v0.36 pkg/endpoints/handlers (negotiation, response.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aiohttp import web

from gpuscale.lab.kube_api.conversion import converted
from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.lab.kube_api.tables.table import partial, table
from gpuscale.server.metricsapi.wire import MAX_ACCEPT, RequestError, bad_request, by_preference

Json = dict[str, Any]
_INCLUDED = ("", "None", "Metadata", "Object")


class Form(Enum):
    """One representation of objects."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class WantedForm:
    """The representation that a client requests for objects of a kind."""

    kind: ApiResource
    form: Form
    included: str = "Metadata"
    """How much of an object goes with its row of a table."""

    def single(self, body: Json, now_ms: int) -> Json:
        """Return one object."""
        if self.form is Form.TABLE:
            meta = {"resourceVersion": body["metadata"]["resourceVersion"]}
            return self._table([body], meta, now_ms)
        return self._shown(body)

    def listed(self, bodies: Sequence[Json], metadata: Json, now_ms: int) -> Json:
        """Return a list of objects."""
        if self.form is Form.TABLE:
            return self._table(bodies, metadata, now_ms)
        kind, version = f"{self.kind.kind}List", self.kind.group_version
        if self.form is Form.METADATA:
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [self._shown(body) for body in bodies]
        return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}

    def watched(self, body: Json, now_ms: int, *, is_first: bool) -> Json:
        """Return the object in a watch event; only the first table of a watch has column definitions."""
        if self.form is not Form.TABLE:
            return self._shown(body)
        meta = {"resourceVersion": body["metadata"]["resourceVersion"]}
        return self._table([body], meta, now_ms, with_columns=is_first)

    def bookmark(self, version: int, annotations: Json) -> Json:
        """Return a bookmark: an object that only tells the resource version a watch has reached."""
        metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self.form is Form.TABLE:
            return self._table([], metadata, 0, with_columns=False)
        empty = {
            "kind": self.kind.kind,
            "apiVersion": self.kind.group_version,
            "metadata": metadata,
        }
        return partial(empty) if self.form is Form.METADATA else empty

    def _table(
        self, bodies: Sequence[Json], metadata: Json, now_ms: int, *, with_columns: bool = True
    ) -> Json:
        return table(
            self.kind,
            bodies,
            metadata,
            now_ms,
            included=self.included,
            shown=lambda body: converted(self.kind, body),
            with_columns=with_columns,
        )

    def _shown(self, body: Json) -> Json:
        return partial(body) if self.form is Form.METADATA else converted(self.kind, body)


def wanted(request: web.Request, kind: ApiResource) -> WantedForm:
    """Return the representation that a request asks for.

    Raises:
        RequestError: `includeObject` is none that there is.
    """
    included = request.query.get("includeObject", "")
    if included not in _INCLUDED:
        expected = "expected None, Metadata or Object"
        raise RequestError(bad_request(f"includeObject: found {included[:40]!r}, {expected}"))
    return WantedForm(kind, _form(request.headers.get("Accept", "")), included or "Metadata")


def _form(accept: str) -> Form:
    for name, parameters in by_preference(accept[:MAX_ACCEPT]):
        if name not in ("application/json", "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return Form.WHOLE
        if (parameters.get("g"), parameters.get("v")) == ("meta.k8s.io", "v1"):
            for form in (Form.TABLE, Form.METADATA):
                if parameters["as"] in (form.value, f"{form.value}List"):
                    return form
    return Form.WHOLE
