"""The results of `gpuscale calibrate`: files, document, exit code."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from gpuscale.base.errors import ConfigError
from gpuscale.cli.commands.calibration.running import CalibrationRun, say
from gpuscale.cli.exits import NO
from gpuscale.cli.files import write_files
from gpuscale.cli.texts import Output, print_document

if TYPE_CHECKING:
    from gpuscale.load.calibrate import LoadStep, ScaleOutCourse
    from gpuscale.load.calibrate.measuring import SignalCandidate


@dataclass(frozen=True, slots=True)
class Files:
    """Files to write; None for those that are not wanted."""

    hpa: str | None
    scaled_object: str | None
    scenario: str | None
    page: str | None
    result: str | None

    @property
    def named(self) -> dict[str, str]:
        """Return the wanted files, by option."""
        names = {
            "--hpa": self.hpa,
            "--scaled-object": self.scaled_object,
            "--scenario": self.scenario,
            "--html": self.page,
            "--output-file": self.result,
        }
        return {option: each for option, each in names.items() if each is not None}


@dataclass(frozen=True, slots=True)
class CalibratedWorkload:
    """The workload that the files are about."""

    name: str
    namespace: str
    max_replicas: int
    metric: str | None
    prometheus: str | None
    startup_s: float
    step: float


def finish(
    url: str,
    found: CalibrationRun,
    place: CalibratedWorkload,
    files: Files,
    signals: "tuple[SignalCandidate, ...]",
    headroom: float,
    output: Output,
    *,
    checks: bool,
) -> None:
    """Write the files, print the result, and end with the exit code that it has.

    Args:
        url: what was calibrated.
        found: all that was found.
        place: what the files are about.
        files: which of them to write.
        signals: the candidates.
        headroom: share of the signal that the target leaves free.
        output: what is printed.
        checks: whether an answer without a check is none.

    Raises:
        ConfigError: lint has something against a manifest; nothing is written then.
        typer.Exit: there is no limit, the check was not made or does not agree, or a file has no value.
    """
    from gpuscale.load.calibrate import report

    measured, analysis, check, doubts = found
    if isinstance(check, str):
        is_off = checks
        texts, step = ({}, None) if is_off else _texts(found, place, files, signals, headroom)
    else:
        is_off = check.difference is None or abs(check.difference) > report.WITHIN
        texts, step = _texts(found, place, files, signals, headroom)
    checked = (
        check if isinstance(check, str) else (check.level, check.predicted_ms, check.measured_ms)
    )
    document = report.document(url, measured, analysis, checked, step)
    document["notes"] = [*doubts, *document["notes"]]
    if files.page is not None:
        from gpuscale.load.calibrate import render_page

        texts[files.page] = render_page(document)
    if files.result is not None:
        texts[files.result] = json.dumps(document) + "\n"
    write_files(texts)
    if output is Output.TEXT:
        print(report.text(document))
    else:
        print_document(document, output)
    wanted = [each for each in (files.hpa, files.scaled_object, files.scenario) if each is not None]
    if missing := [each for each in wanted if each not in texts]:
        say(f"not written, as there is no value for it that was checked: {', '.join(missing)}")
    if analysis.limit is None or not measured.end.is_whole or is_off or missing:
        raise typer.Exit(NO)


def _texts(
    found: CalibrationRun,
    place: CalibratedWorkload,
    files: Files,
    signals: "tuple[SignalCandidate, ...]",
    headroom: float,
) -> "tuple[dict[str, str], tuple[LoadStep, ScaleOutCourse] | None]":
    """Return the files for which there is a value, and the predicted scale-out."""
    from gpuscale.load.calibrate import LoadStep, predict_step, writing

    measured, analysis, _, _ = found
    texts: dict[str, str] = {}
    limit, curve, best = analysis.limit, analysis.curve, analysis.best
    if (
        limit is None
        or curve is None
        or best is None
        or best.target is None
        or not measured.end.is_whole
    ):
        return texts, None
    workload = writing.ScaledWorkload(place.name, place.namespace, max_replicas=place.max_replicas)
    rate = analysis.target_rate or limit.low
    rates = (rate, rate * place.step)
    if files.scenario is not None:
        text = writing.scenario_text(
            workload,
            writing.service_model(curve.fit.queue, measured.baseline.mean_ms),
            rates,
            100 * rate / curve.fit.queue.capacity,
            place.startup_s,
        )
        texts[files.scenario] = text
    queries = {each.name: each.query for each in signals}
    metric = place.metric or (best.name if best.name in queries else "calibrated")
    target = writing.ChosenSignal(
        metric, best, best.target, headroom, queries.get(best.name, ""), place.prometheus or ""
    )
    hpa = writing.hpa_text(workload, target, measured.objective, limit)
    if best.name in queries:
        if files.hpa is not None:
            texts[files.hpa] = _linted(hpa, files.hpa)
        if files.scaled_object is not None:
            text = writing.scaled_object_text(workload, target, measured.objective, limit)
            texts[files.scaled_object] = _linted(text, files.scaled_object)
    step = LoadStep(*rates, place.startup_s)
    out = predict_step(
        curve, measured.objective, limit.rate, rate, best.points, writing.hpa_of(hpa), step
    )
    return texts, (step, out)


def _linted(text: str, name: str) -> str:
    """Return a manifest after checking that lint has no errors for it.

    Raises:
        ConfigError: it has; nothing is written then.
    """
    from gpuscale.ops.lint import lint, problems_of_errors

    if problems := problems_of_errors(lint([(name, text)])):
        raise ConfigError(*problems)
    return text
