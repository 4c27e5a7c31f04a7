"""Installing and removing: values, rendered objects, apply and remove, node pools of providers."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.install.certificates import certificate_for, make_certificate
    from gpuscale.ops.install.common import Object
    from gpuscale.ops.install.fitting import fit, reasons
    from gpuscale.ops.install.image import has_registry, parse_image
    from gpuscale.ops.install.linted import lint_values
    from gpuscale.ops.install.noted import image_note, notes
    from gpuscale.ops.install.propose import (
        DEFAULT_MAX_REPLICAS,
        DEFAULT_MIN_REPLICAS,
        DEFAULT_SIGNAL,
        Answers,
        proposed,
        serves_resource,
        signal_of,
        source_for,
        team_rules,
    )
    from gpuscale.ops.install.rendering import (
        RenderInputs,
        board_files,
        manifest,
        needs_certificate,
        outline,
        pool_files,
        render,
        rule_texts,
    )
    from gpuscale.ops.install.values import Values, parse_values
else:
    __getattr__ = door(__name__)

__all__ = [
    "DEFAULT_MAX_REPLICAS",
    "DEFAULT_MIN_REPLICAS",
    "DEFAULT_SIGNAL",
    "Answers",
    "Object",
    "RenderInputs",
    "Values",
    "board_files",
    "certificate_for",
    "fit",
    "has_registry",
    "image_note",
    "lint_values",
    "make_certificate",
    "manifest",
    "needs_certificate",
    "notes",
    "outline",
    "parse_image",
    "parse_values",
    "pool_files",
    "proposed",
    "reasons",
    "render",
    "rule_texts",
    "serves_resource",
    "signal_of",
    "source_for",
    "team_rules",
]
