"""DCGM's client library through ctypes: the only door to `libdcgm.so`, which comes with NVIDIA's DCGM.

An `EngineConnection` leads to one host engine, which is another process, on this machine or another. Its
calls wait for that process, so none may be made where that matters. What a connection watches ends with it.

Source: NVIDIA DCGM 4.6.1, dcgmlib/dcgm_agent.h, dcgm_structs.h and dcgm_fields.h, as in go-dcgm v1.4611.0
    (signatures, layouts, versions, codes, blank values).
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_char, c_double, c_int, c_int64, c_uint, c_ushort, c_void_p
from dataclasses import dataclass
from typing import Any

from gpuscale.base.errors import UnavailableError

LIBRARIES = ("libdcgm.so.4", "libdcgm.so.3")
PORT = 5555
"""A host engine's own."""
GPU, INSTANCE = 1, 4  # DCGM_FE_GPU, DCGM_FE_GPU_I
UUID_FIELD = 54
CONNECT_MS = 3_000
_MAX_GPUS = 32  # DCGM_MAX_NUM_DEVICES
_MAX_INSTANCES = 14 * _MAX_GPUS  # DCGM_MAX_HIERARCHY_INFO
_EMPTY_GROUP = 1  # DCGM_GROUP_EMPTY
_LIVE = 1  # DCGM_FV_FLAG_LIVE_DATA
_KEPT_S, _KEPT_SAMPLES = 0.0, 2
"""Of each watched value in the host engine; only the newest is asked for."""
_BLANK_INT, _BLANK_DOUBLE = 0x7FFFFFFFFFFFFFF0, 140_737_488_355_328.0
_BLANKS = ("the host engine has none yet", "not found", "not supported", "not permitted")
"""By how far a value is above the blank one."""
_OK, _NOT_SUPPORTED, _PROFILING_NOT_SUPPORTED = 0, -6, -36


class DcgmError(UnavailableError):
    """A call to a host engine failed; `code` is its dcgmReturn_t."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


def _layout(name: str, **fields: Any) -> Any:  # noqa: ANN401 - a class of ctypes
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Pair = _layout("_Pair", group=c_uint, id=c_uint)
_ConnectV2 = _layout(
    "_ConnectV2", version=c_uint, persists=c_uint, timeout_ms=c_uint, is_socket=c_uint
)
_Value = _layout(
    "_Value",
    version=c_uint,
    group=c_uint,
    entity=c_uint,
    field=c_ushort,
    type=c_ushort,
    status=c_int,
    unused=c_uint,
    time_us=c_int64,
    data=c_char * 4096,
)
_Instance = _layout(
    "_Instance",
    entity=_Pair,
    parent=_Pair,
    gpu_uuid=c_char * 128,
    gpu_index=c_uint,
    instance_id=c_uint,
    compute_id=c_uint,
    profile_id=c_uint,
    slices=c_uint,
)
_Hierarchy = _layout("_Hierarchy", version=c_uint, count=c_uint, found=_Instance * _MAX_INSTANCES)
_MetricGroup = _layout(
    "_MetricGroup", major=c_ushort, minor=c_ushort, count=c_uint, fields=c_ushort * 64
)
_MetricGroups = _layout(
    "_MetricGroups",
    version=c_uint,
    unused=c_uint,
    gpu=c_uint,
    count=c_uint,
    groups=_MetricGroup * 10,
)
_DATA_AT = 32
"""Where the union of a value begins, which `data` only reads up to its first zero byte."""


def _version(type_: Any, number: int) -> int:  # noqa: ANN401 - a class of ctypes
    """Return the version number that tells a host engine a structure's layout."""
    return ctypes.sizeof(type_) | number << 24


@dataclass(frozen=True, slots=True)
class Entity:
    """A GPU or a MIG instance, as a host engine numbers them."""

    kind: int
    id: int


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The newest value of a field, or why there is none."""

    entity: Entity
    field: int
    value: int | float | None
    absent: str
    """Empty where there is a value."""
    measured_ms: int


class DcgmLibrary:
    """The client library, loaded.

    Args:
        names: where it is looked for, the first that is there.

    Raises:
        UnavailableError: it is not installed.
    """

    def __init__(self, names: Sequence[str] = LIBRARIES) -> None:
        self.library = _loaded(names)
        self.library.errorString.restype = ctypes.c_char_p
        self.call("dcgmInit")

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        """Call a function of the library.

        Raises:
            DcgmError: it failed.
        """
        code = int(getattr(self.library, name)(*arguments))
        if code != _OK:
            raise DcgmError(f"{name}: {self.words(code)}", code)

    def words(self, code: int) -> str:
        """Return the library's text for an error code."""
        said: bytes | None = self.library.errorString(c_int(code))
        return said.decode(errors="replace") if said else f"code {code}"

    def connect(self, address: str) -> "EngineConnection":
        """Return a connection to the host engine at `HOST[:PORT]`, or at a Unix socket's path.

        Raises:
            DcgmError: it does not answer within three seconds.
        """
        is_socket = address.startswith("/")
        options = _ConnectV2(_version(_ConnectV2, 2), 0, CONNECT_MS, int(is_socket))
        handle = c_void_p()
        self.call("dcgmConnect_v2", address.encode(), byref(options), byref(handle))
        return EngineConnection(self, handle)


def _loaded(names: Sequence[str]) -> ctypes.CDLL:
    faults = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            faults.append(str(error))
    raise UnavailableError(f"found no {names[0]}, which comes with NVIDIA's DCGM ({faults[0]})")


class EngineConnection:
    """A connection to one host engine; each call may raise DcgmError."""

    def __init__(self, library: DcgmLibrary, handle: c_void_p) -> None:
        self._library = library
        self._handle = handle

    def close(self) -> None:
        """Disconnect, which ends all watches."""
        self._call("dcgmDisconnect")

    def gpus(self) -> Mapping[str, Entity]:
        """Return the GPUs by UUID."""
        ids, count = (c_uint * _MAX_GPUS)(), c_int()
        self._call("dcgmGetAllDevices", ids, byref(count))
        gpus = [Entity(GPU, number) for number in ids[: max(0, min(count.value, _MAX_GPUS))]]
        found = {}
        for value in self._values(gpus, [UUID_FIELD], _LIVE):
            text = value.data.decode(errors="replace")
            if value.status == _OK and not text.startswith("<<<"):
                found[text] = Entity(value.group, value.entity)
        return found

    def instances(self) -> Mapping[tuple[str, int], Entity]:
        """Return the MIG instances by their GPU's UUID and NVML's id."""
        found = _Hierarchy(version=_version(_Hierarchy, 2))
        try:
            self._call("dcgmGetGpuInstanceHierarchy", byref(found))
        except DcgmError as error:
            if error.code == _NOT_SUPPORTED:
                return {}
            raise
        return {
            (each.gpu_uuid.decode(errors="replace"), each.instance_id): Entity(
                INSTANCE, each.entity.id
            )
            for each in found.found[: min(found.count, _MAX_INSTANCES)]
            if each.entity.group == INSTANCE
        }

    def profiling_fields(self, gpu: Entity) -> frozenset[int]:
        """Return a GPU's supported profiling fields; none if it has no profiling."""
        found = _MetricGroups(version=_version(_MetricGroups, 3), gpu=gpu.id)
        try:
            self._call("dcgmProfGetSupportedMetricGroups", byref(found))
        except DcgmError as error:
            if error.code in (_NOT_SUPPORTED, _PROFILING_NOT_SUPPORTED):
                return frozenset()
            raise
        groups = found.groups[: min(found.count, len(found.groups))]
        return frozenset(
            field for each in groups for field in each.fields[: min(each.count, len(each.fields))]
        )

    def watch(
        self, name: str, entities: Iterable[Entity], fields: Sequence[int], interval_ms: int
    ) -> None:
        """Have the host engine measure these fields.

        Args:
            name: of the group of both, which no other of this host engine has.
            entities: at least one.
            fields: at least one, 128 at most.
            interval_ms: from one value to the next.
        """
        group, fields_group = c_void_p(), c_void_p()
        text = name.encode()
        self._call("dcgmGroupCreate", c_int(_EMPTY_GROUP), text, byref(group))
        for each in entities:
            self._call("dcgmGroupAddEntity", group, c_int(each.kind), c_uint(each.id))
        ids = (c_ushort * len(fields))(*fields)
        self._call("dcgmFieldGroupCreate", c_int(len(fields)), ids, text, byref(fields_group))
        freq_us = ctypes.c_longlong(interval_ms * 1000)
        kept = (c_double(_KEPT_S), c_int(_KEPT_SAMPLES))
        self._call("dcgmWatchFields", group, fields_group, freq_us, *kept)

    def latest(self, entity: Entity, fields: Sequence[int]) -> Iterator[FieldValue]:
        """Yield the latest values, one entity at a time, as each takes 4 KiB."""
        for value in self._values([entity], fields, 0):
            found = Entity(value.group, value.entity)
            number, absent = _number(value, self._library)
            yield FieldValue(found, value.field, number, absent, value.time_us // 1000)

    def _values(
        self, entities: Sequence[Entity], fields: Sequence[int], flags: int
    ) -> Iterator[Any]:
        if not entities or not fields:
            return
        pairs = (_Pair * len(entities))(*(_Pair(each.kind, each.id) for each in entities))
        ids = (c_ushort * len(fields))(*fields)
        values = (_Value * (len(entities) * len(fields)))()
        self._call(
            "dcgmEntitiesGetLatestValues",
            *(pairs, c_uint(len(entities)), ids, c_uint(len(fields)), c_uint(flags), values),
        )
        yield from values

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        self._library.call(name, self._handle, *arguments)


def _number(value: Any, library: DcgmLibrary) -> tuple[int | float | None, str]:  # noqa: ANN401
    """Return a value's number, or None and the reason."""
    if value.status != _OK:
        return None, library.words(value.status)
    match chr(value.type):
        case "i" | "t":
            number: int | float = c_int64.from_buffer(value, _DATA_AT).value
            above = number - _BLANK_INT
        case "d":
            number = c_double.from_buffer(value, _DATA_AT).value
            above = number - _BLANK_DOUBLE
        case _:
            return None, "no number"
    if above >= 0:
        return None, _BLANKS[int(above)] if above < len(_BLANKS) else _BLANKS[0]
    # A NaN ratio comes from a counter that was reset.
    return (None, _BLANKS[0]) if number != number else (number, "")
