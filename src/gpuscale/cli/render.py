"""`gpuscale render`: the manifests and node pool of a values file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.texts import read_text, shown_name
from gpuscale.core.errors import UsageError

if TYPE_CHECKING:
    from gpuscale.install.parts.common import Object
    from gpuscale.install.values import Values

_STDOUT = "-"


def render(
    values_file: Annotated[
        str, typer.Argument(metavar="VALUES", help="A values file; - is standard input.")
    ],
    *,
    output_dir: Annotated[
        str,
        typer.Option(
            "--output-dir",
            "-o",
            metavar="FOLDER",
            help="Write one file per object, and beside them those of the node pool (node-pool), rule "
            "files (rules) and dashboards (dashboards); - prints the objects.",
        ),
    ] = _STDOUT,
) -> None:
    """Write the Kubernetes objects that `install` would apply, and the files of the node pool.

    A serving certificate is made anew each time, unless cert-manager makes it.

    Example:  gpuscale render values.yaml | kubectl diff -f -
    """
    from gpuscale.install.render import manifest

    values = read_values(values_file)
    objects = rendered(values)
    if output_dir == _STDOUT:
        print(manifest(objects), end="")
        if values.spec.node_pool is not None:
            _note("the node pool's files are written with --output-dir")
    else:
        _write(values, objects, Path(output_dir))


def read_values(name: str) -> "Values":
    """Return the values of a file, and tell what is worth knowing about them.

    Raises:
        ConfigError: the file can't be read, or is wrong.
    """
    from gpuscale.install.notes import notes
    from gpuscale.install.values import parse_values

    values = parse_values(read_text(name), shown_name(name))
    for text in notes(values):
        _note(text)
    return values


def rendered(values: "Values") -> "tuple[Object, ...]":
    """Return the objects of values, with a new certificate where one is needed."""
    from gpuscale.core.clock import WallClock
    from gpuscale.install.certificates import make_certificate
    from gpuscale.install.render import Inputs, needs_certificate
    from gpuscale.install.render import render as render_values

    if not needs_certificate(values):
        return render_values(values)
    return render_values(values, Inputs(make_certificate(values, WallClock().now_ms())))


def _write(values: "Values", objects: "tuple[Object, ...]", folder: Path) -> None:
    from gpuscale.install.boards.catalogue import board_files
    from gpuscale.install.parts.scraping import rule_texts
    from gpuscale.install.pools.render import pool_files
    from gpuscale.install.render import manifest

    texts = {
        f"{number:02}-{each['kind']}-{each['metadata']['name']}.yaml".lower(): manifest([each])
        for number, each in enumerate(objects, 1)
    }
    texts |= {f"node-pool/{each.name}": each.text for each in pool_files(values)}
    texts |= {f"rules/{name}": text for name, text in rule_texts(values).items()}
    texts |= {f"dashboards/{name}": text for name, text in board_files(values).items()}
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
