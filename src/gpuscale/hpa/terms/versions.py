"""What a Kubernetes release does to HPAs: its feature gates, and how its controller takes a count of 0.

Source: kubernetes v1.37 pkg/features/kube_features.go; KEP-2021 (scale to zero) and KEP-4951 (tolerance) with
    the stages up to v1.37.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from gpuscale.hpa.types import DEFAULT_SETTINGS, ControllerSettings

Stage = Literal["absent", "alpha", "beta", "stable"]

_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(\+|[.+-].*)?")
VERSION_EXAMPLE = "a Kubernetes version such as 1.36 or v1.36.3"


@dataclass(frozen=True, slots=True, order=True)
class KubernetesVersion:
    """A minor release of Kubernetes; gates don't change within one."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_version(text: str) -> KubernetesVersion:
    """Return the release of a version such as 1.36, v1.36.3 or v1.31.4-gke.1200; patches don't count.

    Raises:
        ValueError: it is none.
    """
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"found {text!r}, expected {VERSION_EXAMPLE}")
    return KubernetesVersion(int(found[1]), int(found[2]))


def version_or_none(text: str | None) -> KubernetesVersion | None:
    """Parse a server's version; None if it is unreadable."""
    try:
        return None if text is None else parse_version(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """A feature gate of kube-apiserver and kube-controller-manager: the first releases of its stages."""

    name: str
    alpha: KubernetesVersion
    """Off unless it is turned on."""
    beta: KubernetesVersion
    """On unless it is turned off."""
    stable: KubernetesVersion | None = None
    """On, without a gate."""

    def stage(self, version: KubernetesVersion) -> Stage:
        """Return how far the feature is in a release."""
        if self.stable is not None and version >= self.stable:
            return "stable"
        if version >= self.beta:
            return "beta"
        return "alpha" if version >= self.alpha else "absent"

    def is_on(self, version: KubernetesVersion) -> bool:
        """Return whether a release has the feature unless somebody set the gate."""
        return version >= self.beta

    @property
    def last_alpha(self) -> KubernetesVersion:
        """The last release in which it is off."""
        return replace(self.beta, minor=self.beta.minor - 1)


def _v1(minor: int) -> KubernetesVersion:
    return KubernetesVersion(1, minor)


SCALE_TO_ZERO = FeatureGate("HPAScaleToZero", alpha=_v1(16), beta=_v1(37))
TOLERANCE = FeatureGate("HPAConfigurableTolerance", alpha=_v1(33), beta=_v1(35), stable=_v1(37))
HPA_GENERATION = FeatureGate("HPAGeneration", alpha=_v1(37), beta=_v1(37))
"""`metadata.generation` and `status.observedGeneration` of HPAs."""
MARKS_ZERO = _v1(36)
"""From here on the condition ScaledToZero tells the controller's own zero from a pause."""


def settings_of(version: KubernetesVersion | None) -> ControllerSettings:
    """Return the default settings of a release's controller; None means the modelled release."""
    if version is None:
        return DEFAULT_SETTINGS
    return replace(
        DEFAULT_SETTINGS,
        scale_to_zero=SCALE_TO_ZERO.is_on(version),
        minor=version.minor,
    )
