"""All checks of lint, run in the order of the files."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpuscale.hpa.cluster.catalogue import ListedType
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.ops.lint.checks import JUDGES
from gpuscale.ops.lint.cluster import Cluster
from gpuscale.ops.lint.findings import LintFinding, LintReport
from gpuscale.ops.lint.inputs import FileJudge, read_inputs
from gpuscale.ops.lint.problems import without_placeholders


def lint(
    texts: Sequence[tuple[str, str]],
    objects: Sequence[Mapping[str, object]] = (),
    judges: Sequence[FileJudge] = JUDGES,
    kubernetes: KubernetesVersion | None = None,
    instance_types: Mapping[str, ListedType] | None = None,
    cluster: Cluster | None = None,
    may_skip: Collection[str] = (),
) -> LintReport:
    """Return the findings about files and objects, which are also checked against each other.

    Args:
        texts: file name and text of each: rule files in any form, and manifests.
        objects: Kubernetes objects that no file holds, such as rendered ones. The place of a finding
            in one names it instead of a file: `HorizontalPodAutoscaler prod/bert`.
        judges: what looks at them.
        kubernetes: release of the cluster that they are for; None where it is not known.
        instance_types: by name; None for the built-in ones.
        cluster: what is there already, over which the files are laid; None where nobody looked.
        may_skip: names of files that are passed over where they are broken. The others' faults are findings.
    """
    inputs = read_inputs(texts, objects, kubernetes, instance_types, cluster, may_skip)
    found = [without_placeholders(each) for judge in judges for each in judge.judge(inputs)]
    return LintReport(
        findings=in_order(found, [source for source, _ in texts]),
        passed_over=tuple(inputs.passed_over),
        files=len({source for source, _ in texts} - {each.source for each in inputs.skipped}),
        rules=len(inputs.rules) + len(inputs.external_rules) if inputs.rule_files else 0,
        autoscalers=len(inputs.hpas) + inputs.refused["HorizontalPodAutoscaler"],
        scaled_objects=len(inputs.scaled_objects) + inputs.refused["ScaledObject"],
        triggers=len(inputs.triggers),
        values=inputs.values,
        node_objects=inputs.nodes.count,
        workloads=inputs.nodes.workloads,
        prometheus_rules=len(inputs.prometheus_rules),
        skipped=tuple(inputs.skipped),
        unseen=tuple(inputs.unseen),
    )


def together(reports: Sequence[LintReport], sources: Sequence[str]) -> LintReport:
    """Return several reports merged.

    Args:
        reports: each of other files.
        sources: names of the files, in the order in which findings are wanted.
    """
    return LintReport(
        findings=in_order((each for report in reports for each in report.findings), sources),
        passed_over=tuple(each for report in reports for each in report.passed_over),
        files=sum(each.files for each in reports),
        rules=sum(each.rules for each in reports),
        autoscalers=sum(each.autoscalers for each in reports),
        scaled_objects=sum(each.scaled_objects for each in reports),
        triggers=sum(each.triggers for each in reports),
        values=sum(each.values for each in reports),
        scenarios=sum(each.scenarios for each in reports),
        node_objects=sum(each.node_objects for each in reports),
        workloads=sum(each.workloads for each in reports),
        prometheus_rules=sum(each.prometheus_rules for each in reports),
        skipped=tuple(each for report in reports for each in report.skipped),
        unseen=tuple(each for report in reports for each in report.unseen),
    )


def in_order(findings: Iterable[LintFinding], sources: Sequence[str]) -> tuple[LintFinding, ...]:
    """Return findings, each once, in the order of the files and their lines."""
    order = {source: position for position, source in enumerate(sources)}

    def place(finding: LintFinding) -> tuple[int, int]:
        return order.get(finding.where.file, len(order)), finding.where.line or 0

    return tuple(sorted(dict.fromkeys(findings), key=place))
