"""Jobs copied from one manifest, with names and labels by which they are found again."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.objects.names import subdomain_fault
from gpuscale.kube import job_faults, mapping_of, text_of

MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "gpuscale-load"
RUN = "gpuscale.dev/load-run"
"""Label with the id of the run."""
SAMPLE = "samples-tf-mnist-demo"
"""The built-in Job: MNIST training on one GPU, as in AKS' guide."""
_MAX_NAME = 63
"""Of a Job whose name is a label of its pods."""
_LEAST_TTL_S = 60
"""A finished Job that its cluster removes sooner might go before its end was seen."""
_OWN_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""What a Job that was read from a cluster has of the Job that it was."""
Object = dict[str, Any]


def run_selector(run: str | None = None) -> str:
    """Return a label selector for a run's objects; None means any run."""
    return f"{MANAGED_BY}={MANAGER},{RUN}" + (f"={run}" if run else "")


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The manifest that all Jobs of a run are copies of."""

    manifest: Mapping[str, Any]
    stem: str
    """First part of their names."""
    namespace: str
    """Of the manifest; empty where it has none."""

    def job(self, namespace: str, run: str, number: int, count: int) -> Object:
        """Return the manifest of one Job.

        Args:
            namespace: where it goes.
            run: id of the run, a few letters and digits.
            number: of the Job, from 1.
            count: of all Jobs, for names of one length.
        """
        body: Object = deepcopy(dict(self.manifest))
        ending = f"-{run}-{number:0{len(str(count))}}"
        marks = {MANAGED_BY: MANAGER, RUN: run}
        old = mapping_of(body.get("metadata"))
        body["metadata"] = {
            "name": self.stem[: _MAX_NAME - len(ending)].rstrip("-.") + ending,
            "namespace": namespace,
            "labels": {**_labels(old), **marks},
        }
        if old.get("annotations"):
            body["metadata"]["annotations"] = old["annotations"]
        body.pop("status", None)
        spec = body["spec"]
        for key in ("selector", "manualSelector"):  # each Job needs its own pods
            spec.pop(key, None)
        ttl_s = spec.get("ttlSecondsAfterFinished")
        if isinstance(ttl_s, int):
            spec["ttlSecondsAfterFinished"] = max(ttl_s, _LEAST_TTL_S)
        template = spec["template"]
        metadata = dict(template.get("metadata") or {})
        template["metadata"] = {**metadata, "labels": {**_labels(metadata), **marks}}
        template["spec"].setdefault("restartPolicy", "Never")
        return body

    @property
    def resources(self) -> frozenset[str]:
        """Return the extended resources that a Job's pods request, such as nvidia.com/gpu."""
        containers = self.manifest["spec"]["template"]["spec"]["containers"]
        asked = [mapping_of(mapping_of(each.get("resources")).get("limits")) for each in containers]
        return frozenset(name for limits in asked for name in limits if "/" in name)


def read_template(text: str, source: str) -> JobTemplate:
    """Return the only Job in a manifest.

    Raises:
        ConfigError: it is no Job, or the API server would refuse it; all faults.
    """
    documents = load_documents(text, source)
    if len(documents) != 1:
        found = f"{len(documents)} documents"
        raise ConfigError(Problem(source, None, None, found, "one Job"))
    return _template(documents[0])


def sample_template() -> JobTemplate:
    """Return the built-in Job."""
    folder = resources.files("gpuscale.lab.sim") / "scenarios" / "aks-mnist-jobs"
    name = f"{SAMPLE}.yaml"
    return read_template((folder / name).read_text(encoding="utf-8"), name)


def _template(document: Document) -> JobTemplate:
    data = mapping_of(document.data)
    found = f"{data.get('kind', 'no kind')} of {data.get('apiVersion', 'no apiVersion')}"
    if (data.get("apiVersion"), data.get("kind")) != ("batch/v1", "Job"):
        raise ConfigError(document.problem(("kind",), "a Job of batch/v1", found=found))
    problems = [
        document.problem(("spec", *path), fault) for path, fault in job_faults(data.get("spec"))
    ]
    metadata = mapping_of(data.get("metadata"))
    stem = text_of(metadata.get("name")) or text_of(metadata.get("generateName")).rstrip("-.")
    if fault := subdomain_fault(stem):
        found = repr(stem) if stem else "no name"
        problems.append(document.problem(("metadata", "name"), fault, found=found))
    if problems:
        raise ConfigError(*problems)
    return JobTemplate(data, stem, text_of(metadata.get("namespace")))


def _labels(metadata: Mapping[str, object]) -> dict[str, object]:
    labels = mapping_of(metadata.get("labels"))
    return {name: value for name, value in labels.items() if name not in _OWN_LABELS}
