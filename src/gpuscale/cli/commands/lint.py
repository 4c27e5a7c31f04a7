"""`gpuscale lint`: what of rules and autoscalers can't work."""

import asyncio
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.findings import Severity
from gpuscale.cli.options.cluster import PANEL, Context, Kubeconfig, cluster_settings, looking
from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.options.kubernetes import KubernetesVersionText, read_kubernetes_version
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, ReportOutput, print_document, printable

if TYPE_CHECKING:
    from gpuscale.cli.linted import Linted
    from gpuscale.ops.lint import Cluster, LintReport


def _print_policies(*, wanted: bool) -> None:
    if wanted:
        from gpuscale.base.documents.documents import dump_documents
        from gpuscale.ops.lint import admission_policies

        print(dump_documents(admission_policies()), end="")
        raise typer.Exit


_SHOWN_SKIPPED = 3
"""Of the files that are passed over; a folder may have many."""


def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Rule files, trigger files, manifests, values files and scenarios, in any order, and "
            "folders of them; - is standard input.",
        ),
    ] = None,
    *,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Look at what the cluster has too; files are laid over it, as if they were applied.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        ReportOutput,
        typer.Option(
            "--output",
            "-o",
            help="text; one json or yaml document with all findings; sarif for code hosts; junit for CI.",
        ),
    ] = ReportOutput.TEXT,
    kubernetes_version: KubernetesVersionText = None,
    instance_types: InstanceTypes = None,
    fail_on: Annotated[
        Severity | None,
        typer.Option(
            "--fail-on", help="Exit 1 for these, and for what is worse.", show_default="warning"
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit 1 for notes too, as --fail-on note, and 2 where there was nothing to check.",
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Leave out the findings that are listed there."),
    ] = None,
    write_baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="List all findings there, for --baseline."),
    ] = None,
    skip_unknown: Annotated[
        bool,
        typer.Option(
            "--skip-unknown",
            help="Pass over broken files too, as of folders; else each is an error.",
        ),
    ] = False,
    lsp: Annotated[
        bool,
        typer.Option(
            "--lsp",
            help="Serve an editor on standard input and output: the files that it opens, beside FILE.",
        ),
    ] = False,
    print_policies: Annotated[
        bool,
        typer.Option(
            "--print-policies",
            callback=lambda value: _print_policies(wanted=value),
            is_eager=True,
            help="Print admission policies for what an API server can refuse itself; reads no file.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List the objects that have nothing to check.")
    ] = False,
) -> None:
    """Hold prometheus-adapter rules, HPAs, GPU pods and node pools against each other, before they run.

    Reads rule files, HPAs and KEDA's ScaledObjects, what a values file renders, the files of a scenario, and
    what GPU nodes come from: NodePools, node groups of eksctl, queues of Kueue. A comment in a file,
    `# gpuscale: ignore ID reason`, leaves findings out.

    With --live it judges the objects of a cluster too, and only reads them.

    Exit code 0: nothing to do, or nothing to check; 1: errors or warnings were found; 2: a file can't be
    read, or the cluster could not be looked at.

    Example:  gpuscale lint rules.yaml hpa.yaml

    Example:  gpuscale lint hpa.yaml --kubernetes-version 1.37

    Example:  gpuscale lint nodepool.yaml deployment.yaml hpa.yaml

    Example:  gpuscale lint hpa.yaml --live --context prod

    Example:  gpuscale lint --print-policies | kubectl apply -f -

    Example:  gpuscale lint -o sarif --baseline known.yaml rules.yaml hpa.yaml > lint.sarif
    """
    if strict and fail_on is not None:
        raise UsageError(f"--strict: found --fail-on {fail_on.value} too, expected one of them")
    if baseline is not None and write_baseline is not None:
        raise UsageError("--write-baseline: found --baseline too, expected one of them")
    if not live and (kubeconfig is not None or context is not None):
        raise UsageError("--kubeconfig, --context: expected --live beside them")
    if lsp and (live or baseline is not None or write_baseline is not None):
        raise UsageError("--lsp: expected no --live and no baseline beside it")
    if not live and not files and not lsp:
        raise UsageError("expected a FILE, or --live")
    from gpuscale.cli.linted import linted
    from gpuscale.ops.lint import BROKEN_FILE

    version = read_kubernetes_version(kubernetes_version)
    if lsp:
        from gpuscale.cli.language_server import LanguageServer

        def look(names: Sequence[str]) -> "Linted":
            return linted(names, version, instance_types, skips_unknown=True)

        LanguageServer(files or (), look, sys.stdin.buffer, sys.stdout.buffer).serve()
        return
    gc.disable()  # It would search all documents for circles, again and again, and they have none.
    cluster = _look(kubeconfig, context) if live else None
    found = linted(files or (), version, instance_types, cluster, skips_unknown=skip_unknown)
    shown = found.skipped if verbose else found.skipped[:_SHOWN_SKIPPED]
    for each in shown:
        print(printable(f"gpuscale: passed over: {each}"), file=sys.stderr)
    if len(found.skipped) > len(shown):
        more = len(found.skipped) - len(shown)
        print(f"gpuscale: passed over {more} more; --verbose lists them", file=sys.stderr)
    report = _beside_baseline(found, baseline, write_baseline)
    least = Severity.NOTE if strict else fail_on or Severity.WARNING
    _print(report, found, output, least, lists_all=verbose, lists_unseen=verbose or live)
    is_blind = any(each.check.id == BROKEN_FILE.id for each in report.findings)
    if is_blind or (strict and not report.has_checked):
        raise typer.Exit(2)
    if report.fails(least):
        raise typer.Exit(1)


def _beside_baseline(found: "Linted", baseline: str | None, written: str | None) -> "LintReport":
    """Return the report without what is in the baseline, which is written first where one wants that."""
    name = baseline if written is None else written
    if name is None:
        return found.report
    from gpuscale.base.text_files import read_text
    from gpuscale.base.whole_files import check_writable
    from gpuscale.cli.files import names_from, write_files
    from gpuscale.ops.lint import baseline_text, without_known

    names = names_from(Path(name).parent, found.texts)
    if written is None:
        text = read_text(name)
    else:
        check_writable([name], "--write-baseline")
        text = baseline_text(found.report, found.texts, names)
        write_files({name: text})
    return without_known(found.report, found.texts, names, text, name)


def _print(
    report: "LintReport",
    found: "Linted",
    output: ReportOutput,
    least: Severity,
    *,
    lists_all: bool,
    lists_unseen: bool,
) -> None:
    from gpuscale.ops import junit_text, lint_document, lint_lines, sarif_document

    if output is ReportOutput.TEXT:
        for line in lint_lines(report, lists_all=lists_all, lists_unseen=lists_unseen):
            print(printable(line))
    elif output is ReportOutput.SARIF:
        from gpuscale.cli.files import names_from, repository_root

        names = names_from(repository_root(), found.texts)
        print_document(sarif_document(report, found.checks, names), Output.JSON)
    elif output is ReportOutput.JUNIT:
        from gpuscale.base.clock import WallClock

        print(junit_text(report, tuple(found.texts), least, WallClock().now_ms()))
    else:
        print_document(lint_document(report), Output(output.value))


def _look(kubeconfig: Path | None, context: str | None) -> "Cluster":
    """Return the objects of a cluster that lint has checks for."""
    settings = cluster_settings(kubeconfig, context)

    async def objects() -> "Cluster":
        from gpuscale.base.clock import WallClock
        from gpuscale.kube.client import KubeClient, cluster_name
        from gpuscale.ops.doctor import Gatherer, GatherSettings

        with working(f"looking at cluster {cluster_name(settings)}") as report:
            async with KubeClient(settings) as client:
                return await Gatherer(client, WallClock(), GatherSettings(), report).objects()

    with looking():
        return asyncio.run(objects())
