"""Image references: their syntax, and whether a node could pull them.

Source: github.com/distribution/reference (regexp.go, normalize.go). A name without a slash is one of Docker
Hub's official images, of which gpuscale is none; a first part that looks like a host is the registry.
"""

import re

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY_PATTERN = f"^{_HOST}?{_PART}(?:/{_PART})*$"
TAG_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(?:@sha256:[0-9a-f]{64})?$"
EXAMPLE = "registry.example.com/gpuscale"
_REPOSITORY, _TAG = re.compile(REPOSITORY_PATTERN), re.compile(TAG_PATTERN)


def checked_repository(text: str) -> str:
    """Check an image's repository, without tag, and return it.

    Raises:
        ValueError: it is none.
    """
    if _REPOSITORY.fullmatch(text):
        return text
    name, _, tag = text.rpartition(":")
    hint = f"; the tag goes into tag: {tag}" if _REPOSITORY.fullmatch(name) else ""
    raise ValueError(f"found {text!r}, expected a name such as {EXAMPLE}, in lower case{hint}")


def checked_tag(text: str) -> str:
    """Check an image's tag, with or without digest, and return it.

    Raises:
        ValueError: it is none.
    """
    if _TAG.fullmatch(text):
        return text
    if text.startswith("sha256:"):
        raise ValueError(
            f"found {text!r}, expected a tag such as 0.1.0; this is a digest: digest: {text}"
        )
    expected = (
        "expected a tag such as 0.1.0; a digest follows it, as in 0.1.0@sha256:<64 hex digits>"
    )
    raise ValueError(f"found {text!r}, {expected}")


def parse_image(text: str) -> tuple[str, str]:
    """Parse `REPOSITORY:TAG` or `REPOSITORY:TAG@DIGEST`.

    Raises:
        ValueError: the text is no such reference, or has no tag.
    """
    name, at, digest = text.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        raise ValueError(f"found {text!r} without a tag, expected REPOSITORY:TAG")
    return checked_repository(repository), checked_tag(f"{tag}{at}{digest}")


def has_registry(repository: str) -> bool:
    """Return whether a repository's name includes a registry.

    Podman and Buildah name an image `localhost/...` that was built and never pushed.
    """
    return "/" in repository and not repository.startswith("localhost/")
