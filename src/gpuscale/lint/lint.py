"""Everything that is looked for, in the order of the files."""

from collections.abc import Mapping, Sequence

from gpuscale.lint.findings import Finding, Report
from gpuscale.lint.hpa_checks import hpa_findings
from gpuscale.lint.inputs import read_inputs
from gpuscale.lint.pair_checks import pair_findings
from gpuscale.lint.rule_checks import rule_findings, unused_sum_findings


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
        autoscalers=len(inputs.hpas),
    )
