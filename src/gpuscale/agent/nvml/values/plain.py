"""Values from one plain NVML call each."""

from collections.abc import Mapping, Sequence

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import IMPOSSIBLE, NOT_SUPPORTED, CallFailedError
from gpuscale.agent.nvml.library import Answer, Handle
from gpuscale.agent.nvml.values.rows import MEMORY_BEFORE_510, Convert, NvmlCall
from gpuscale.agent.nvml.values.sources import Findings, Retry


class PlainCalls:
    """Makes the plain calls for one GPU or MIG instance.

    Args:
        caller: of the GPU.
        handle: of the GPU or instance.
        rows: in the order of the calls.
        fields: which of the rows' fields are asked for; a row without any is not called.
        retry_ms: when to ask again for what is not supported.
    """

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        rows: Sequence[NvmlCall],
        fields: frozenset[str],
        retry_ms: int,
    ) -> None:
        wanted = [row for row in rows if not fields.isdisjoint(row.values)]
        self._bound = [_BoundRow(caller, handle, row, fields, retry_ms) for row in wanted]
        self.fields = frozenset(field for bound in self._bound for field in bound.values)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = Findings()
        for bound in self._bound:
            bound.read(now_ms, found)
        return found

    def close(self) -> None:
        """Do nothing: plain calls hold no resources."""


class MemoryCalls(PlainCalls):
    """Memory of one GPU or MIG instance, by the older call where the driver has only that."""

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        row: NvmlCall,
        fields: frozenset[str],
        retry_ms: int,
    ) -> None:
        super().__init__(caller, handle, (row,), fields, retry_ms)
        self._older = PlainCalls(caller, handle, (MEMORY_BEFORE_510,), fields, retry_ms)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = super().read(now_ms)
        if NOT_SUPPORTED in found.absent.values():
            older = self._older.read(now_ms)
            for field in older.values:
                found.absent.pop(field, None)
            found.update(older)
        return found


class _BoundRow:
    """A row's call, bound to a handle."""

    def __init__(
        self, caller: Caller, handle: Handle, row: NvmlCall, fields: frozenset[str], retry_ms: int
    ) -> None:
        self.values: Mapping[str, Convert] = {
            field: convert for field, convert in row.values.items() if field in fields
        }
        self._caller = caller
        self._row = row
        self._handles = (handle,) if row.is_of_gpu else ()
        self._arguments: tuple[Answer, ...] | None = None
        self._retry = Retry(retry_ms)

    def read(self, now_ms: int, found: Findings) -> None:
        reason = self._retry.reason(now_ms)
        if reason is not None:
            found.miss(self.values, reason)
            return
        try:
            result = self._call()
        except CallFailedError as failure:
            found.miss(self.values, self._retry.note(failure, now_ms))
            return
        for field, convert in self.values.items():
            value = convert(result)
            if value is None:
                found.absent[field] = IMPOSSIBLE
            else:
                found.values[field] = value

    def _call(self) -> Answer:
        if self._arguments is None:
            self._arguments = tuple(
                self._caller.constant(argument) if isinstance(argument, str) else argument
                for argument in self._row.arguments
            )
        row = self._row
        return self._caller.call(row.source, row.function, *self._handles, *self._arguments)
