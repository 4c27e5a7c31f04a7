"""`gpuscale lint`: what of rules and autoscalers can't work."""

from typing import Annotated

import typer

from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.options.kubernetes import KubernetesVersionText, read_kubernetes_version
from gpuscale.cli.texts import Output, print_document, printable


def lint(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Rule files, trigger files, manifests, values files and scenarios, in any order; "
            "- is standard input.",
        ),
    ],
    *,
    output: Annotated[
        Output,
        typer.Option(
            "--output", "-o", help="text, or one json or yaml document with all findings."
        ),
    ] = Output.TEXT,
    kubernetes_version: KubernetesVersionText = None,
    instance_types: InstanceTypes = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for notes too.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List the objects that have nothing to check.")
    ] = False,
) -> None:
    """Hold prometheus-adapter rules, HPAs, GPU pods and node pools against each other, before they run.

    Reads rule files, HPAs and KEDA's ScaledObjects, what a values file renders, the files of a scenario, and
    what GPU nodes come from: NodePools, node groups of eksctl, queues of Kueue.

    Exit code 0: nothing to do; 1: errors or warnings were found; 2: a file can't be read, or there was
    nothing to check.

    Example:  gpuscale lint rules.yaml hpa.yaml

    Example:  gpuscale lint hpa.yaml --kubernetes-version 1.37

    Example:  gpuscale lint nodepool.yaml deployment.yaml hpa.yaml
    """
    from gpuscale.cli.linted import linted
    from gpuscale.ops import lint_document, lint_lines

    report = linted(files, read_kubernetes_version(kubernetes_version), instance_types)
    if output is Output.TEXT:
        for line in lint_lines(report, lists_all=verbose):
            print(printable(line))
    else:
        print_document(lint_document(report), output)
    if report.fails(strict=strict):
        raise typer.Exit(1)
