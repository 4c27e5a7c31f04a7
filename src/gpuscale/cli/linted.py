"""What `gpuscale lint` reads besides rules and manifests: what values render, and the files of scenarios."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import walk
from pathlib import Path as FilePath
from typing import Any

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.documents.models import API_VERSION
from gpuscale.base.errors import ConfigError, NotFoundError, Problem
from gpuscale.base.findings import Check, checks_by_id, with_plugins
from gpuscale.base.text_files import STDIN, read_text, shown_name
from gpuscale.hpa.cluster.catalogue import parse_instance_types
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.ops.lint import (
    REFUSED_SCENARIO,
    REFUSED_VALUES,
    Cluster,
    FileJudge,
    LintReport,
    is_block,
    lint,
    refused,
    together,
    without_ignored,
)
from gpuscale.ops.lint.checks import JUDGES

Text = tuple[str, str]
"""Name and content of a file."""
_GROUP = API_VERSION.partition("/")[0]
_MAYBE_OURS = re.compile(
    rf"{re.escape(_GROUP)}|\b(Values|Scenario)\b|\A(?!.*^[\"']?kind)", re.MULTILINE | re.DOTALL
)
"""What a text has that may be a values file or a scenario: our group or kinds, or no kind at all."""
_ENDINGS = (".yaml", ".yml", ".json")
"""Of the files that are read of a folder."""
_CHART_RULES = "rules: {default: true}\n"
"""What a scenario without rules is run with: the default ones of prometheus-adapter's chart."""
_KEEPS_LABELS = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PodMonitor",
    "spec": {"podMetricsEndpoints": [{"honorLabels": True}]},
}
"""How a scenario's `honorLabels` is said in an object."""
_EMPTY = LintReport((), (), files=0, rules=0, autoscalers=0)


@dataclass(frozen=True, slots=True)
class Linted:
    """What lint found in files, and what it looked at."""

    report: LintReport
    texts: Mapping[str, str]
    """Of the files by name, those that scenarios name included."""
    checks: Mapping[str, Check]
    """All by id."""
    skipped: tuple[Problem, ...]
    """Why files were passed over."""


def linted(
    names: Sequence[str],
    kubernetes: KubernetesVersion | None = None,
    instance_types: str | None = None,
    cluster: Cluster | None = None,
    *,
    skips_unknown: bool = False,
) -> Linted:
    """Return what lint finds in files, but for what comments in them ignore.

    A values file's rules count for manifests beside it. Several values files, and scenarios, are looked at
    one by one.

    Args:
        names: of files, and of folders with manifests at any depth; - is standard input. What lint can't read
            of a folder's is passed over.
        kubernetes: release of the cluster that they are for; None where nobody said.
        instance_types: name of a file of instance types, which go before the built-in ones.
        skips_unknown: whether files that lint can't read are passed over, all of them if need be.
        cluster: what is there already, over which the files are laid; None where nobody looked.

    Raises:
        ConfigError: with every file that can't be opened, or is no text.
    """
    more = None if instance_types is None else (read_text(instance_types), instance_types)
    texts: list[Text] = []
    problems: list[Problem] = []
    skipped: list[Problem] = []
    may_skip: set[str] = set()
    for name in dict.fromkeys(names):
        inside = (
            tuple(_manifests_in(name, skipped))
            if name != STDIN and FilePath(name).is_dir()
            else None
        )
        for each in (name,) if inside is None else inside:
            try:
                texts.append((shown_name(each), read_text(each)))
            except ConfigError as error:
                (problems if inside is None else skipped).extend(error.problems)
            if inside is not None or skips_unknown:
                may_skip.add(shown_name(each))
    if problems:
        raise ConfigError(*problems)
    judges = with_plugins(JUDGES, FileJudge)
    if cluster is not None and kubernetes is None:
        kubernetes = cluster.kubernetes
    report, read = _of_texts(texts, judges, kubernetes, more, cluster, may_skip)
    checks = checks_by_id(judges)
    skipped += report.skipped
    return Linted(without_ignored(report, read, checks), read, checks, tuple(skipped))


def _manifests_in(folder: str, skipped: list[Problem]) -> Iterator[str]:
    """Yield the YAML and JSON files below a folder, but for hidden ones and charts' templates.

    Args:
        folder: to search; links to other folders are not followed.
        skipped: gets why folders are passed over.
    """
    for place, folders, files in walk(folder):
        if "Chart.yaml" in files and "templates" in folders:
            folders.remove("templates")
            source = str(FilePath(place, "templates"))
            expected = "manifests: render the chart first, with helm template"
            skipped.append(Problem(source, None, None, "templates of a Helm chart", expected))
        folders[:] = sorted(
            each for each in folders if not each.startswith(".") and each != "node_modules"
        )
        for name in sorted(files):
            if name.endswith(_ENDINGS) and not name.startswith("."):
                yield str(FilePath(place, name))


def _of_texts(
    texts: Sequence[Text],
    judges: Sequence[FileJudge],
    kubernetes: KubernetesVersion | None,
    instance_types: tuple[str, str] | None,
    cluster: Cluster | None,
    may_skip: Collection[str],
) -> tuple[LintReport, Mapping[str, str]]:
    """Return what lint finds in texts of all kinds, and all that it read."""
    types = None if instance_types is None else parse_instance_types(*instance_types)
    kinds = {name: _kind(name, text) for name, text in texts}
    plain = [each for each in texts if kinds[each[0]] is None]
    values = [each for each in texts if kinds[each[0]] == "Values"]
    scenarios = [each for each in texts if kinds[each[0]] == "Scenario"]
    alone = len(values) == 1
    reports = [
        _of_values(
            each,
            plain if alone else (),
            judges,
            kubernetes,
            cluster if alone else None,
            may_skip,
        )
        for each in values
    ]
    if not alone and (plain or cluster is not None):
        reports.append(
            lint(
                plain,
                judges=judges,
                kubernetes=kubernetes,
                instance_types=types,
                cluster=cluster,
                may_skip=may_skip,
            )
        )
    read = dict(texts)
    for each in scenarios:
        report, named = _of_scenario(each, judges, kubernetes, instance_types)
        reports.append(report)
        read = {**read, **{name: text for name, text in named if name not in read}}
    return together(reports, [name for name, _ in texts]), read


def _kind(name: str, text: str) -> str | None:
    """Return `Values` or `Scenario` for a file with a document of ours; None for what lint itself reads."""
    if not _MAYBE_OURS.search(text):
        return None
    try:
        documents = load_documents(text, name)
    except ConfigError:
        return None  # Lint reports it, with the faults of other files.
    return next(filter(None, map(_kind_of, documents)), None)


def _kind_of(document: Document) -> str | None:
    data = document.data
    if not isinstance(data, dict) or "rules" in data:
        return None
    if str(data.get("apiVersion", _GROUP)).partition("/")[0] != _GROUP:
        return None
    kind = data.get("kind", "Values" if "spec" in data else None)
    return kind if kind in {"Values", "Scenario"} else None


# Values files


def _of_values(
    given: Text,
    beside: Sequence[Text],
    judges: Sequence[FileJudge],
    kubernetes: KubernetesVersion | None,
    cluster: Cluster | None,
    may_skip: Collection[str],
) -> LintReport:
    from gpuscale.cli.values_files import with_job_files
    from gpuscale.ops.install import lint_values, parse_values

    name, text = given
    try:
        values = with_job_files(parse_values(text, name), name)
    except ConfigError as error:
        refusals = [refused(REFUSED_VALUES, each, "render refuses it") for each in error.problems]
        alone = _EMPTY
        if beside or cluster is not None:
            alone = lint(
                beside,
                judges=judges,
                kubernetes=kubernetes,
                cluster=cluster,
                may_skip=may_skip,
            )
        return together(
            [replace(_EMPTY, findings=tuple(refusals), values=1, files=1), alone], [name]
        )
    return lint_values(values, text, name, beside, judges, kubernetes, cluster, may_skip)


# Scenarios


def _of_scenario(
    given: Text,
    judges: Sequence[FileJudge],
    kubernetes: KubernetesVersion | None,
    instance_types: tuple[str, str] | None,
) -> tuple[LintReport, Sequence[Text]]:
    """Return what lint finds in a scenario and the files that it names, and the texts of these."""
    from gpuscale.lab import load_policy, read_beside
    from gpuscale.lab.sim.scenario import load_setup

    name, text = given
    folder = FilePath() if name == shown_name(STDIN) else FilePath(name).parent
    faults: tuple[Problem, ...] = ()
    try:
        load_setup(
            text,
            name,
            lambda file: read_beside(folder, file),
            load_policy,
            instance_types=instance_types,
        )
    except ConfigError as error:
        faults = error.problems
    # Lint reports the faults of the files that it names, with all others.
    own = [each for each in faults if each.source == name]
    refusals = [refused(REFUSED_SCENARIO, each, "simulate refuses it") for each in own]
    refusal = replace(_EMPTY, findings=tuple(refusals), scenarios=1)
    document = load_documents(text, name)[0]
    spec = document.data.get("spec") if isinstance(document.data, dict) else None
    texts: list[Text] = [given]  # for its pools
    objects = []
    if isinstance(spec, dict):
        texts += _named_texts(spec, document, given, folder)
        pipeline = spec.get("pipeline")
        if isinstance(pipeline, dict) and pipeline.get("honorLabels") is True:
            objects.append(_KEEPS_LABELS)
    types = None if instance_types is None else parse_instance_types(*instance_types)
    inside = lint(texts, objects, judges, kubernetes, types)
    return together([refusal, inside], [each for each, _ in texts]), texts


def _named_texts(
    spec: Mapping[str, Any], document: Document, given: Text, folder: FilePath
) -> Iterator[Text]:
    """Return the manifests and rules that a scenario names, as far as they can be read."""
    manifests = spec.get("manifests")
    listed = manifests if isinstance(manifests, list) else []
    refs: list[tuple[Path, object]] = [
        (("manifests", index), each) for index, each in enumerate(listed)
    ]
    refs += [
        ((key,), spec[key]) for key in ("rules", "recordingRules", "triggers") if spec.get(key)
    ]
    for path, ref in refs:
        yield from _text_of(ref, ("spec", *path), given, document, folder)
    if not spec.get("rules"):
        yield "prometheus-adapter's chart", _CHART_RULES


def _text_of(
    ref: object, path: Path, given: Text, document: Document, folder: FilePath
) -> Iterator[Text]:
    from gpuscale.lab import read_beside

    match ref:
        case {"file": str() as file}:
            shown = file if file.startswith("shipped:") else str(folder / file)
            try:
                yield shown, read_beside(folder, file)
            except NotFoundError:
                return  # load_setup has reported it.
        case {"inline": str() as inline}:
            name, text = given
            line = document.line((*path, "inline")) or 0
            yield name, "\n" * line + inline if is_block(text, line, inline) else inline
