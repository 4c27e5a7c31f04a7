"""`gpuscale load jobs`: N Jobs on a cluster, from their creation to their end, and away again."""

import asyncio
import json
import logging
import re
import secrets
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.text_files import read_text
from gpuscale.base.whole_files import check_writable
from gpuscale.cli.exits import NO, stop_event
from gpuscale.cli.files import write_files
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    context_namespace,
    kubectl_options,
    namespace_option,
)
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.progress import hide_line, show_line
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.load import MAX_JOBS, USUAL_JOBS

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.load.jobs import Chronicle, JobPlan, JobRun, JobTemplate

_MAX_S = 7 * 24 * 3600.0
_PER_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SLACK_S = 60.0
"""For a busy API server, so that Jobs meet their own --timeout and not the end of the run."""
_QUIET_S = 10.0
"""Between lines where standard error is no terminal."""


def jobs(
    count: Annotated[
        int | None, typer.Argument(metavar="N", help="How many Jobs.", min=1, max=MAX_JOBS)
    ] = None,
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", "-f", metavar="FILE", help="Manifest of the Job.",
            show_default="MNIST training on one NVIDIA GPU",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, namespace_option("Of the Jobs.", "the manifest's, then the context's")
    ] = None,
    at_once: Annotated[bool, typer.Option("--at-once", help="All at once, the default.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="One after the other, such as 10s.")
    ] = None,
    poisson: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="At random, with so many on average: 0.1, 6/m, 100/h."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of --poisson.", min=0)] = 1,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="For each Job, until it is done.")
    ] = "1h",
    limit: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="End the run after so long, done or not."),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Follow nodes for so long after the last Job."),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Refuse more Jobs than this.", min=1)
    ] = USUAL_JOBS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the Jobs where they are.")] = False,
    is_clean: Annotated[
        bool, typer.Option("--clean", help="Only remove what runs have left behind.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="With --clean: of this run alone.")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write charts and a Gantt picture.")
    ] = None,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, a case a Job.")
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
    output_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the result as JSON to a file.")
    ] = None,
) -> None:  # fmt: skip
    """Run N Jobs of one manifest on a cluster: how long they wait, for what, and on which nodes they run.

    The Jobs have labels of their own, and are removed in the end, also after Ctrl-C. It exits with 1 where
    one fails or takes too long. What a killed run leaves is removed with --clean.

    Example:  gpuscale load jobs 20 --job train.yaml --html jobs.html --junit jobs.xml

    Example:  gpuscale load jobs 50 --poisson 6/m --settle 15m

    Example:  gpuscale load jobs --clean
    """
    set_up_log(logging.WARNING)
    options = kubectl_options(kubeconfig, context)
    if is_clean:
        if count is not None or job is not None:
            raise UsageError("--clean: found it with Jobs to run, expected it alone")
        _check_run(run)
        asyncio.run(_clean(cluster_settings(kubeconfig, context), namespace, run, output))
        return
    if run is not None:
        raise UsageError("--run: found it without --clean, expected both")
    if count is None:
        raise UsageError("found no number of Jobs, expected one, such as: gpuscale load jobs 20")
    if count > most:
        raise UsageError(f"N: found {count} Jobs, expected {most} at most, or a larger --most")
    gap_s, rate = _pace(at_once=at_once, every=every, poisson=poisson)
    timeout_s = _bounded("--timeout", timeout)
    limit_s = _bounded("--for", limit) if limit else None
    settle_s = _bounded("--settle", settle) if settle else 0.0
    template = _template(job)
    for option, name in (("--html", html), ("--junit", junit), ("--output-file", output_file)):
        check_writable([name] if name else [], option)
    cluster = cluster_settings(kubeconfig, context)
    from gpuscale.load.jobs import JobPlan, moments

    due_s = moments(count, gap_s, rate, seed)
    plan = JobPlan(
        template=template,
        namespace=namespace or template.namespace or context_namespace(cluster),
        count=count,
        moments_s=due_s,
        timeout_s=timeout_s,
        limit_s=limit_s or due_s[-1] + timeout_s + settle_s + _SLACK_S,
        settle_s=settle_s,
        keeps=keep,
        options=options,
    )
    _finish(asyncio.run(_run(plan, cluster)), html, junit, output_file, output)


def _finish(
    run: "JobRun", html: str | None, junit: str | None, output_file: str | None, output: Output
) -> None:
    """Write and print a run's results.

    Raises:
        typer.Exit: with code 1, not all Jobs are done.
    """
    from gpuscale.load.jobs import (
        job_document,
        job_faults_text,
        job_text,
        job_timeline,
        job_totals,
        junit_text,
    )
    from gpuscale.load.timeline import render_timeline, timeline_text

    document = job_document(run)
    texts: dict[str, str] = {}
    if html:
        texts[html] = render_timeline(job_timeline(run), job_totals(document))
    if junit:
        texts[junit] = junit_text(document)
    if output_file:
        texts[output_file] = json.dumps(document) + "\n"
    write_files(texts)
    if output is Output.TEXT:
        from rich.console import Console

        for line in timeline_text(job_timeline(run), Console().width).splitlines():
            print(printable(line))
        print()
        for line in job_text(document).splitlines():
            print(printable(line))
    else:
        print_document(document, output)
    if run.plan.keeps:
        _note(
            f"the Jobs are still there; remove them with: gpuscale load jobs{run.plan.options} "
            f"-n {run.plan.namespace} --clean --run {run.id}"
        )
    if job_faults_text(document):
        raise typer.Exit(NO)


async def _run(plan: "JobPlan", cluster: "KubeSettings") -> "JobRun":
    from gpuscale.kube.client import KubeClient
    from gpuscale.load.jobs import JobRunner

    stop = stop_event()
    run_id = secrets.token_hex(3)
    show = _Progress(plan.count)
    async with KubeClient(cluster, tries=3) as client:
        runner = JobRunner(client, plan, run_id, show, _note)
        await runner.check()
        _note(
            f"run {run_id}: {plan.count} Jobs in namespace {plan.namespace} of {client.server}; "
            "Ctrl-C ends it and removes them"
        )
        try:
            return await runner.perform(stop)
        finally:
            hide_line()


async def _clean(
    cluster: "KubeSettings", namespace: str | None, run: str | None, output: Output
) -> None:
    from gpuscale.kube.client import KubeClient
    from gpuscale.load.jobs import clean

    async with KubeClient(cluster, tries=3) as client:
        await client.check_ready()
        removed = await clean(client, namespace, context_namespace(cluster), run)
    if output is not Output.TEXT:
        print_document({"removed": list(removed)}, output)
        return
    for name in removed:
        print(f"removed Job {name}")
    if not removed:
        print("nothing to remove")


class _Progress:
    """Progress on standard error: one line that changes, or a line now and then."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._shown_s = float("-inf")

    def __call__(self, chronicle: "Chronicle") -> None:
        now_s = time.monotonic()
        text = printable(chronicle.line(self._count))
        line = f"{now_s - self._began_s:.0f} s  {text}"
        if self._is_terminal:
            show_line(line)
        elif text != self._shown and now_s - self._shown_s >= _QUIET_S:
            print(f"gpuscale: {line}", file=sys.stderr, flush=True)
            self._shown, self._shown_s = text, now_s


def _note(text: str) -> None:
    hide_line()
    print(f"gpuscale: {printable(text)}", file=sys.stderr, flush=True)


def _pace(
    *, at_once: bool, every: str | None, poisson: str | None
) -> tuple[float | None, float | None]:
    """Return the gap between Jobs or their rate per second; None for both if all start at once."""
    if at_once + (every is not None) + (poisson is not None) > 1:
        raise UsageError("found several of --at-once, --every and --poisson, expected one of them")
    if every is not None:
        return _bounded("--every", every), None
    if poisson is None:
        return None, None
    number, _, unit = poisson.partition("/")
    try:
        rate = float(number) / _PER_S[unit or "s"]
    except (KeyError, ValueError):
        rate = 0.0
    if not 1 / _MAX_S <= rate <= 20:
        raise UsageError(
            f"--poisson: found {poisson!r}, expected Jobs per second, or such as 6/m or 100/h; 20 a second "
            "at most"
        )
    return None, rate


def _check_run(run: str | None) -> None:
    if run is not None and not re.fullmatch("[0-9a-z]{1,20}", run):
        raise UsageError(f"--run: found {run!r}, expected the id of a run, such as 3fa2c1")


def _bounded(name: str, text: str) -> float:
    found_s = seconds_of(name, text)
    if found_s > _MAX_S:
        raise UsageError(f"{name}: found {text}, expected a week at most")
    return found_s


def _template(name: str | None) -> "JobTemplate":
    from gpuscale.load.jobs import read_template, sample_template

    if name is None:
        return sample_template()
    shown = name if name != "-" else "<stdin>"
    return read_template(read_text(name), shown)
