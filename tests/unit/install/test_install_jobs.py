# mypy: disable-error-code="arg-type"
"""Jobs that KEDA makes as there is work for them: what is rendered, and what is refused at which line."""

from pathlib import Path

import pytest
from install_values import one, rendered, values

from gpuscale.base.errors import ConfigError
from gpuscale.cli.values_files import with_job_files
from gpuscale.ops.install.noted import notes
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.triggers.metadata import read_metadata

POD = {"containers": [{"name": "train", "image": "train:1"}], "restartPolicy": "Never"}
QUERY = {"query": "sum(train_jobs_waiting)"}
FILE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers: [{name: train, image: "train:1"}]
      restartPolicy: Never
"""
VALUES = """\
spec:
  jobs:
  - name: train
    maxReplicas: 4
    metrics:
    - query: sum(train_jobs_waiting)
    job:
      template:
        spec:
          containers: [{name: train, image: "train:1"}]
          restartPolicy: Never
"""


def jobs(more=None, **changes) -> Values:
    job = {"name": "train", "job": {"template": {"spec": POD}}, "maxReplicas": 8, **changes}
    return values(scale=[], jobs=[job], **(more or {}))


def spec_of(found):
    return one(rendered(found), "ScaledJob")["spec"]


def triggers(found):
    read = []
    for each in spec_of(found)["triggers"]:
        own = {key: text for key, text in each["metadata"].items() if key != "scalerAddress"}
        read.append(read_metadata(own, "default"))
    return read


class TestRendered:
    def test_the_scaler_is_asked_and_installed(self) -> None:
        objects = rendered(jobs(metrics=[QUERY]))
        (trigger,) = one(objects, "ScaledJob")["spec"]["triggers"]
        # external-push would open no stream: KEDA has none for ScaledJobs.
        assert (trigger["type"], trigger["metricType"]) == ("external", "AverageValue")
        assert trigger["metadata"]["scalerAddress"] == "gpuscale-scaler.gpuscale.svc:6000"
        assert one(objects, "Deployment", "-scaler")["spec"]["replicas"] == 2

    def test_the_job_is_as_it_was_written(self) -> None:
        given = {"template": {"spec": POD}, "backoffLimit": 0}
        assert spec_of(jobs(metrics=[QUERY], job=given))["jobTargetRef"] == given

    def test_jobs_that_run_stay_when_the_scaled_job_changes(self) -> None:
        assert spec_of(jobs(metrics=[QUERY]))["rollout"] == {"strategy": "gradual"}

    def test_a_query_counts_without_a_pod(self) -> None:
        (found,) = triggers(jobs(metrics=[{**QUERY, "target": 2.5}]))
        assert (found.workload, found.target, found.name) == (None, 2.5, "train-load")
        assert found.load is not None
        assert found.load.query == "sum(train_jobs_waiting)"

    def test_a_wake_source_asks_for_its_count(self) -> None:
        wake = {"sources": ["rabbitmq"], "name": "prompts", "replicas": 3, "hold": "30m"}
        (found,) = triggers(jobs(wake=wake))
        assert (found.load, found.wake_replicas, found.hold_s) == (None, 3, 1800)
        assert [each.source for each in found.wakes] == ["rabbitmq"]

    def test_the_first_of_several_metrics_wakes(self) -> None:
        metrics = [QUERY, {"query": "sum(b)"}]
        first, second = triggers(jobs(metrics=metrics, wake={"query": "sum(up)"}))
        assert (first.name, second.name) == ("train-load", "train-load-2")
        assert (len(first.wakes), len(second.wakes)) == (1, 0)

    def test_kedas_own_interval_unless_stated(self) -> None:
        keda = {"keda": {"pollingIntervalSeconds": 30}}
        assert spec_of(jobs(keda, metrics=[QUERY]))["pollingInterval"] == 30
        stated = jobs(keda, metrics=[QUERY], pollingIntervalSeconds=5)
        assert spec_of(stated)["pollingInterval"] == 5

    def test_keda_trusts_the_scaler_in_the_namespace_of_the_jobs(self) -> None:
        tls = {"keda": {"tlsSecret": "keda-tls"}, "scaler": {"tlsSecret": "own"}}
        objects = rendered(jobs(tls, metrics=[QUERY], namespace="ml"))
        assert one(objects, "TriggerAuthentication")["metadata"]["namespace"] == "ml"
        (trigger,) = one(objects, "ScaledJob")["spec"]["triggers"]
        assert trigger["authenticationRef"] == {"name": "gpuscale-scaler"}

    def test_a_note_says_where_the_series_of_the_queue_come_from(self) -> None:
        assert [each for each in notes(jobs(metrics=[QUERY])) if "own Prometheus" in each]


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("Never", "Always", "v:11: spec.jobs[0].job.template.spec.restartPolicy: found Always"),
            ("query: sum(", "query: sum((", "v:6: spec.jobs[0].metrics[0].query: found a query"),
            (
                "containers: ",
                "container: ",
                "v:10: spec.jobs[0].job.template.spec.container: found",
            ),
            (
                "{name: train, image",
                "{name: 1, image",
                "v:10: spec.jobs[0].job.template.spec.containers[0].name: found 1",
            ),
            ("maxReplicas: 4", "maxReplicas: 4\n    minReplicas: 5", "minReplicas 5 above"),
            ("  - name: train\n", "  - name: Train\n", "v:3: spec.jobs[0].name: found"),
            (
                "maxReplicas: 4",
                "maxReplicas: 4\n    jobFile: a.yaml",
                "found job and jobFile, expected one of them",
            ),
            (
                "maxReplicas: 4",
                "maxReplicas: 4\n    wake: {sources: [rabitmq], name: a}",
                "v:5: spec.jobs[0].wake.sources: ",
            ),
            (
                "maxReplicas: 4",
                "maxReplicas: 4\n    wake: {query: up, deadline: 5m}",
                "v:5: spec.jobs[0].wake.deadline: found it with a Job",
            ),
            (
                "maxReplicas: 4",
                "maxReplicas: 4\n    scalingStrategy: {customScalingQueueLengthDeduction: 1}",
                "found a field of custom with strategy default, expected strategy: custom",
            ),
        ],
    )
    def test_at_its_line(self, old, new, said) -> None:
        assert old in VALUES
        with pytest.raises(ConfigError) as error:
            parse_values(VALUES.replace(old, new, 1), "v")
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"scaler": {"enabled": False}}, "found jobs with scaler.enabled false"),
            ({"jobs": "twice"}, "found jobs[1].name twice"),
        ],
    )
    def test_together(self, changes, said) -> None:
        one_job = jobs(metrics=[QUERY]).spec.jobs[0].model_dump(mode="json", by_alias=True)
        count = 2 if changes.get("jobs") else 1
        with pytest.raises(ValueError, match=said.replace("[", r"\[").replace("]", r"\]")):
            values(**{**changes, "jobs": [one_job] * count})

    def test_nothing_that_asks_for_jobs(self) -> None:
        with pytest.raises(ValueError, match="neither metrics nor wake"):
            jobs()


class TestFile:
    @pytest.mark.parametrize("text", [FILE, "template:\n  spec: {containers: [{name: a}]}\n"])
    def test_it_lies_beside_the_values(self, tmp_path: Path, text) -> None:
        (tmp_path / "job.yaml").write_text(text)
        found = with_job_files(
            jobs(job=None, jobFile="job.yaml", metrics=[QUERY]), str(tmp_path / "v")
        )
        pod = spec_of(found)["jobTargetRef"]["template"]["spec"]
        assert pod["containers"][0]["name"] in ("train", "a")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                FILE.replace("Never", "Always"),
                "job.yaml:8: spec.template.spec.restartPolicy: found",
            ),
            (
                FILE.replace("kind: Job", "kind: CronJob"),
                "job.yaml:2: kind: found CronJob, expected Job",
            ),
            (f"{FILE}---\n{FILE}", "found 2 documents, expected one Job"),
            ("- a\n", "expected a mapping"),
            (None, "job.yaml: no such file"),
        ],
    )
    def test_its_faults_are_of_its_own_lines(self, tmp_path: Path, text, said) -> None:
        if text is not None:
            (tmp_path / "job.yaml").write_text(text)
        with pytest.raises(ConfigError) as error:
            with_job_files(jobs(job=None, jobFile="job.yaml", metrics=[QUERY]), str(tmp_path / "v"))
        assert said in str(error.value)
