"""Which releases have which feature gates on.

Source: KEP-2021 and KEP-4951; kubernetes v1.36 pkg/features/kube_features.go.
"""

import pytest

from gpuscale.hpa.terms.versions import (
    SCALE_TO_ZERO,
    TOLERANCE,
    parse_version,
    settings_of,
    version_or_none,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.36", "1.36"),
        ("v1.36.3", "1.36"),
        ("1.37.0-beta.0", "1.37"),
        ("v1.31.4-gke.1200", "1.31"),
        ("v1.32.1+k3s1", "1.32"),
        ("1.29+", "1.29"),
    ],
)
def test_clouds_write_versions_in_many_ways(text, shown) -> None:
    assert str(parse_version(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "37", "latest", "1", "1.x", "v1.36 or so", "1.36/", "1.36\n1.37"]
)
def test_what_is_no_version_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"expected a Kubernetes version such as 1[.]36"):
        parse_version(text)
    assert version_or_none(text) is None


def test_versions_are_ordered_as_numbers() -> None:
    assert parse_version("1.9") < parse_version("1.10")


@pytest.mark.parametrize(
    ("gate", "version", "stage", "is_on"),
    [
        (SCALE_TO_ZERO, "1.15", "absent", False),
        (SCALE_TO_ZERO, "1.16", "alpha", False),
        (SCALE_TO_ZERO, "1.36", "alpha", False),
        (SCALE_TO_ZERO, "1.37", "beta", True),
        (TOLERANCE, "1.32", "absent", False),
        (TOLERANCE, "1.33", "alpha", False),
        (TOLERANCE, "1.34", "alpha", False),
        (TOLERANCE, "1.35", "beta", True),
        (TOLERANCE, "1.37", "stable", True),
    ],
)
def test_gates_by_release(gate, version, stage, is_on) -> None:
    release = parse_version(version)
    assert (gate.stage(release), gate.is_on(release)) == (stage, is_on)


@pytest.mark.parametrize(
    ("version", "may_be_zero", "marks"),
    [("1.35", False, False), ("1.36", False, True), ("1.37", True, True)],
)
def test_a_controller_is_that_of_its_release(version, may_be_zero, marks) -> None:
    settings = settings_of(parse_version(version))
    assert (settings.scale_to_zero, settings.marks_zero) == (may_be_zero, marks)
