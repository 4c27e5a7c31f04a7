"""Other metrics APIs behind the installation's own, as the values file names them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.base.documents.validation import LABEL_PATTERN
from gpuscale.server.metricsapi.federation import USUAL, MemberEntry, member_of

MetricPattern = Annotated[str, Field(pattern=r"^[^\s,/]+$", max_length=253)]
_PEM = "-----BEGIN CERTIFICATE-----"


class FederatedApi(Model):
    """Another metrics API, which answers what is not the installation's own."""

    name: str = Field(pattern=LABEL_PATTERN, max_length=63)
    """`keda`, `datadog` and `prometheus-adapter` are known; with another name `target` is needed."""
    target: str | None = Field(default=None, pattern=r"^[A-Za-z0-9:/.\[\]-]+$", max_length=400)
    """NAMESPACE/SERVICE:PORT or https://HOST:PORT; absent: that of the project's Helm chart. Its pods are
    reached on port 443, 6443 or 8443."""
    metrics: tuple[MetricPattern, ...] = Field(default=(), max_length=64)
    """Names of its metrics, in which `*` is any text; absent: all that is not ours, with keda those whose
    selector is KEDA's."""
    groups: tuple[Literal["custom", "external"], ...] = ()
    """What it is asked for; absent: what is usual for it, or both."""
    ca_bundle: str | None = Field(default=None, max_length=64_000)
    """CAs of its certificate, as PEM."""
    insecure: bool = False
    """Does not check its certificate; who answers at its address then gets the pods' token."""

    @model_validator(mode="after")
    def _reachable(self) -> "FederatedApi":
        if self.ca_bundle is not None and _PEM not in self.ca_bundle:
            raise ValueError(f"found a caBundle without {_PEM}, expected PEM")
        self.member()
        return self

    @property
    def ca_file(self) -> str:
        """Return the path of its CAs in the pods."""
        return f"/etc/gpuscale/federation/{self.name}/ca.crt"

    @property
    def service(self) -> str | None:
        """Return NAMESPACE/SERVICE of it; None where it is reached by an address."""
        target = self.target or USUAL[self.name].target
        return None if target.startswith("https:") else target.rpartition(":")[0]

    @property
    def is_external(self) -> bool:
        """Return whether it is asked for external metrics."""
        return "external" in (self.groups or _usual_groups(self.name))

    def flag(self) -> str:
        """Return it as the server's flag takes it."""
        options = [f"metrics={each}" for each in self.metrics]
        options += [f"groups={each}" for each in self.groups]
        options += [f"caFile={self.ca_file}"] if self.ca_bundle else []
        options += ["insecure"] if self.insecure else []
        named = f"{self.name}={self.target}" if self.target else self.name
        return ",".join([named, *options])

    def member(self) -> None:
        """Check it as the server does.

        Raises:
            ValueError: the server would refuse it.
        """
        member_of(
            MemberEntry(
                self.name,
                self.target or "",
                groups=list(self.groups),
                metrics=list(self.metrics),
                caFile=self.ca_file if self.ca_bundle else "",
                insecure=self.insecure,
            )
        )


def _usual_groups(name: str) -> tuple[str, ...]:
    usual = USUAL.get(name)
    return ("custom", "external") if usual is None else usual.groups
