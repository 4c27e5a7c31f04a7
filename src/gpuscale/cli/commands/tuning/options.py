"""The options of `gpuscale tune`."""

from typing import Annotated

import typer

from gpuscale.lab.tuning import LIMITS, PROMISE

_DEMAND, _REPLAY, _SEARCH, _NODES = "Demand file", "Replay", "Search", "Nodes and money"

Deployments = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Deployment, where a scenario has several. May be given again: they are tuned together, and what"
        " their node pools cost is saved.",
        show_default="all that have an HPA",
    ),
]
Hpa = Annotated[
    str | None,
    typer.Option("--hpa", metavar="FILE", help="Manifest with the HPA, instead of the scenario's."),
]
MetricFull = Annotated[
    float | None,
    typer.Option(
        metavar="VALUE",
        help="What the HPA's metric says when pods are busy all the time.",
        show_default="100 or 1 for how busy GPUs are",
    ),
]
DemandFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.csv",
        help="Demand over time, instead of a scenario. May end in .gz.",
        rich_help_panel=_DEMAND,
    ),
]
TimeColumn = Annotated[
    str, typer.Option(metavar="NAME", help="Seconds, or dates.", rich_help_panel=_DEMAND)
]
Column = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Pods that are busy, or with --seconds-per-request requests per second.",
        show_default="demand, or rate",
        rich_help_panel=_DEMAND,
    ),
]
SecondsPerRequest = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="That one request takes of one pod.",
        rich_help_panel=_DEMAND,
    ),
]
StartUp = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="From the order of a pod until it serves.",
        show_default="the scenario's, with a new node",
        rich_help_panel=_REPLAY,
    ),
]
Lag = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Age of the metrics.",
        show_default="the scenario's, or 30s",
        rich_help_panel=_REPLAY,
    ),
]
Patience = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long clients wait.",
        show_default="60s",
        rich_help_panel=_REPLAY,
    ),
]
Promised = Annotated[
    list[str] | None,
    typer.Option(
        "--promise",
        metavar="wait=5s:99.5%|...",
        help="To users: how many requests wait how long (wait=5s:99.5%) or are answered within what"
        " (latency=2s:95%), how many are given up (errors=0.1%), or how often demand exceeds the ready pods"
        " (short=0.5%). May be given again; all are kept.",
        show_default=PROMISE,
        rich_help_panel=_SEARCH,
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Compared with the HPA: hpa-demand, kpa, ...; none for the HPA alone. May be given again.",
        show_default="all",
        rich_help_panel=_SEARCH,
    ),
]
Tries = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Settings tried in breadth, of each policy.",
        min=LIMITS["tries"].lowest,
        max=LIMITS["tries"].highest,
        rich_help_panel=_SEARCH,
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A setting that stays as it is, such as tolerance. May be given again.",
        rich_help_panel=_SEARCH,
    ),
]
HeldBack = Annotated[
    float,
    typer.Option(
        metavar="PERCENT",
        help="Of the days, at the end, that are scored and not searched.",
        min=LIMITS["held_back_percent"].lowest,
        max=LIMITS["held_back_percent"].highest,
        rich_help_panel=_SEARCH,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Of the days that are drawn.",
        min=LIMITS["seed"].lowest,
        rich_help_panel=_SEARCH,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Threads.",
        min=LIMITS["workers"].lowest,
        max=LIMITS["workers"].highest,
        show_default="one per core",
        rich_help_panel=_SEARCH,
    ),
]
GpusPerReplica = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1024, rich_help_panel=_NODES)
]
GpusPerNode = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1024, rich_help_panel=_NODES)
]
PricePerHour = Annotated[
    float | None,
    typer.Option(
        metavar="PRICE",
        help="Of a node.",
        min=LIMITS["price_per_hour"].lowest,
        max=LIMITS["price_per_hour"].highest,
        rich_help_panel=_NODES,
    ),
]
Currency = Annotated[
    str | None, typer.Option(metavar="CODE", help="Of the price.", rich_help_panel=_NODES)
]
Write = Annotated[
    str | None,
    typer.Option(
        metavar="HPA.yaml",
        help="Write the tuned HPA: into a manifest that is there, with its comments, or as a new one. Where"
        " nothing is gained on the days that were held back, nothing is written, and the exit code is 1.",
    ),
]
WriteScenario = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write the scenario with the tuned node pool; --write then writes the HPA that goes with it.",
    ),
]
NodePoolToo = Annotated[
    bool,
    typer.Option(
        "--nodes/--no-nodes",
        help="Search the node pool of a scenario too, where no other workload uses it.",
        rich_help_panel=_SEARCH,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Change a file that is there.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ADDRESS",
        help="Search on your Dask or Ray cluster: dask://HOST:PORT or ray://HOST:PORT.",
        show_default="this machine",
        rich_help_panel=_SEARCH,
    ),
]
StateFile = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="Keep what was tried. A search that was stopped goes on there.",
        rich_help_panel=_SEARCH,
    ),
]
OutputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--output-file",
        metavar="FILE",
        help="Write the answer to a file: .json its document, .html a page. May be given again.",
    ),
]
