"""The evidence as files: what a submission takes, and a page that a reviewer reads in a minute.

Sources: cncf/k8s-ai-conformance, instructions.md and the validator (e2e.log has lines `--- PASS: Name`,
results.json those of `go test -json`); names are ours, as upstream's are those of upstream's tests.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from gpuscale import __version__
from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.pages.columns import aligned
from gpuscale.base.words import counted, printable, rfc3339
from gpuscale.ops.doctor.conform.evidence import Evidence
from gpuscale.ops.doctor.conform.steps import DEVICES, NOT_RUN, PODS, StepResult
from gpuscale.ops.doctor.pulse.sights import ChainSight

_CATEGORIES = {PODS: "schedulingOrchestration", DEVICES: "observability"}
_WORDS = {True: "PASS", False: "FAIL", None: "SKIP"}
_ACTIONS = {True: "pass", False: "fail", None: "skip"}
_PACKAGE = "gpuscale/conform"


def conform_lines(evidence: Evidence, results: Sequence[StepResult]) -> Iterator[str]:
    """Return the verdict as text: a line a step, and a fix where one failed."""
    for requirement in (PODS, DEVICES):
        mine = [each for each in results if each.requirement == requirement]
        yield f"{requirement}: {_verdict(mine)}"
        yield from aligned(
            [(f"  {_WORDS[each.passed]}", each.id, printable(each.found)) for each in mine], (1, 2)
        )
        for each in mine:
            if each.fix:
                yield f"  -> {each.id}: {each.fix}"
        yield ""
    for requirement, why in NOT_RUN.items():
        yield f"{requirement}: not run; {why}"
    if evidence.simulated:
        yield "Nodes or GPUs are simulated: this proves the pipeline, and is no evidence for a platform."
    for fault in evidence.faults:
        yield f"a look failed: {printable(fault)}"


def conform_files(
    evidence: Evidence, results: Sequence[StepResult], at_ms: int
) -> Mapping[str, str]:
    """Return the files of the evidence, by name."""
    return {
        "README.md": "".join(f"{line}\n" for line in _page(evidence, results, at_ms)),
        "evidence.json": json.dumps(_document(evidence, results), indent=2) + "\n",
        "results.json": "".join(f"{line}\n" for line in _go_json(results, at_ms)),
        "e2e.log": "".join(f"{line}\n" for line in _log(results)),
        "junit.xml": _junit(results, at_ms),
        "PRODUCT.part.yaml": _product(results),
    }


def _verdict(results: Sequence[StepResult]) -> str:
    failed = [each for each in results if each.passed is False]
    if failed:
        return f"not shown; {counted(len(failed), 'step')} of {len(results)} failed"
    if any(each.passed is None for each in results):
        return "not shown; not all steps were come to"
    return "shown"


def _is_shown(results: Sequence[StepResult], requirement: str) -> bool:
    return all(each.passed for each in results if each.requirement == requirement)


def _page(evidence: Evidence, results: Sequence[StepResult], at_ms: int) -> Iterator[str]:
    yield f"# {evidence.about}: evidence for Kubernetes AI Conformance"
    yield ""
    versions = f"Kubernetes {evidence.kubernetes}, gpuscale {__version__} (`gpuscale conform`)"
    yield f"{rfc3339(at_ms / 1000)}, {versions}."
    served = ", ".join(f"{group} by {server}" for group, server in sorted(evidence.servers.items()))
    yield f"Metrics APIs: {served or 'none'}. Exporters: {', '.join(evidence.exporters) or 'none'}."
    if evidence.simulated:
        yield "**Nodes or GPUs are simulated: no evidence for a platform.**"
    yield ""
    yield "| requirement | verdict |"
    yield "| --- | --- |"
    for requirement in (PODS, DEVICES):
        yield f"| {requirement} | {_verdict([each for each in results if each.requirement == requirement])} |"
    yield from (f"| {requirement} | not run: {why} |" for requirement, why in NOT_RUN.items())
    yield ""
    yield "| step | shows | result | found |"
    yield "| --- | --- | --- | --- |"
    for each in results:
        found = printable(each.found).replace("|", "\\|")
        yield f"| {each.requirement}/{each.id} | {each.title} | {_WORDS[each.passed]} | {found} |"
    yield ""
    yield "## The HPA"
    yield ""
    yield "```yaml"
    yield dump_documents([dict(evidence.spec)]).rstrip()
    yield "```"
    yield ""
    yield "## What was seen"
    yield ""
    yield "| s | wanted | asked | pods ready | values | devices, % |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from _rows(evidence)


def _rows(evidence: Evidence) -> Iterator[str]:
    """Return a row for each look that differs from the one before."""
    earlier = ""
    start_ms = evidence.sights[0].at_ms if evidence.sights else 0
    for phase in ("before", "loaded", "after"):
        for sight in getattr(evidence, phase):
            values = "; ".join(
                f"{name} {', '.join(f'{item.value:g}' for item in items)}"
                for name, items in sight.values.items()
            )
            devices = ", ".join(f"{each.percent:.0f}" for each in sight.of_pods(evidence.namespace))
            ready = sum(each.stage.name == "READY" for each in sight.pods)
            row = f"{sight.desired} | {sight.asked} | {ready} of {len(sight.pods)} | {values} | {devices} |"
            if row != earlier:
                yield f"| {(sight.at_ms - start_ms) / 1000:.0f} | {row}"
                earlier = row


def _document(evidence: Evidence, results: Sequence[StepResult]) -> dict[str, Any]:
    return {
        "about": evidence.about,
        "kubernetes": evidence.kubernetes,
        "gpuscale": __version__,
        "simulated": evidence.simulated,
        "servers": dict(evidence.servers),
        "exporters": list(evidence.exporters),
        "hpa": evidence.spec,
        "steps": [
            {
                "requirement": each.requirement,
                "id": each.id,
                "title": each.title,
                "passed": each.passed,
                "found": each.found,
                "fix": each.fix,
            }
            for each in results
        ],
        "notRun": NOT_RUN,
        "looks": {
            phase: [_look(each, evidence.namespace) for each in getattr(evidence, phase)]
            for phase in ("before", "loaded", "after")
        },
        "failedLooks": list(evidence.faults),
    }


def _look(sight: ChainSight, namespace: str) -> dict[str, Any]:
    return {
        "at": rfc3339(sight.at_ms / 1000),
        "wanted": sight.desired,
        "asked": sight.asked,
        "hpaGeneration": sight.generation,
        "conditions": dict(sight.conditions),
        "pods": [
            {
                "name": each.name,
                "uid": each.uid,
                "stage": each.stage.name.lower(),
                "node": each.node,
            }
            for each in sight.pods
        ],
        "values": {
            name: [
                {
                    "of": each.about,
                    "value": each.value,
                    "measured": None if each.at_ms is None else rfc3339(each.at_ms / 1000),
                }
                for each in items
            ]
            for name, items in sight.values.items()
        },
        "devices": [
            {"node": each.node, "uuid": each.uuid, "percent": each.percent, "pod": each.pod}
            for each in sight.of_pods(namespace)
        ],
    }


def _go_json(results: Sequence[StepResult], at_ms: int) -> Iterator[str]:
    """Return the lines of `go test -json`."""
    for each in results:
        event = {"Time": rfc3339(at_ms / 1000), "Package": _PACKAGE, "Test": each.name}
        yield json.dumps({**event, "Action": "run"})
        yield json.dumps({**event, "Action": "output", "Output": f"{each.title}: {each.found}\n"})
        yield json.dumps({**event, "Action": _ACTIONS[each.passed]})


def _log(results: Sequence[StepResult]) -> Iterator[str]:
    for each in results:
        yield f"=== RUN   {each.name}"
        yield f"    {each.title}: {printable(each.found)}"
        yield f"--- {_WORDS[each.passed]}: {each.name}"


def _junit(results: Sequence[StepResult], at_ms: int) -> str:
    root = ET.Element("testsuites")
    for requirement in (PODS, DEVICES):
        mine = [each for each in results if each.requirement == requirement]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=f"gpuscale.conform.{requirement}",
            tests=str(len(mine)),
            failures=str(sum(each.passed is False for each in mine)),
            skipped=str(sum(each.passed is None for each in mine)),
            timestamp=rfc3339(at_ms / 1000),
        )
        for each in mine:
            case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name=each.name)
            if each.passed is False:
                failure = ET.SubElement(case, "failure", message=printable(each.found))
                failure.text = each.fix
            elif each.passed is None:
                ET.SubElement(case, "skipped", message=each.found)
            ET.SubElement(case, "system-out").text = f"{each.title}: {printable(each.found)}"
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _product(results: Sequence[StepResult]) -> str:
    """Return the part of PRODUCT.yaml that this run is evidence for: of what was shown, and nothing else."""
    spec: dict[str, list[dict[str, Any]]] = {}
    for requirement, category in _CATEGORIES.items():
        if _is_shown(results, requirement):
            names = [each.name for each in results if each.requirement == requirement]
            entry = {
                "id": requirement,
                "status": "Implemented",
                "evidence": ["README.md", *(f"junit.xml#{name}" for name in names)],
            }
            spec.setdefault(category, []).append(entry)
    return dump_documents([{"spec": spec}])
