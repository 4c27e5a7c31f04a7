"""`azuread` of a receiver: the login for an Azure Monitor workspace.

Source: prometheus 3.14 storage/remote/azuread (fields, what they may hold, defaults).
"""

import uuid
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gpuscale.server.sources.http.entra import (
    INGESTION_SCOPES,
    ClientSecret,
    EntraLogin,
    ManagedIdentity,
    WorkloadIdentity,
    authority,
    service_account_token,
)
from gpuscale.server.sources.remote_write.models import FileModel

_TENANT = r"^[0-9A-Za-z.-]+$"


def _uuid(value: object) -> str:
    try:
        return str(uuid.UUID(value if isinstance(value, str) else ""))
    except ValueError:
        raise ValueError(f"found {value!r}, expected a UUID") from None


def _uuid_or_none(value: object) -> str:
    return "" if value == "" else _uuid(value)


Uuid = Annotated[str, BeforeValidator(_uuid)]
Tenant = Annotated[str, Field(pattern=_TENANT)]


class ManagedIdentityModel(FileModel):
    """The node's identity; without a client id the only one, or the system-assigned one."""

    client_id: Annotated[str, BeforeValidator(_uuid_or_none)] = ""


class WorkloadIdentityModel(FileModel):
    """An identity that trusts the pod's service account."""

    client_id: Uuid
    tenant_id: Uuid
    token_file_path: Path | None = Field(None, strict=False)

    def login(self, folder: Path) -> WorkloadIdentity:
        path = folder / (self.token_file_path or service_account_token())
        return WorkloadIdentity(self.tenant_id, self.client_id, path)


class OauthModel(FileModel):
    """An application and its secret."""

    client_id: Uuid
    client_secret: str = Field(min_length=1, repr=False)
    tenant_id: Tenant


class AzureAdModel(FileModel):
    """`azuread`: the login for an Azure Monitor workspace; exactly one of three kinds."""

    cloud: Literal["AzurePublic", "AzureGovernment", "AzureChina"] | None = None
    scope: str | None = Field(None, pattern=r"^[\w\s:/.\-]+$")
    managed_identity: ManagedIdentityModel | None = None
    workload_identity: WorkloadIdentityModel | None = None
    oauth: OauthModel | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_no_other(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        for name in ("sdk", "certificate"):
            if isinstance(data, dict) and data.get(name) is not None:
                raise ValueError(
                    f"found {name}, which needs Azure's own libraries and is not supported, "
                    "expected managed_identity, workload_identity or oauth"
                )
        return data

    @model_validator(mode="after")
    def _is_one_way(self) -> Self:
        ways = (self.managed_identity, self.workload_identity, self.oauth)
        count = sum(way is not None for way in ways)
        if count != 1:
            raise ValueError(
                f"found {count or 'none'} of managed_identity, workload_identity and oauth, expected one"
            )
        authority(self.cloud)
        return self

    def login(self, folder: Path) -> EntraLogin:
        """Return the login; relative paths of files start at a folder."""
        identity: ManagedIdentity | ClientSecret | WorkloadIdentity
        if self.workload_identity is not None:
            identity = self.workload_identity.login(folder)
        elif self.oauth is not None:
            oauth = self.oauth
            identity = ClientSecret(oauth.tenant_id, oauth.client_id, oauth.client_secret)
        else:
            identity = ManagedIdentity((self.managed_identity or ManagedIdentityModel()).client_id)
        scope = self.scope or INGESTION_SCOPES[self.cloud or "AzurePublic"]
        return EntraLogin(identity, scope, authority(self.cloud))
