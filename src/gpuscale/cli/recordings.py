"""A real workload's past as a scenario: options of `gpuscale simulate`, what is asked, read and kept."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.base.errors import ConfigError, NotFoundError, Problem, UnavailableError, UsageError
from gpuscale.base.text_files import read_text
from gpuscale.base.words import counted
from gpuscale.cli.files import write_files
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.prometheus import end_of_range_ms, recorded_by
from gpuscale.cli.progress import working
from gpuscale.lab import load_policy, read_beside

if TYPE_CHECKING:
    from gpuscale.lab.sim.history import (
        Column,
        Demand,
        DeploymentQueries,
        Recording,
        RecordingFacts,
    )
    from gpuscale.lab.sim.scenario import Setup
    from gpuscale.series import Value
    from gpuscale.server.sources.prometheus import PrometheusSource

PANEL = "What really happened"
_STEP_S = 15.0

FromPrometheus = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Replay what this Prometheus recorded of --workload, with the settings that really ran.",
        rich_help_panel=PANEL,
    ),
]
FromFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Replay a recording in a file: .csv or .jsonl, also with .gz, or .parquet. Needs --workload and "
        "--manifests.",
        rich_help_panel=PANEL,
    ),
]
WorkloadName = Annotated[
    str | None,
    typer.Option(
        "--workload", metavar="NAMESPACE/NAME", help="The Deployment.", rich_help_panel=PANEL
    ),
]
Range = Annotated[
    str,
    typer.Option("--range", metavar="DURATION", help="How far back.", rich_help_panel=PANEL),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End of the range: a date and time, or seconds since the epoch.",
        show_default="now",
        rich_help_panel=PANEL,
    ),
]
Step = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Between two moments; as the scrape interval.",
        rich_help_panel=PANEL,
    ),
]
DemandQuery = Annotated[
    str | None,
    typer.Option(
        metavar="PROMQL",
        help="The workload's requests per second. Without it demand is estimated from utilisation.",
        rich_help_panel=PANEL,
    ),
]
UtilizationQuery = Annotated[
    str | None,
    typer.Option(
        metavar="PROMQL",
        help="How busy the workload's GPUs are: a series per GPU, in percent.",
        show_default="DCGM_FI_DEV_GPU_UTIL of its pods",
        rich_help_panel=PANEL,
    ),
]
Manifests = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="The Deployment and its HPA or ScaledObject. May be given again.",
        show_default="what kube-state-metrics says of them",
        rich_help_panel=PANEL,
    ),
]
AdapterRules = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="prometheus-adapter's rule file, where the HPA's metrics come from.",
        show_default="the chart's default rules",
        rich_help_panel=PANEL,
    ),
]
SaveScenario = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the scenario, the demand and the recording as files that anyone can run again.",
        rich_help_panel=PANEL,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-token-file",
        metavar="FILE",
        help="Bearer token for it.",
        rich_help_panel=PANEL,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-ca-file",
        metavar="FILE",
        help="CAs that its certificate is checked against.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the options ask for."""

    url: str | None
    file: str | None
    workload: str | None
    range_text: str
    until: str | None
    step_text: str
    demand_query: str | None
    utilization_query: str | None
    manifests: tuple[str, ...]
    rules: str | None
    folder: Path | None
    token_file: Path | None
    ca_file: Path | None

    def check(self, scenario: str | None) -> bool:
        """Return whether a recording is to be replayed.

        Raises:
            UsageError: options that don't go together.
        """
        given = [name for name, value in self._only_here() if value]
        if self.url is None and self.file is None:
            if given:
                raise UsageError(f"found {given[0]} without --from-prometheus or --from-file")
            return False
        if self.url is not None and self.file is not None:
            raise UsageError("found --from-prometheus and --from-file, expected one of them")
        if scenario is not None:
            raise UsageError(
                f"found the scenario {scenario!r} beside a recording, expected one of them"
            )
        if self.file is not None and not self.manifests:
            raise UsageError(
                "found --from-file without --manifests: a table has no Deployment and no HPA"
            )
        if self.folder is not None:
            _check_folder(self.folder)
        self.key  # noqa: B018 - checked before anything is asked
        return True

    def _only_here(self) -> tuple[tuple[str, object], ...]:
        return (
            ("--workload", self.workload),
            ("--until", self.until),
            ("--demand-query", self.demand_query),
            ("--utilization-query", self.utilization_query),
            ("--manifests", self.manifests),
            ("--rules", self.rules),
            ("--save-scenario", self.folder),
            ("--prometheus-token-file", self.token_file),
            ("--prometheus-ca-file", self.ca_file),
        )

    @property
    def source(self) -> str:
        """Return where the recording is from, for messages."""
        return str(self.url or self.file)

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name of the workload."""
        if not self.workload:
            raise UsageError("found no --workload, expected one such as --workload default/chat")
        namespace, slash, name = self.workload.rpartition("/")
        if not name or "/" in namespace or (slash and not namespace):
            raise UsageError(f"--workload: found {self.workload!r}, expected NAMESPACE/NAME")
        return namespace or "default", name


def _check_folder(folder: Path) -> None:
    """Raise UsageError where a scenario can't be kept, or would replace one that somebody may have edited."""
    from gpuscale.lab.sim.history import SCENARIO

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--save-scenario: found the file {folder}, expected a folder")
    if (folder / SCENARIO).exists():
        raise UsageError(
            f"--save-scenario: found {folder / SCENARIO}, expected a folder without one: name another "
            "folder, or remove the file"
        )


class Replay:
    """A recording and the scenario made of it.

    Args:
        recorded: the options, checked.
        settings: fields of the scenario to set, each as `spec.duration=10m`; not kept in its files.
        is_plain: take `plain_rules` where the options name no rules.

    Raises:
        ConfigError, UsageError: files or options that can't be used, or too little was recorded.
        UnavailableError, UpstreamError, QueryError: Prometheus doesn't answer, or not with what is needed.
    """

    def __init__(
        self, recorded: Recorded, settings: Sequence[str] = (), *, is_plain: bool = False
    ) -> None:
        from gpuscale.lab.sim.history import demand_of, files, hpa_history, plain_rules, trimmed

        self._recorded = recorded
        self._settings = settings
        rules = None if recorded.rules is None else read_text(recorded.rules)
        texts = {name: read_text(name) for name in recorded.manifests}
        whole, facts, objects = (
            _from_file(recorded, texts) if recorded.file else _asked(recorded, texts)
        )
        if is_plain and rules is None:
            rules = plain_rules(objects)
        self.recording: Recording = trimmed(whole)
        self._history = hpa_history(self.recording, objects)
        self.facts: RecordingFacts = replace(facts, notes=(*facts.notes, *self._history.notes))
        self.demand: Demand = demand_of(self.recording, self.facts.gpus_per_pod)
        self._files = files(
            self.recording,
            self.demand,
            self.facts,
            recorded.key,
            objects,
            rules,
            self._history,
        )
        self.setup: Setup = self._loaded(settings)

    def _loaded(self, settings: Sequence[str]) -> "Setup":
        from gpuscale.lab.sim.history import SCENARIO
        from gpuscale.lab.sim.scenario import load_setup

        return load_setup(self._files[SCENARIO], SCENARIO, self._read, load_policy, settings)

    @property
    def hpa_changes(self) -> Sequence[Mapping[str, Any]]:
        """Return the changes of the HPA that are replayed."""
        return self._history.changes

    def replicas(self, hpa_changes: Sequence[Mapping[str, Any]]) -> "Column":
        """Return the replicas of a run at the recording's steps, with an HPA that changes so instead."""
        from gpuscale.lab.sim import simulate
        from gpuscale.lab.sim.history import replicas_of

        own = f"spec.hpaChanges={json.dumps([dict(each) for each in hpa_changes])}"
        run = simulate(self._loaded([*self._settings, own]))
        return replicas_of(run, self.recording, self._recorded.key[1])

    def _read(self, name: str) -> str:
        if name not in self._files:
            raise NotFoundError(f"no such file: {name}")
        return self._files[name]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was assumed instead of seen."""
        return self.facts.notes

    def save(self) -> None:
        """Write the files, where they are to be kept.

        Raises:
            UnavailableError: the folder can't be written.
        """
        folder = self._recorded.folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"can't make {folder}: {error.strerror or error}") from None
        write_files({str(folder / name): text for name, text in self._files.items()})

    def compared(self, run: dict[str, object]) -> dict[str, object]:
        """Return a run's document with the comparison in it, as `replay`."""
        from gpuscale.lab.sim.history import compared

        name = self._recorded.key[1]
        # `--set` may have removed them.
        changes = self._history.changes if self.setup.hpa_changes else ()
        found = compared(
            run, self.recording, self.demand, self.facts, name, self._settings, changes
        )
        return {**run, "replay": found}


def _from_file(
    recorded: Recorded, texts: Mapping[str, str]
) -> "tuple[Recording, RecordingFacts, list[dict[str, Any]]]":
    from gpuscale.lab.sim.history import facts_of, objects_of, read_recording, recording_of

    objects = objects_of(texts, recorded.key)
    name = str(recorded.file)
    if name.endswith(".parquet"):
        from gpuscale.cli.parquet import read_rows

        found = recording_of(read_rows(Path(name).expanduser(), name), name)
    else:
        try:
            text = read_beside(Path(), name)
        except NotFoundError as error:
            raise ConfigError(Problem(name, None, None, None, str(error))) from None
        found = read_recording(text, name)
    return found, facts_of({}, _gpus_per_pod(objects), found.stated), objects


def _asked(
    recorded: Recorded, texts: Mapping[str, str]
) -> "tuple[Recording, RecordingFacts, list[dict[str, Any]]]":
    from gpuscale.lab.sim.history import (
        MAX_STEPS,
        DeploymentQueries,
        facts_of,
        from_answers,
        manifests_of,
        objects_of,
    )

    objects = objects_of(texts, recorded.key) if texts else None
    questions = DeploymentQueries(*recorded.key, recorded.demand_query, recorded.utilization_query)
    range_s, step_s = (
        seconds_of("--range", recorded.range_text),
        seconds_of("--step", recorded.step_text),
    )
    step_ms, steps = round(step_s * 1000), math.ceil(range_s / step_s)
    if steps > MAX_STEPS or steps < 2:
        found = (
            f"--range {recorded.range_text} in steps of {recorded.step_text}: found {steps} steps"
        )
        raise UsageError(f"{found}, expected 2 to {MAX_STEPS}; --step sets their length")
    end_ms = end_of_range_ms(recorded.until)
    start_ms = end_ms - steps * step_ms
    with working("asking Prometheus") as show:
        columns, answers = asyncio.run(
            _answers(
                recorded_by(
                    "--from-prometheus", str(recorded.url), recorded.token_file, recorded.ca_file
                ),
                questions,
                start_ms,
                step_ms,
                steps,
                lambda done: show(f"asking Prometheus: {done:.0%}"),
            )
        )
    facts = facts_of(answers, None if objects is None else _gpus_per_pod(objects))
    if objects is None:
        objects = manifests_of(questions, answers, facts)
    columns.setdefault("rate", (None,) * steps)
    if left_out := round(sum(each or 0 for each in columns["impossible"])):
        said = f"no value for {counted(left_out, 'reading')} of GPUs: what was recorded is no percentage"
        facts = replace(facts, notes=(*facts.notes, said))
    return from_answers(columns, start_ms, step_ms, facts.gpus_per_pod), facts, objects


async def _answers(
    source: "PrometheusSource",
    questions: "DeploymentQueries",
    start_ms: int,
    step_ms: int,
    steps: int,
    progress: Callable[[float], None],
) -> "tuple[dict[str, tuple[float | None, ...]], dict[str, Value]]":
    from gpuscale.server.sources.prometheus import columns, persistently

    async with source:
        range_s, end_ms = steps * step_ms // 1000, start_ms + (steps - 1) * step_ms

        async def at_end(queries: Mapping[str, str]) -> "dict[str, Value]":
            return {
                name: await persistently(source.query, promql, end_ms)
                for name, promql in queries.items()
            }

        questions = questions.owned_by(await at_end(questions.owners(range_s)))
        answers = await at_end(questions.facts(range_s))
        queries = {**questions.columns, **questions.of_hpa(answers)}
        return await columns(source, queries, start_ms, step_ms, steps, progress), answers


def _gpus_per_pod(objects: list[dict[str, Any]]) -> int:
    """Return the GPUs of a pod of the one Deployment.

    Raises:
        ConfigError: it is none that Kubernetes would take.
        UsageError: its pods have no GPU.
    """
    from gpuscale.base.documents.documents import dump_documents
    from gpuscale.base.objects.manifests import load_manifests
    from gpuscale.base.objects.workloads import Deployment
    from gpuscale.hpa.cluster.scheduling import gpu_count

    read = load_manifests(dump_documents(objects), "--manifests")
    gpus = sum(gpu_count(each.template.spec) for each in read if isinstance(each, Deployment))
    if gpus == 0:
        raise UsageError(
            "--manifests: found a Deployment whose pods ask for no GPU, expected resources.limits"
        )
    return gpus
