"""What an installation is called, and the image that its pods run."""

from typing import Literal

from pydantic import Field, model_validator

from gpuscale import __version__
from gpuscale.base.documents.models import Model
from gpuscale.base.documents.validation import LABEL_PATTERN
from gpuscale.ops.install.fields import Repository, Tag
from gpuscale.ops.install.scale.scale import Subdomain


class Metadata(Model):
    """The installation's name: the first part of the names of all that is made."""

    name: str = Field(default="gpuscale", pattern=LABEL_PATTERN, max_length=32)
    """The first part of the names of all that is made."""


class Image(Model):
    """The image of the node agent and the metrics API: build it with `make image`, from the Dockerfile."""

    repository: Repository = "gpuscale"
    """Where nodes pull it from, such as `registry.example.com/gpuscale`; the default is in no registry."""
    tag: Tag = __version__
    """A digest may follow it: `0.1.0@sha256:...`."""
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Pins the image: nodes pull this one, whatever the tag points to later."""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """`Never`: every node has the image already, as with `kind load docker-image`."""
    pull_secret: Subdomain | None = None
    """Name of a Secret in the installation's namespace."""

    @model_validator(mode="after")
    def _has_one_digest(self) -> "Image":
        if self.digest is not None and "@" in self.tag:
            raise ValueError("found a digest in tag and in digest, expected it in digest alone")
        return self
