"""`gpuscale doctor`: what is wrong with a live cluster's GPU autoscaling, and its fix."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.lint import lint
from gpuscale.cli.commands.pulse import check_pulse, run_pulse
from gpuscale.cli.options.agents import AgentUrls, agent_urls
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    looking,
    namespace_option,
)
from gpuscale.cli.options.prometheus import (
    PrometheusIdentity,
    PrometheusTokenFile,
    PrometheusUrl,
    prometheus_access,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, ReportOutput, print_document, printable
from gpuscale.ops.doctor.pulse import AT_ONCE, PULSE_S

if TYPE_CHECKING:
    from gpuscale.base.findings import ChainReport, Check
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.doctor import ClusterFinding, GatherSettings
    from gpuscale.server.sources.http import SourceAccess


def doctor(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Look at these and at no cluster, as gpuscale lint does; a folder is read at any depth.",
        ),
    ] = None,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        namespace_option("Look at the HPAs of this namespace only.", "all"),
    ] = None,
    output: Annotated[
        ReportOutput,
        typer.Option(
            "--output",
            "-o",
            help="text; one json or yaml document; sarif for code hosts; junit for CI.",
        ),
    ] = ReportOutput.TEXT,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the fixes that restart nothing, each after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_identity: PrometheusIdentity = None,
    agent: AgentUrls = None,
    agent_ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --agent: CAs of the agents' certificates."),
    ] = None,
    agent_server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --agent: name that the certificates are checked against; default: the URL's host.",
        ),
    ] = None,
    agent_username: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --agent: user of basic authentication."),
    ] = None,
    agent_password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --agent: password of that user."),
    ] = None,
    pulse: Annotated[
        bool,
        typer.Option(
            "--pulse",
            help="Time every hop from load to a ready pod instead; needs --pulse-url or --pulse-wait. "
            "All that it does to the cluster is that load, and the HPA's own scaling follows it.",
        ),
    ] = False,
    pulse_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Make the load: GET this, again and again, until the end."
        ),
    ] = None,
    pulse_wait: Annotated[
        bool, typer.Option("--pulse-wait", help="Make no load; watch the one that you start.")
    ] = False,
    pulse_hpa: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME", help="Default: the only one on a custom or external metric."
        ),
    ] = None,
    pulse_at_once: Annotated[
        int,
        typer.Option(
            min=AT_ONCE.lowest,
            max=AT_ONCE.highest,
            help="Requests of --pulse-url under way at a time.",
        ),
    ] = 4,
    pulse_for: Annotated[
        float,
        typer.Option(
            min=PULSE_S.lowest,
            max=PULSE_S.highest,
            metavar="SECONDS",
            help="End then, or at a ready pod.",
        ),
    ] = 60,
) -> None:
    """Walk the chain from GPU nodes to replicas on a live cluster, and name everything that is wrong.

    Only reads, unless --fix or --pulse-url. With FILE it judges files, as gpuscale lint does.

    Exit code 0: healthy; 1: something was found, or a hop of --pulse did not move; 2: the input is wrong, or
    the cluster could not be looked at.

    Example:  gpuscale doctor

    Example:  gpuscale doctor --context prod -n vision -o json

    Example:  gpuscale doctor hpa.yaml
    """
    if files:
        given = (
            *(kubeconfig, context, namespace, fix, yes, prometheus_url, prometheus_token_file),
            *(agent, agent_ca_file, agent_username, pulse, pulse_url, pulse_wait, pulse_hpa),
        )
        if any(given):
            raise UsageError(
                "FILE: expected no option of a cluster beside it; gpuscale lint --live FILE looks at both"
            )
        lint(files, output=output)
        return
    if yes and not fix:
        raise UsageError("--yes: expected --fix beside it")
    if fix and not yes and output is not ReportOutput.TEXT:
        raise UsageError(
            f"--fix: expected --yes beside --output {output.value}, which leaves nobody to ask"
        )
    if fix and not yes and not sys.stdin.isatty():
        raise UsageError("--fix: expected a terminal to ask at, or --yes")
    check_pulse(pulse=pulse, url=pulse_url, waits=pulse_wait, hpa=pulse_hpa, fixes=fix)
    from gpuscale.base.clock import WallClock
    from gpuscale.base.findings import Severity
    from gpuscale.ops import (
        chain_document,
        chain_junit_text,
        chain_lines,
        chain_sarif_document,
    )
    from gpuscale.ops.doctor import GatherSettings
    from gpuscale.ops.doctor.pulse import PulseSettings

    access = prometheus_access(prometheus_url, prometheus_token_file, prometheus_identity)
    urls = agent_urls(agent or ())
    user = (agent_username, agent_password_file)
    to_agents = _agent_access(urls, agent_ca_file, agent_server_name, user)
    settings = GatherSettings(namespace, prometheus_url, access, urls, to_agents)
    cluster = cluster_settings(kubeconfig, context)
    if pulse:
        if output in (ReportOutput.SARIF, ReportOutput.JUNIT):
            raise UsageError(f"--pulse: found --output {output.value}, expected text, json or yaml")
        wanted = PulseSettings(pulse_hpa, pulse_url, pulse_at_once, pulse_for)
        with looking():
            run_pulse(cluster, settings, wanted, Output(output.value))
        return
    with looking():
        report, checks = asyncio.run(_examine(cluster, settings))
    if output is ReportOutput.TEXT:
        for line in chain_lines(report):
            print(printable(line))
    fixed = _repaired(cluster, report, output, asks=not yes) if fix else []
    if output is ReportOutput.SARIF:
        print_document(chain_sarif_document(report, checks), Output.JSON)
    elif output is ReportOutput.JUNIT:
        print(chain_junit_text(report, Severity.WARNING, WallClock().now_ms()))
    elif output is not ReportOutput.TEXT:
        applied = [{"id": each.check.id, "about": each.where} for each in fixed]
        print_document({**chain_document(report), "fixed": applied}, Output(output.value))
    done = {each.fix.command for each in fixed}
    left = [each for each in report.findings if each.fix.command not in done]
    if any(each.check.severity is not Severity.NOTE for each in left):
        raise typer.Exit(1)


async def _examine(
    cluster: "KubeSettings", settings: "GatherSettings"
) -> "tuple[ChainReport, Mapping[str, Check]]":
    """Return what was found, and all checks that looked by id."""
    from gpuscale.base.clock import WallClock
    from gpuscale.base.findings import checks_by_id, with_plugins
    from gpuscale.kube.client import KubeClient, cluster_name
    from gpuscale.ops.doctor import ClusterJudge, Gatherer, diagnose
    from gpuscale.ops.doctor.checks import JUDGES
    from gpuscale.ops.lint.checks import CHECKS

    judges = with_plugins(JUDGES, ClusterJudge)
    with working(f"looking at cluster {cluster_name(cluster)}") as report:
        async with KubeClient(cluster) as client:
            snapshot = await Gatherer(client, WallClock(), settings, report).snapshot()
    return diagnose(snapshot, judges), {**CHECKS, **checks_by_id(judges)}


def _repaired(
    cluster: "KubeSettings", report: "ChainReport", output: ReportOutput, *, asks: bool
) -> "list[ClusterFinding]":
    """Return the findings whose fix was applied, each as soon as it was, as Ctrl-C may come next.

    Questions are asked outside the event loop, where Ctrl-C would not end the wait for an answer.
    """
    from gpuscale.kube.client import ApiStatusError
    from gpuscale.ops.doctor import repairable

    done = []
    for finding in repairable(report.findings):
        if asks and not _ask(finding):
            continue
        name = f"[{finding.check.id}] {finding.where}"
        try:
            asyncio.run(_repair(cluster, finding))
        except ApiStatusError as error:
            print(printable(f"gpuscale: not fixed: {name}: {error}"), file=sys.stderr)
            continue
        done.append(finding)
        if output is ReportOutput.TEXT:
            print(printable(f"fixed: {name}"), flush=True)
    return done


async def _repair(cluster: "KubeSettings", finding: "ClusterFinding") -> None:
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.doctor import repair

    async with KubeClient(cluster) as client:
        await repair(client, finding)


def _ask(finding: "ClusterFinding") -> bool:
    """Ask a user at the terminal for consent, even if the report goes to a file."""
    sys.stdout.flush()
    question = f"[{finding.check.id}] {finding.where}: {finding.fix.say}"
    print(printable(question), file=sys.stderr)
    print(printable(f"  {finding.fix.command}"), file=sys.stderr)
    return typer.confirm("Do it?", default=False, err=True)


def _agent_access(
    urls: Mapping[str, str],
    ca_file: Path | None,
    server_name: str | None,
    user: tuple[str | None, Path | None],
) -> "SourceAccess | None":
    """Return credentials and TLS for requests to agents that bypass the API server."""
    username, password_file = user
    given = {
        "--agent-ca-file": ca_file,
        "--agent-server-name": server_name,
        "--agent-username": username,
        "--agent-password-file": password_file,
    }
    found = [name for name, value in given.items() if value is not None]
    if not found:
        return None
    if not urls:
        raise UsageError(f"{found[0]}: expected --agent beside it")
    if (username is None) != (password_file is None):
        raise UsageError("--agent-username, --agent-password-file: expected both or none")
    from gpuscale.server.sources.http import SecretFile, SourceAccess, tls_to

    return SourceAccess(
        username=username,
        password=None if password_file is None else SecretFile(password_file),
        tls=tls_to("node agents", ca_file, None),
        server_name=server_name,
    )
