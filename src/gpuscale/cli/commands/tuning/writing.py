"""Writes tuned values into a manifest, keeping comments and order, and lints the result."""

from pathlib import Path

from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.base.documents.edited import with_values
from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.objects.hpa.manifest import hpa_manifest
from gpuscale.base.text_files import read_text
from gpuscale.base.whole_files import check_writable
from gpuscale.lab.tuning import Manifest, TunedHpa, changes, manifest_of
from gpuscale.ops.lint import lint, problems_of_errors

_EDITABLE = ("autoscaling/v2", "autoscaling/v2beta2")


def base_of(file: str, autoscaler: TunedHpa, given: Manifest | None, *, force: bool) -> Manifest:
    """Return the manifest to edit: the file itself, a given one, or a new one of the HPA.

    Args:
        file: to be written.
        autoscaler: with the HPA.
        given: the manifest that the HPA was read from; None where it is a scenario's.
        force: whether a file that is there may be changed.

    Raises:
        UsageError: it can't be written, or must not be.
        ConfigError: it is there and is wrong, or has another HPA.
    """
    if autoscaler.hpa is None:
        raise UsageError("--write: found no HPA, expected one; give its manifest with --hpa")
    check_writable([file], "--write")
    name = autoscaler.hpa.metadata.name
    if Path(file).exists():
        if not force:
            raise UsageError(f"--write: {file} is there already; --force changes its HPA")
        base = manifest_of(file, read_text(file), name)
    elif given is not None:
        base = given
    else:
        base = manifest_of(file, dump_documents([hpa_manifest(autoscaler.hpa)]), name)
    if base.version not in _EDITABLE:
        expected = " or ".join(_EDITABLE)
        raise UsageError(f"{base.name}: found {base.version}, expected {expected} to write into")
    if base.hpa != autoscaler.hpa:
        raise UsageError(
            f"{base.name}: found another HPA {name} than was tuned; tune it with --hpa {base.name}"
        )
    return base


def tuned_text(file: str, base: Manifest, autoscaler: TunedHpa, values: dict[str, float]) -> str:
    """Return the manifest with tuned values.

    Raises:
        ConfigError: a value can't be put in its place, or lint finds an error that was not there before.
    """
    document = load_documents(base.text, base.name)[base.index]
    assert isinstance(document.data, dict)  # noqa: S101 - it was read as an HPA
    found = changes(autoscaler, values, document.data)
    text = with_values(base.text, base.name, base.index, found)
    before = {each.expected for each in problems_of_errors(lint([(file, base.text)]))}
    errors = problems_of_errors(lint([(file, text)]))
    if new := [each for each in errors if each.expected not in before]:
        raise ConfigError(*new)
    return text
