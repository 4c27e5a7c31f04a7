"""What an unmodified API server refuses of HPAs, gpuscale refuses; what it takes, gpuscale takes."""

import http.client
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuscale.base.documents.documents import dotted, load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.base.objects.hpa.fields import unknown_fields

sys.path.insert(0, str(Path(__file__).parent))
from hpa_manifests import misspelled, mutations, table

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

MUTATIONS = 1000


@pytest.fixture(scope="module")
def create(plane):
    """A function that asks the server to create an HPA and keep nothing: its refusal, or None."""
    address = urlsplit(plane.url)
    connection = http.client.HTTPSConnection(
        address.hostname, address.port, context=plane.ssl_context(), timeout=60
    )

    def ask(text, validation="Warn"):
        version = "v1" if "autoscaling/v1" in text else "v2"
        connection.request(
            "POST",
            f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"
            f"?dryRun=All&fieldValidation={validation}",
            text.encode(),
            {"Content-Type": "application/yaml", "Accept": "application/json"},
        )
        answer = connection.getresponse()
        said = json.loads(answer.read())
        return None if answer.status == 201 else said["message"]

    yield ask
    connection.close()


def faults(text):
    """Return what gpuscale refuses a manifest for, as on a cluster without the gate HPAScaleToZero."""
    try:
        (document,) = load_documents(text, "hpa.yaml")
        fields = Fields(document, document.data)
        read_hpa(fields, scale_to_zero=False)
        fields.finish()
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def disagreements(create, texts):
    found = []
    for text in texts:
        server, ours = create(text), faults(text)
        if (server is None) != (not ours):
            found.append(f"{text}\n  server: {server}\n  gpuscale: {ours}")
    return found


def test_a_table_of_good_bad_and_nearly_good_ones(create) -> None:
    assert disagreements(create, table()) == []
    taken = [not faults(text) for text in table()]
    assert min(taken.count(True), taken.count(False)) > 50


def test_mutations_of_a_whole_one(create) -> None:
    assert disagreements(create, mutations(MUTATIONS)) == []


def test_fields_with_another_name_are_those_that_the_server_does_not_know(create) -> None:
    for text, path in misspelled():
        ours = [dotted(each.path) for each in unknown_fields(json.loads(text))]
        assert ours == [path]
        assert f'unknown field "{path}"' in create(text, "Strict")
