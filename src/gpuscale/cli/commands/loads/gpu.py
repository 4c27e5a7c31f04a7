"""`gpuscale load gpu`: GPUs that are busy for a share of the time, with memory held."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.text_files import read_text
from gpuscale.base.whole_files import check_writable
from gpuscale.cli.commands.loads.shaped import TRACE_MIB, lasting, naming, plain_shape
from gpuscale.cli.commands.loads.watched import watched_hpa, while_watching
from gpuscale.cli.exits import NO, stop_event
from gpuscale.cli.files import write_files
from gpuscale.cli.options.cluster import Context, Kubeconfig
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.runs import (
    Duration,
    HpaNamespace,
    Html,
    OutputFile,
    TimeColumn,
    WatchHpa,
)
from gpuscale.cli.progress import hide_line, show_line
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.load import MAX_GPU_PROCESSES

if TYPE_CHECKING:
    from gpuscale.base.loads import Load
    from gpuscale.load.gpu import ChosenGpu, GpuPlan, HeldGpu

_PROFILES = "--util, --ramp, --steps, --sine or --trace"
_LEAST_MEMORY = 1 << 20


def gpu(
    *,
    util: Annotated[
        float | None, typer.Option("--util", "-u", help="Percent of the time, all the time.")
    ] = None,
    ramp: Annotated[
        str | None, typer.Option(metavar="FROM..TO", help="Percent that rises or falls evenly.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="PERCENT@TIME,...", help="In turn: 30@1m,90@2m.")
    ] = None,
    sine: Annotated[
        str | None, typer.Option(metavar="LOW..HIGH,PERIOD", help="A wave, such as 20..80,5m.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="CSV with a time and a percent in each row.")
    ] = None,
    time_column: TimeColumn = "time",
    percent_column: Annotated[str, typer.Option(help="Of the trace: percent from then on.")] = (
        "percent"
    ),
    duration: Duration = "",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What is held on each GPU, such as 8GiB, contexts included."),
    ] = None,
    which: Annotated[
        str,
        typer.Option(
            "--gpu", metavar="NUMBER|UUID|all", help="Which, of those that this process may use."
        ),
    ] = "0",
    processes: Annotated[
        int, typer.Option(metavar="N", help="On each GPU, that take turns.", min=1, max=MAX_GPU_PROCESSES)
    ] = 1,
    multiprocessors: Annotated[
        float,
        typer.Option(
            "--sms", metavar="PERCENT", help="Of the multiprocessors that work while it is busy.",
            min=0.1, max=100,
        ),
    ] = 100.0,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
    output_file: OutputFile = None,
    html: Html = None,
    watch_hpa: WatchHpa = None,
    namespace: HpaNamespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:  # fmt: skip
    """Keep NVIDIA GPUs busy for a share of the time, as nvidia-smi counts it, and hold memory on them.

    It takes the driver and nothing else; with the package nvidia-ml-py it corrects itself by NVML.
    It ends by itself; Ctrl-C ends it early, and whatever ends it frees the GPU.

    Example:  gpuscale load gpu --util 60 --memory 8GiB --for 60s

    Example:  gpuscale load gpu --steps 30@1m,90@2m,10@1m --gpu all --watch-hpa bert --html run.html
    """
    from gpuscale.load.gpu import (
        CudaDriver,
        GpuPlan,
        choose,
        gpu_document,
        gpu_timeline,
        gpu_totals,
    )

    shapes = {"--util": util, "--ramp": ramp, "--steps": steps, "--sine": sine, "--trace": trace}
    given = {name: value for name, value in shapes.items() if value is not None}
    load, duration_s, words = _load(
        given, seconds_of("--for", duration) if duration else None, (time_column, percent_column)
    )
    for option, name in (("--output-file", output_file), ("--html", html)):
        check_writable([name] if name else [], option)
    plan = GpuPlan(load, duration_s, _size(memory), processes, multiprocessors, words)
    # The numbering is then that of nvidia-smi.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    watch = watched_hpa(watch_hpa, namespace, kubeconfig, context)
    gpus = choose(which, CudaDriver().devices(), os.environ)
    held, watched = while_watching(watch, lambda: asyncio.run(_hold(plan, gpus)))
    for text in watched.notes if watched is not None else ():
        _note(text)
    document = gpu_document(plan, held, watched)
    texts = {output_file: json.dumps(document) + "\n"} if output_file else {}
    if html:
        from gpuscale.load.timeline import render_timeline

        texts[html] = render_timeline(gpu_timeline(plan, held, watched), gpu_totals(document))
    write_files(texts)
    _print(document, output)
    if document["faults"]:
        raise typer.Exit(NO)


def _load(
    shapes: Mapping[str, object], duration_s: float | None, columns: tuple[str, str]
) -> "tuple[Load, float, str]":
    """Return the load, its duration, and its name."""
    from gpuscale.load import PERCENT

    if len(shapes) != 1:
        raise UsageError(f"found {' and '.join(shapes) or 'no load'}, expected one of {_PROFILES}")
    ((name, value),) = shapes.items()
    text = str(value)
    with naming(name):
        if name == "--trace":
            load, own_s = _of_trace(text, *columns), None
        else:
            load, own_s = plain_shape(
                "--rate" if name == "--util" else name, text, duration_s, PERCENT
            )
    return load, lasting(duration_s, own_s), f"{name.removeprefix('--')} {text}"


def _of_trace(name: str, time_column: str, percent_column: str) -> "Load":
    from gpuscale.lab.sim.load import load_trace

    return load_trace(
        read_text(name, TRACE_MIB),
        name,
        time_column=time_column,
        rate_column=percent_column,
        scale=1.0,
    )


def _size(text: str | None) -> int | None:
    """Parse a number of bytes: Kubernetes' units, optionally followed by B."""
    from gpuscale.base.quantity import parse_quantity

    if text is None:
        return None
    try:
        size = parse_quantity(text.removesuffix("B")).value()
    except ValueError:
        size = 0
    if size < _LEAST_MEMORY:
        raise UsageError(f"--memory: found {text!r}, expected a size such as 8GiB or 500MiB")
    return size


async def _hold(plan: "GpuPlan", gpus: "Sequence[ChosenGpu]") -> "Sequence[HeldGpu]":
    from gpuscale.load.gpu import hold, open_counter

    logging.basicConfig(format="gpuscale: %(message)s", stream=sys.stderr, level=logging.ERROR)
    stop = stop_event()
    counter = await asyncio.to_thread(open_counter)
    try:
        held = await hold(
            plan, gpus, counter, stop, _show if sys.stderr.isatty() else _ignore, _note
        )
    finally:
        await asyncio.to_thread(counter.close)
        hide_line()
    return held


def _note(text: str) -> None:
    hide_line()
    print(f"gpuscale: {printable(text)}", file=sys.stderr, flush=True)


def _ignore(_held: "Sequence[HeldGpu]") -> None:
    """Do nothing: standard error is no terminal."""


def _show(held: "Sequence[HeldGpu]") -> None:
    """Print the last half second's figures on a line that the next replaces."""
    parts = []
    for each in held[:4]:
        look = each.looks[-1]
        counted = "-" if look.counted is None else f"{look.counted:.0f} %"
        own = "-" if look.own is None else f"{look.own:.0f} %"
        parts.append(f"{look.wanted:.0f} % wanted, NVML {counted}, own {own}")
    seconds = (held[0].ended_ms - held[0].started_ms) / 1000
    show_line(f"{seconds:.0f} s  {'  |  '.join(parts)}")


def _print(document: dict[str, Any], output: Output) -> None:
    from gpuscale.load.gpu import gpu_text

    if output is Output.TEXT:
        for line in gpu_text(document).splitlines():
            print(printable(line))
    else:
        print_document(document, output)
