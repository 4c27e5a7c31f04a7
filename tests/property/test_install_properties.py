"""Values files of any content are read or refused; what is read renders to objects that fit together."""

import json
from contextlib import suppress

import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.cluster.kinds import KINDS, kind_of, path_of
from gpuscale.ops.install.common import INSTALL_LABEL
from gpuscale.ops.install.noted import notes
from gpuscale.ops.install.rendering import KIND_ORDER, manifest, pool_files, render
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.signals import GPU_SIGNALS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)
KEYS = (
    "provider",
    "scale",
    "agent",
    "metricsApi",
    "prometheus",
    "devicePlugin",
    "samples",
    "taint",
)
# Of a signal's usual target, so that it makes sense in the signal's unit.
METRICS = st.tuples(st.sampled_from(sorted(GPU_SIGNALS)), st.floats(0.5, 1.2)).map(
    lambda drawn: {
        "signal": drawn[0],
        "target": round(GPU_SIGNALS[drawn[0]].target * drawn[1], 3),
    }
)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
SCALES = st.fixed_dictionaries(
    {
        "workload": st.fixed_dictionaries(
            {
                "name": NAMES,
                "namespace": NAMES,
                "kind": st.sampled_from(("Deployment", "StatefulSet")),
            }
        ),
        "minReplicas": st.integers(1, 5),
        "maxReplicas": st.integers(5, 500),
        "autoscaler": st.sampled_from(("hpa", "keda")),
        "metrics": st.lists(METRICS, min_size=1, max_size=3),
    }
)
POOLS = st.none() | st.fixed_dictionaries(
    {
        "cluster": NAMES,
        "region": NAMES,
        "resourceGroup": NAMES,
        "networks": st.lists(NAMES, min_size=1, max_size=2),
        "instanceType": NAMES,
        "gpu": NAMES,
        "gpus": st.integers(1, 16),
        "spot": st.booleans(),
    }
)
SPECS = st.fixed_dictionaries(
    {
        "provider": st.sampled_from(("aks", "eks", "ack", "gke")),
        "namespace": NAMES,
        "scale": st.lists(
            SCALES,
            max_size=3,
            unique_by=lambda each: (each["workload"]["namespace"], each["workload"]["name"]),
        ),
        "agent": st.just({"attribution": "processes", "style": "both"}),
        "devicePlugin": st.fixed_dictionaries(
            {"enabled": st.booleans(), "replicas": st.integers(1, 64)}
        ),
        "nodePool": POOLS,
    }
)


def told_or_read(text) -> None:
    with suppress(ConfigError):
        parse_values(text, "values.yaml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text) -> None:
    told_or_read(text)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_any_content_of_known_fields_is_read_or_refused(spec) -> None:
    told_or_read(yaml.safe_dump({"spec": spec}))
    told_or_read(json.dumps({"spec": spec}))


@given(SPECS)
def test_what_is_read_renders_to_objects_that_fit_together(spec) -> None:
    values = Values.model_validate({"spec": spec})
    objects = render(values)
    assert objects == render(values)
    paths = [path_of(each) for each in objects]
    assert len(set(paths)) == len(paths)
    assert {kind_of(each) for each in objects} <= set(KINDS)
    places = [KIND_ORDER.index(each["kind"]) for each in objects]
    assert places == sorted(places)
    assert all(each["metadata"]["labels"][INSTALL_LABEL] == "gpuscale" for each in objects)
    assert [each.data for each in load_documents(manifest(objects), "out")] == list(objects)


@given(SPECS)
def test_pools_and_notes_follow_from_any_values(spec) -> None:
    values = Values.model_validate({"spec": spec})
    assert bool(pool_files(values)) == (spec["nodePool"] is not None)
    for text in notes(values):
        assert "None" not in text


@given(SPECS)
def test_a_values_file_is_read_back_as_it_was(spec) -> None:
    values = Values.model_validate({"spec": spec})
    text = yaml.safe_dump(values.model_dump(mode="json", by_alias=True))
    assert parse_values(text, "values.yaml") == values


@given(st.sampled_from(("provider", "namespace", "recordingRules")), JSON)
def test_a_field_of_the_wrong_kind_never_renders(field, value) -> None:
    try:
        values = Values.model_validate({"spec": {field: value}})
    except ValidationError:
        return
    assert render(values)
