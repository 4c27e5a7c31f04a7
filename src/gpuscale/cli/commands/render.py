"""`gpuscale render`: the manifests and node pool of a values file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.text_files import read_text, shown_name
from gpuscale.cli.options.kubernetes import KubernetesVersionText, read_kubernetes_version
from gpuscale.cli.texts import Output, deprecated, print_document
from gpuscale.cli.values_files import checked_values

if TYPE_CHECKING:
    from gpuscale.hpa.terms import KubernetesVersion
    from gpuscale.ops.install import Object, Values

_STDOUT = "-"
_FORMATS = {"yaml": Output.YAML, "json": Output.JSON}


def render(
    values_file: Annotated[
        str, typer.Argument(metavar="VALUES", help="A values file; - is standard input.")
    ],
    *,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="yaml|json", help="How the objects are printed."),
    ] = "yaml",
    output_dir: Annotated[
        str | None,
        typer.Option(
            "--output-dir",
            metavar="FOLDER",
            help="Write one file per object instead, and beside them those of the node pool (node-pool), "
            "rule files (rules) and dashboards (dashboards); with --installer the role alone.",
            show_default="the objects are printed",
        ),
    ] = None,
    kubernetes_version: KubernetesVersionText = None,
    installer: Annotated[
        str | None,
        typer.Option(
            metavar="SUBJECT",
            help="Print instead the least role that User:NAME, Group:NAME or ServiceAccount:NAMESPACE/NAME "
            "needs to install these values, as roles and bindings.",
        ),
    ] = None,
) -> None:
    """Print the Kubernetes objects that `install` would apply, or write them and the node pool to files.

    What lint calls an error is refused.

    Example:  gpuscale render values.yaml | kubectl diff -f -

    Example:  gpuscale render values.yaml --output-dir out

    Example:  gpuscale render values.yaml --installer ServiceAccount:ci/deployer | kubectl apply -f -
    """
    from gpuscale.ops.install import image_note

    if output not in _FORMATS:
        if output_dir is not None or output == Output.TEXT.value:
            raise UsageError(f"--output: found {output!r}, expected yaml or json")
        output_dir, output = output, "yaml"
        deprecated(f"-o {output_dir}", f"--output-dir {output_dir}")
    values = read_values(values_file, read_kubernetes_version(kubernetes_version))
    if note := image_note(values):
        _note(note)
    objects = rendered(values) if installer is None else _role_of(installer, values)
    if output_dir in (None, _STDOUT):
        _print(objects, _FORMATS[output])
        if values.spec.node_pool is not None and installer is None:
            _note("the node pool's files are written with --output-dir")
    else:
        beside = {} if installer is not None else _files_beside(values)
        _write({**_object_files(objects), **beside}, Path(output_dir))


def read_values(name: str, kubernetes: "KubernetesVersion | None" = None) -> "Values":
    """Return a file's values, and print warnings about them.

    Args:
        name: of the file; - is standard input.
        kubernetes: release of the cluster that they are for; None where it is not known.

    Raises:
        ConfigError: the file can't be read, is wrong, or asks for what lint says can't work.
    """
    values, notes = checked_values(read_text(name), shown_name(name), kubernetes)
    for note in notes:
        _note(note)
    return values


def rendered(values: "Values") -> "tuple[Object, ...]":
    """Return the objects of values, with a new certificate for a metrics API that runs elsewhere."""
    from gpuscale.base.clock import WallClock
    from gpuscale.ops.install import RenderInputs, make_certificate, needs_certificate
    from gpuscale.ops.install import render as render_values

    if not needs_certificate(values):
        return render_values(values)
    return render_values(values, RenderInputs(make_certificate(values, WallClock().now_ms())))


def _role_of(installer: str, values: "Values") -> "tuple[Object, ...]":
    from gpuscale.ops.install import outline
    from gpuscale.ops.install.cluster import installer_role, needed_rights, parse_subject

    subject = parse_subject(installer)
    rights = needed_rights(outline(values), replaces=True)
    name = f"{values.metadata.name}-installer"
    return tuple(installer_role(name, values.spec.namespace, rights, subject))


def _print(objects: "tuple[Object, ...]", output: Output) -> None:
    from gpuscale.ops.install import manifest

    if output is Output.JSON:
        print_document({"apiVersion": "v1", "kind": "List", "items": list(objects)}, output)
    else:
        print(manifest(objects), end="")


def _object_files(objects: "tuple[Object, ...]") -> dict[str, str]:
    from gpuscale.ops.install import manifest

    return {
        f"{number:02}-{each['kind']}-{each['metadata']['name']}.yaml".lower(): manifest([each])
        for number, each in enumerate(objects, 1)
    }


def _files_beside(values: "Values") -> dict[str, str]:
    """Return the files that are no objects: node pool, rules, dashboards."""
    from gpuscale.ops.install import board_files, pool_files, rule_texts

    return {
        **{f"node-pool/{each.name}": each.text for each in pool_files(values)},
        **{f"rules/{name}": text for name, text in rule_texts(values).items()},
        **{f"dashboards/{name}": text for name, text in board_files(values).items()},
    }


def _write(texts: Mapping[str, str], folder: Path) -> None:
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output-dir: can't write to {folder}: {error.strerror}") from error
    _note(f"{len(texts)} files in {folder}")


def _note(text: str) -> None:
    print(f"gpuscale: {text}", file=sys.stderr)
