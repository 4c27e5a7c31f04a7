"""The metrics API's credentials for Prometheus, in the Prometheus Operator's form."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.base.documents.validation import SUBDOMAIN_PATTERN

Text = Annotated[str, Field(pattern=r"^[^\s\"'`$\\{}]+$", max_length=512)]
PrometheusKind = Literal["own", "operator", "plain", "azure"]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)]


def _without_password(text: str) -> str:
    if "@" in urlsplit(text).netloc:
        raise ValueError(
            "found a user or password in the address, which everyone who may see Deployments could read; "
            "expected prometheus.auth.basicAuth, with the password in a Secret"
        )
    return text


PrometheusUrl = Annotated[
    Text,
    AfterValidator(_without_password),
    Field(json_schema_extra={"pattern": r"^https?://[^\s\"'`$\\{}@/]+(/[^\s\"'`$\\{}]*)?$"}),
]


class KeyReference(Model):
    """One key of a Secret, or of a ConfigMap, in the installation's namespace."""

    name: str = Field(
        pattern=SUBDOMAIN_PATTERN, max_length=253, description="Name of the Secret or ConfigMap."
    )
    key: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", max_length=253, description="Key in it whose value is taken."
    )


class SecretOrConfigMap(Model):
    """One key of a Secret or of a ConfigMap."""

    secret: KeyReference | None = Field(default=None, description="A Secret's key.")
    config_map: KeyReference | None = Field(default=None, description="A ConfigMap's key.")

    @model_validator(mode="after")
    def _is_one(self) -> "SecretOrConfigMap":
        if (self.secret is None) == (self.config_map is None):
            raise ValueError("found both or neither of secret and configMap, expected one")
        return self


class Authorization(Model):
    """A bearer token."""

    credentials: KeyReference = Field(
        description="Secret with the token; a token that is renewed is used within seconds."
    )


class BasicAuth(Model):
    """Basic authentication."""

    username: Text | KeyReference = Field(
        description="The user, as text or as the key of a Secret, which is read when a pod starts."
    )
    password: KeyReference = Field(
        description="Secret with the password; a password that is changed is used within seconds."
    )


class TlsConfig(Model):
    """TLS to Prometheus."""

    ca: SecretOrConfigMap | None = Field(
        default=None, description="CAs that its certificate is verified by; null: the public ones."
    )
    cert: SecretOrConfigMap | None = Field(default=None, description="Client certificate.")
    key_secret: KeyReference | None = Field(
        default=None, description="Key of the client certificate."
    )

    @model_validator(mode="after")
    def _is_pair(self) -> "TlsConfig":
        if (self.cert is None) != (self.key_secret is None):
            raise ValueError("found one of cert and keySecret, expected both or neither")
        return self


class PrometheusAuth(Model):
    """Credentials for Prometheus, from Secrets in the installation's namespace."""

    authorization: Authorization | None = Field(default=None, description="A bearer token.")
    basic_auth: BasicAuth | None = Field(default=None, description="A user and a password.")
    headers: dict[HeaderName, Text | KeyReference] = Field(
        default={},
        description="Headers of every request, such as X-Scope-OrgID for a tenant of Mimir or Cortex: text, "
        "or the key of a Secret, which is read when a pod starts.",
    )
    tls_config: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _is_one_way(self) -> "PrometheusAuth":
        if self.authorization is not None and self.basic_auth is not None:
            raise ValueError("found authorization and basicAuth, expected one of them")
        return self
