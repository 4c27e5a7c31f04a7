"""Everything that is looked for, in the order of the files."""

from collections.abc import Mapping, Sequence

from gpuscale.lint.findings import Finding, Report
from gpuscale.lint.hpa_checks import hpa_findings
from gpuscale.lint.inputs import read_inputs
from gpuscale.lint.pair_checks import pair_findings
from gpuscale.lint.rule_checks import rule_findings, unused_sum_findings
from gpuscale.lint.scaled_objects import scaled_object_findings


def lint(texts: Sequence[tuple[str, str]], objects: Sequence[Mapping[str, object]] = ()) -> Report:
    """Return what is found in files and objects, which are held against each other.

    Args:
        texts: file name and text of each: rule files in any form, and manifests.
        objects: Kubernetes objects that no file holds, such as rendered ones. The place of a finding
            in one names it instead of a file: `HorizontalPodAutoscaler prod/bert`.

    Raises:
        ConfigError: a file is neither, or no YAML; with every such fault.
    """
    inputs = read_inputs(texts, objects)
    pairs, used = pair_findings(inputs)
    found = [
        *inputs.findings,
        *rule_findings(inputs),
        *unused_sum_findings(inputs, used),
        *hpa_findings(inputs),
        *scaled_object_findings(inputs),
        *pairs,
    ]
    order = {source: position for position, (source, _) in enumerate(texts)}

    def place(finding: Finding) -> tuple[int, int]:
        return order.get(finding.place.file, len(order)), finding.place.line or 0

    return Report(
        findings=tuple(sorted(dict.fromkeys(found), key=place)),
        passed_over=tuple(inputs.passed_over),
        files=len(texts),
        rules=len(inputs.rules) + len(inputs.external_rules) if inputs.rule_files else 0,
        autoscalers=len(inputs.hpas) + inputs.refused["HorizontalPodAutoscaler"],
        scaled_objects=len(inputs.scaled_objects) + inputs.refused["ScaledObject"],
    )


def together(reports: Sequence[Report], sources: Sequence[str]) -> Report:
    """Return several reports as one.

    Args:
        reports: each of other files.
        sources: names of the files, in the order in which findings are wanted.
    """
    order = {source: position for position, source in enumerate(sources)}

    def place(finding: Finding) -> tuple[int, int]:
        return order.get(finding.place.file, len(order)), finding.place.line or 0

    found = dict.fromkeys(each for report in reports for each in report.findings)
    return Report(
        findings=tuple(sorted(found, key=place)),
        passed_over=tuple(each for report in reports for each in report.passed_over),
        files=sum(each.files for each in reports),
        rules=sum(each.rules for each in reports),
        autoscalers=sum(each.autoscalers for each in reports),
        scaled_objects=sum(each.scaled_objects for each in reports),
        values=sum(each.values for each in reports),
        scenarios=sum(each.scenarios for each in reports),
    )
