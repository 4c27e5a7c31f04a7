"""What is started piece by piece and ended as a whole, also where a start breaks off half-way."""

from contextlib import ExitStack


class Stacked:
    """Runs from `with` to its end; subclasses start their pieces on a stack."""

    def __enter__(self):
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _start(self, stack) -> None:
        raise NotImplementedError
