"""The results of a run of Jobs: document, summary text, JUnit XML."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from gpuscale.base.golang.durations import format_duration
from gpuscale.load.jobs.chronicle import JobLife, waits_ms
from gpuscale.load.jobs.running import JobRun
from gpuscale.load.jobs.states import JobState
from gpuscale.load.timeline.document import timeline_document
from gpuscale.load.timeline.types import Timeline

_PERCENTILES = (50, 90, 100)
_REASONS = 10
"""Of a Job that are listed."""


def job_timeline(run: JobRun) -> Timeline:
    """Return the run as a timeline."""
    return run.chronicle.timeline(", ".join(sorted(run.plan.template.resources)))


def job_document(run: JobRun) -> dict[str, Any]:
    """Return a run's results, with an entry for each Job; times not reached are left out."""
    chronicle = run.chronicle
    lives = list(chronicle.lives.values())
    timeline = job_timeline(run)
    states = chronicle.counts()
    never = run.plan.count - len(lives) - len(chronicle.refused)
    document: dict[str, Any] = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "JobLoadResult",
        "run": run.id,
        "server": run.server,
        "namespace": run.plan.namespace,
        "jobs": {
            "wanted": run.plan.count,
            "made": len(lives),
            "done": states[JobState.DONE],
            "failed": states[JobState.FAILED],
            "timedOut": states[JobState.TIMED_OUT],
            "removedByOthers": states[JobState.REMOVED],
            "refused": len(chronicle.refused),
            "unfinished": sum(not life.standing.state.is_over for life in lives) + never,
        },
        "waitMilliseconds": _percentiles(waits_ms(chronicle.lives)),
        "runMilliseconds": _percentiles(sorted(_runs_ms(lives))),
        "unseen": list(run.unseen),
        "items": [_item(life) for life in lives],
        "refused": [{"job": name, "reason": why} for name, why in chronicle.refused.items()],
        "timeline": timeline_document(timeline),
    }
    if chronicle.most_nodes is not None:
        document["nodes"] = {
            "most": chronicle.most_nodes,
            "atEnd": len(chronicle.nodes),
            "added": chronicle.added_nodes,
            "removed": chronicle.removed_nodes,
        }
    if run.removed is not None:
        document["removed"] = run.removed
    if run.fault:
        document["fault"] = run.fault
    return document


def _runs_ms(lives: Sequence[JobLife]) -> Iterator[int]:
    for life in lives:
        if life.running_ms is not None and life.standing.state is JobState.DONE and life.ended_ms:
            yield life.ended_ms - life.running_ms


def _percentiles(ascending: Sequence[int]) -> dict[str, int]:
    """Return percentiles of times, by nearest rank."""
    count = len(ascending)
    return {f"p{each}": ascending[-(-count * each // 100) - 1] for each in _PERCENTILES if count}


def _item(life: JobLife) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "job": life.name,
        "state": life.standing.state.value,
        "reason": life.standing.reason,
        "waitedFor": life.reasons[:_REASONS],
        "node": life.node,
        "madeMs": life.made_ms,
        "runningMs": life.running_ms,
        "endedMs": life.ended_ms,
    }
    return {name: value for name, value in entry.items() if value not in (None, "", [])}


def job_faults_text(document: Mapping[str, Any]) -> list[str]:
    """Return the run's faults, a line each; empty if all Jobs succeeded."""
    jobs = document["jobs"]
    words = {
        "failed": "failed",
        "timedOut": "took too long",
        "removedByOthers": "were removed from outside",
        "refused": "were refused by the API server",
        "unfinished": "were not done when the run ended",
    }
    lines = [
        f"{jobs[key]} of {jobs['wanted']} Jobs {text}" for key, text in words.items() if jobs[key]
    ]
    return [*lines, *([document["fault"]] if "fault" in document else [])]


def job_totals(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the run's figures in words."""
    jobs = document["jobs"]
    totals = {"Jobs done": f"{jobs['done']} of {jobs['wanted']}"}
    for name, key in (("Wait until running", "waitMilliseconds"), ("Run", "runMilliseconds")):
        if times := document[key]:
            totals[name] = (
                f"p50 {_length(times['p50'])}, p90 {_length(times['p90'])}, longest {_length(times['p100'])}"
            )
    if nodes := document.get("nodes"):
        totals["Nodes"] = f"at most {nodes['most']}; {nodes['added']} came, {nodes['removed']} went"
    if "removed" in document:
        totals["Removed"] = f"{document['removed']} Jobs"
    return totals


def _length(milliseconds: int) -> str:
    return (
        format_duration(round(milliseconds, -3))
        if milliseconds >= 10_000
        else f"{milliseconds / 1000:.1f}s"
    )


def job_text(document: Mapping[str, Any]) -> str:
    """Return the result as a short text."""
    totals = job_totals(document)
    room = max(map(len, totals))
    lines = [f"{name.ljust(room)}  {text}" for name, text in totals.items()]
    return "\n".join([*lines, *job_faults_text(document)])


def junit_text(document: Mapping[str, Any]) -> str:
    """Return JUnit XML: one case for each Job, by its name.

    A Job that failed or took too long is a failure, one that was refused or removed from outside an
    error, and one that was not over when the run was interrupted is skipped.

    Source: the schema of Jenkins' xUnit plugin (junit-10.xsd).
    """
    timeline = document["timeline"]
    cases = ElementTree.Element("testsuite", name=f"gpuscale load jobs {timeline['title']}")
    counts = {"failure": 0, "error": 0, "skipped": 0}
    namespace = f"jobs.{document['namespace']}"
    for item in document["items"]:
        ended_ms = item.get("endedMs", timeline["endedMs"])
        case = ElementTree.SubElement(
            cases,
            "testcase",
            classname=namespace,
            name=item["job"],
            time=f"{(ended_ms - item['madeMs']) / 1000:.3f}",
        )
        if outcome := _outcome(item["state"]):
            counts[outcome] += 1
            reason = "; ".join(filter(None, (item.get("reason", ""), *item.get("waitedFor", ()))))
            ElementTree.SubElement(case, outcome, message=_xml_text(f"{item['state']}: {reason}"))
    for item in document["refused"]:
        case = ElementTree.SubElement(
            cases, "testcase", classname=namespace, name=item["job"], time="0"
        )
        counts["error"] += 1
        ElementTree.SubElement(case, "error", message=_xml_text(item["reason"]))
    missing = document["jobs"]["wanted"] - len(cases)
    for number in range(missing):
        name = f"not made {number + 1}"
        case = ElementTree.SubElement(cases, "testcase", classname=namespace, name=name, time="0")
        counts["skipped"] += 1
        ElementTree.SubElement(case, "skipped", message="the run ended before it was due")
    length_ms = timeline["endedMs"] - timeline["startedMs"]
    cases.attrib |= {
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{length_ms / 1000:.3f}",
    }
    ElementTree.indent(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(cases, "unicode") + "\n"
    )


def _outcome(state: str) -> str:
    if state == JobState.DONE.value:
        return ""
    if state in (JobState.FAILED.value, JobState.TIMED_OUT.value):
        return "failure"
    return "error" if state == JobState.REMOVED.value else "skipped"


def _xml_text(text: str) -> str:
    """Return a text without the characters that XML can't have."""
    return "".join(
        each
        for each in text
        if each in "\t\n\r"
        or "\x20" <= each <= "\ud7ff"
        or "\ue000" <= each <= "\ufffd"
        or each > "\uffff"
    )
