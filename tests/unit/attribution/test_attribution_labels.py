from gpuscale.agent.attribution.join import safe_labels
from gpuscale.agent.attribution.reasons import REASONS


def test_keys_become_names_of_prometheus() -> None:
    assert safe_labels({"app.kubernetes.io/name": "bert", "1st": "x", "": "y"}) == {
        "app_kubernetes_io_name": "bert",
        "_1st": "x",
        "_": "y",
    }


def test_of_two_keys_that_become_one_name_the_first_stays() -> None:
    assert safe_labels({"a.b": "dot", "a-b": "dash"}) == {"a_b": "dash"}


def test_reasons_are_fit_for_a_label() -> None:
    assert all(reason.replace("_", "").isalpha() and reason.islower() for reason in REASONS)
