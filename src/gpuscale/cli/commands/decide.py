"""`gpuscale decide`: what the HPA would do, and why; for an HPA on a cluster, or for a file."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import ConfigError, GpuscaleError, Problem, UsageError
from gpuscale.base.text_files import STDIN, read_text, shown_name
from gpuscale.base.whole_files import write_file
from gpuscale.cli.options.cluster import (
    PANEL,
    Context,
    Kubeconfig,
    cluster_settings,
    context_namespace,
    namespace_option,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.hpa.decisions import DecisionRequest
    from gpuscale.kube.client import KubeSettings
    from gpuscale.lab.views import StyledLine
    from gpuscale.ops.observe import SeenHpa

SYNC_PERIOD_S = 15.0
"""How often the HPA controller looks at an HPA, by default."""
_KIND = re.compile(r"(hpas?|horizontalpodautoscalers?)(\.(v\d\w*\.)?autoscaling)?", re.IGNORECASE)
_CANT_DECIDE, _FAULT = 1, 2


def decide(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="hpa/NAME|FILE",
            help="HPAs on the cluster: hpa/NAME, or hpa alone for all of the namespace; "
            "or files with Decision documents, - for standard input.",
        ),
    ],
    *,
    namespace: Annotated[
        str | None,
        namespace_option("Namespace of the HPAs.", "the context's"),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="All HPAs of the cluster.", rich_help_panel=PANEL
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what was read to a file that decide answers the same."
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Look again every 15 s, and print each answer that has changed."
        ),
    ] = False,
    output: Annotated[
        Output,
        typer.Option("--output", "-o", help="json prints one line per HPA, yaml one document."),
    ] = Output.TEXT,
) -> None:
    """Explain what the HPA controller would do now with what it sees, and why.

    Asks the cluster for all that the controller asks for, and changes nothing. What the controller keeps in
    its memory can't be read; the answer names that.

    Exit code 0: it knows how many replicas there should be; 1: it can't decide about one; 2: the input is
    wrong, or the cluster could not be looked at. The others are answered all the same.

    Example:  gpuscale decide hpa/vision -n prod

    Example:  gpuscale decide hpa -A -o json

    Example:  gpuscale decide hpa/vision --save why.yaml

    Example:  gpuscale decide why.yaml
    """
    sources = list(named_sources(what))
    live = [source for source in sources if isinstance(source, _Names)]
    _check_options(
        sources, live, save=save, watch=watch, everywhere=all_namespaces, namespace=namespace
    )
    place = _Place(namespace, kubeconfig, context, everywhere=all_namespaces)
    printer = _Printer(output)
    if watch:
        _watch(live, place, printer)
    else:
        read: list[SeenHpa] = []
        for source in sources:
            if isinstance(source, str):
                printer.show(_of_file(source))
            else:
                looks = place.look(source)
                printer.show(map(_of_cluster, looks))
                read += [each for each in looks if not isinstance(each, GpuscaleError)]
        if save is not None and read:
            from gpuscale.kube.client import cluster_name
            from gpuscale.ops.observe import saved_text

            write_file(save, saved_text(read, str(cluster_name(place.settings))), "--save")
            print(f"gpuscale: wrote {save}", file=sys.stderr)
    if printer.code:
        raise typer.Exit(printer.code)


# What is asked about


@dataclass(frozen=True, slots=True)
class _Names:
    """HPAs on the cluster by name; no names mean all."""

    names: tuple[str, ...]


def named_sources(words: Sequence[str]) -> Iterator[str | _Names]:
    """Return the files and the HPAs that the words name, as kubectl reads them: hpa/NAME, or hpa NAME..."""
    for index, word in enumerate(words):
        kind, slash, name = word.partition("/")
        if word == STDIN or not _KIND.fullmatch(kind) or Path(word).is_file():
            yield word
        elif slash:
            yield _Names((_checked_name(name, word),))
        else:
            rest = (each.rpartition("/")[2] for each in words[index + 1 :])
            yield _Names(tuple(_checked_name(each, each) for each in rest))
            return


def named_hpa(word: str) -> str:
    """Return the name in a word such as `hpa/vision`.

    Raises:
        UsageError: it names no HPA.
    """
    kind, slash, name = word.partition("/")
    if not slash or not _KIND.fullmatch(kind):
        raise UsageError(f"found {word!r}, expected an HPA on the cluster such as hpa/vision")
    return _checked_name(name, word)


def _checked_name(name: str, word: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", name):
        raise UsageError(f"found {word!r}, expected an HPA's name such as hpa/vision")
    return name


def _check_options(
    sources: Sequence[str | _Names],
    live: Sequence[_Names],
    *,
    save: Path | None,
    watch: bool,
    everywhere: bool,
    namespace: str | None,
) -> None:
    for option, is_given in (("--save", save is not None), ("--watch", watch)):
        if is_given and not live:
            raise UsageError(f"{option}: expected an HPA on the cluster, such as hpa/vision")
    if watch and len(live) < len(sources):
        raise UsageError("found --watch and a file, which does not change; expected HPAs alone")
    if save is not None and watch:
        raise UsageError("found --save and --watch, expected one of them")
    if everywhere and any(source.names for source in live):
        raise UsageError("found --all-namespaces and a name, expected one of them")
    if namespace is not None and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace):
        raise UsageError(
            f"--namespace: found {namespace!r}, expected a namespace's name such as prod"
        )


class _Place:
    """The namespace of HPAs; the cluster is connected to at the first request."""

    def __init__(
        self,
        namespace: str | None,
        kubeconfig: Path | None,
        context: str | None,
        *,
        everywhere: bool,
    ) -> None:
        self._given = (kubeconfig, context)
        self._namespace = namespace
        self._everywhere = everywhere

    @property
    def settings(self) -> "KubeSettings":
        return cluster_settings(*self._given)

    def look(self, names: _Names) -> "tuple[SeenHpa | GpuscaleError, ...]":
        """Return what the controller of each HPA sees, or why that can't be read."""
        import asyncio

        from gpuscale.base.clock import WallClock
        from gpuscale.ops.observe import HpaSelection, read_hpas

        with working("reading the HPA, its pods and its metrics"):
            wanted = HpaSelection(None)
            if not self._everywhere:
                namespace = self._namespace or context_namespace(self.settings)
                wanted = HpaSelection(namespace, names.names)
            return asyncio.run(read_hpas(self.settings, wanted, WallClock()))


# From documents to answers


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a document gets no answer."""

    messages: tuple[str, ...]


def _of_file(name: str) -> "Iterator[DecisionRequest | _Fault]":
    """Return the requests in a file's documents, in order."""
    try:
        text = read_text(name)
    except ConfigError as error:
        yield _Fault(tuple(f"{problem}{_hint(name)}" for problem in error.problems))
        return
    yield from _of_text(text, shown_name(name))


def _hint(name: str) -> str:
    """Return a suggestion if an argument that should be a file looks like an HPA on the cluster."""
    path = Path(name)
    if path.exists() or name == STDIN or path.suffix:
        return ""
    if "/" in name:
        return "; of what is on the cluster decide reads HPAs: hpa/NAME, or hpa for all"
    return f"; if that is an HPA on the cluster, say hpa/{name}"


def _of_cluster(
    seen: "SeenHpa | GpuscaleError", *, with_time: bool = False
) -> "DecisionRequest | _Fault":
    if isinstance(seen, GpuscaleError):
        return _Fault(tuple(str(seen).splitlines()))
    (request,) = _of_text(seen.document, seen.place)
    place = f"{seen.place} at {seen.time}" if with_time else seen.place
    return request if isinstance(request, _Fault) else replace(request, place=place)


def _of_text(text: str, source: str) -> "Iterator[DecisionRequest | _Fault]":
    from gpuscale.base.documents.documents import load_each
    from gpuscale.hpa.decisions import read_decision

    documents = load_each(text, source)
    if not documents:
        problem = Problem(source, None, None, "no document", "at least one Decision")
        yield _Fault((str(problem),))
    for document in documents:
        try:
            if isinstance(document, ConfigError):
                raise document
            yield read_decision(document)
        except ConfigError as error:
            yield _Fault(tuple(map(str, error.problems)))


class _Printer:
    """Prints answers on standard output and faults on standard error, and keeps the exit code."""

    def __init__(self, output: Output) -> None:
        self.code = 0
        self._output = output
        self._count = 0
        self._last_fault: _Fault | None = None
        self._show_line = _show_styled() if sys.stdout.isatty() else _show_plain

    def show(self, asked: "Iterable[DecisionRequest | _Fault]") -> None:
        """Print the answer to each document, in their order."""
        from gpuscale.hpa.decisions import answer, decide_request
        from gpuscale.hpa.terms import could_decide
        from gpuscale.lab.views import decision_lines

        for each in asked:
            if isinstance(each, _Fault):
                self._fault(each)
                continue
            decision = decide_request(each)
            if not could_decide(decision):
                self.code = max(self.code, _CANT_DECIDE)
            if self._output is not Output.TEXT:
                self._document(answer(each, decision))
                continue
            if self._count:
                print()
            self._count += 1
            for line in decision_lines(each, decision):
                self._show_line(line)

    def _fault(self, fault: _Fault) -> None:
        self.code = _FAULT
        if self._output is not Output.TEXT:
            self._document({"error": list(fault.messages)})
        if fault != self._last_fault:  # an unreachable cluster gives the same error for every HPA
            sys.stdout.flush()
            for message in fault.messages:
                print(f"gpuscale: {printable(message)}", file=sys.stderr)
        self._last_fault = fault

    def _document(self, document: dict[str, object]) -> None:
        if self._output is Output.YAML and self._count:
            print("---")
        self._count += 1
        print_document(document, self._output)


def _show_plain(line: "StyledLine") -> None:
    print(printable(line.text))


def _show_styled() -> "Callable[[StyledLine], None]":
    from rich.console import Console
    from rich.text import Text

    console = Console()
    return lambda line: console.print(Text(printable(line.text), line.style), soft_wrap=True)


# Watching


def _watch(names: Sequence[_Names], place: _Place, printer: _Printer) -> None:
    """Print answers whenever they change; ends only if nothing can be read at first."""
    shown: dict[str, object] = {}
    while True:
        for each in names:
            for seen in place.look(each):
                request = _of_cluster(seen, with_time=True)
                key = "" if isinstance(seen, GpuscaleError) else f"{seen.namespace}/{seen.name}"
                if shown.get(key) != _gist(request):
                    shown[key] = _gist(request)
                    printer.show([request])
        if not any(shown):
            return
        sys.stdout.flush()
        time.sleep(SYNC_PERIOD_S)


def _gist(request: "DecisionRequest | _Fault") -> object:
    """Return the part of an answer whose change is shown; values and waits change all the time."""
    from gpuscale.hpa.decisions import decide_request

    if isinstance(request, _Fault):
        return request.messages
    decision = decide_request(request)
    return (
        decision.current_replicas,
        decision.desired_replicas,
        [(c.type, c.status, c.reason) for c in decision.conditions],
        [(m.proposed_replicas, m.error) for m in decision.metrics],
    )
