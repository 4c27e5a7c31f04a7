"""Image references: what is one, and which names a registry; cases like those of distribution/reference."""

import pytest
from install_values import values

from gpuscale.ops.install.image import has_registry, parse_image
from gpuscale.ops.install.noted import image_note

DIGEST = f"sha256:{'ef' * 32}"


@pytest.mark.parametrize(
    ("text", "repository", "tag"),
    [
        ("gpuscale:0.1.0", "gpuscale", "0.1.0"),
        ("me/gpuscale:latest", "me/gpuscale", "latest"),
        ("localhost:5000/gpuscale:1", "localhost:5000/gpuscale", "1"),
        ("registry.example/a/b/gpuscale:v1.0_x", "registry.example/a/b/gpuscale", "v1.0_x"),
        (f"r.example:443/gpu-scale:1@{DIGEST}", "r.example:443/gpu-scale", f"1@{DIGEST}"),
    ],
)
def test_a_reference_is_a_repository_and_a_tag(text: str, repository: str, tag: str) -> None:
    assert parse_image(text) == (repository, tag)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "gpuscale",
        "gpuscale:",
        "registry.example:5000/gpuscale",
        f"registry.example/gpuscale@{DIGEST}",
        f"registry.example/gpuscale:{DIGEST}",
        "registry.example/gpuscale:1@sha256:ef",
        "registry.example/GpuScale:1",
        "https://registry.example/gpuscale:1",
        "registry.example//gpuscale:1",
        "gpuscale:-1",
        f"gpuscale:{'1' * 129}",
        "gpu scale:1",
        "gpuscale:1\n",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^found "):
        parse_image(text)


@pytest.mark.parametrize(
    ("repository", "is_in_one"),
    [
        ("gpuscale", False),
        ("localhost/gpuscale", False),
        ("me/gpuscale", True),
        ("localhost:5000/gpuscale", True),
        ("registry.example/gpuscale", True),
    ],
)
def test_a_registry_is_named_or_not(repository: str, is_in_one: bool) -> None:
    assert has_registry(repository) is is_in_one
    assert (image_note(values(image={"repository": repository})) is None) is is_in_one


def test_an_image_that_is_never_pulled_or_not_used_needs_no_registry() -> None:
    assert image_note(values(image={"pullPolicy": "Never"})) is None
    assert image_note(values(agent={"enabled": False})) is not None
    assert image_note(values(agent={"enabled": False}, metricsApi={"enabled": False})) is None
