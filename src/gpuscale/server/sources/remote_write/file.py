"""The `remote_write` section of a file in Prometheus' configuration format.

The only reader of this form; whatever has no such file does without pydantic.

Source: prometheus documentation, configuration (remote_write), and config/config.go for the defaults.
"""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator
from yarl import URL

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.documents.validation import validation_problems
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.server.sources.remote_write.azure_metrics import AzureMetricsModel
from gpuscale.server.sources.remote_write.azuread import AzureAdModel
from gpuscale.server.sources.remote_write.models import FileModel, RelabelModel, Seconds
from gpuscale.server.sources.remote_write.settings import LABEL_NAME, RemoteWriteEndpoint, check_url

MAX_ENDPOINTS = 16
_RESERVED_HEADERS = frozenset(
    {
        "authorization",
        "host",
        "content-encoding",
        "content-length",
        "content-type",
        "user-agent",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "x-prometheus-remote-write-version",
    }
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BasicAuthModel(FileModel):
    """A user, and a password or a file with it."""

    username: str
    password: str = Field("", repr=False)
    password_file: Path | None = Field(None, strict=False)


class AuthorizationModel(FileModel):
    """Credentials, or a file with them."""

    type: str = "Bearer"
    credentials: str = Field("", repr=False)
    credentials_file: Path | None = Field(None, strict=False)

    @model_validator(mode="after")
    def _is_one_way(self) -> Self:
        if self.credentials_file is not None and self.credentials:
            raise ValueError("found credentials and credentials_file, expected one of them")
        if self.credentials_file is not None and self.type != "Bearer":
            raise ValueError(f"found {self.type} with a credentials_file, expected Bearer")
        return self


class TlsModel(FileModel):
    """CAs to trust, and a client certificate."""

    ca_file: Path | None = Field(None, strict=False)
    cert_file: Path | None = Field(None, strict=False)
    key_file: Path | None = Field(None, strict=False)
    server_name: str = ""
    insecure_skip_verify: bool = False


class QueueModel(FileModel):
    """`queue_config`. The queue is the store itself, so `capacity` bounds what is encoded ahead."""

    capacity: int = Field(10_000, ge=1)
    max_shards: int = Field(4, ge=1)
    min_shards: int = Field(1, ge=1)
    max_samples_per_send: int = Field(2_000, ge=1, le=100_000)
    batch_send_deadline: Seconds = Field(5.0, gt=0, le=3600)
    min_backoff: Seconds = Field(0.03, gt=0, le=3600)
    max_backoff: Seconds = Field(5.0, gt=0, le=3600)
    retry_on_http_429: bool = True
    sample_age_limit: Seconds = Field(0.0, ge=0)


class EndpointModel(FileModel):
    """One entry of `remote_write`."""

    url: str
    name: str = ""
    remote_timeout: Seconds = Field(30.0, gt=0, le=3600)
    headers: dict[str, str] = {}
    basic_auth: BasicAuthModel | None = None
    authorization: AuthorizationModel | None = None
    azuread: AzureAdModel | None = None
    tls_config: TlsModel = TlsModel.model_validate({})
    write_relabel_configs: list[RelabelModel] = []
    queue_config: QueueModel = QueueModel.model_validate({})

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        check_url(self.url)
        if (self.tls_config.cert_file is None) != (self.tls_config.key_file is None):
            raise ValueError("found one of cert_file and key_file, expected both or none")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or "\n" in value or "\r" in value:
                raise ValueError(f"found {name!r}, expected the name of a header and one line")
            if name.lower() in _RESERVED_HEADERS:
                raise ValueError(f"found the header {name}, which can't be set here")
        ways = (self.basic_auth, self.authorization, self.azuread, URL(self.url).user)
        if sum(way is not None for way in ways) > 1:
            raise ValueError(
                "found more than one of basic_auth, authorization, azuread and a user in the url, "
                "expected one way to show who writes"
            )
        return self


class GlobalModel(FileModel):
    """`global`."""

    external_labels: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        for name in self.external_labels:
            if not LABEL_NAME.fullmatch(name):
                raise ValueError(f"found {name!r}, expected the name of a label")
        return self


class RemoteWriteModel(FileModel):
    """The whole file: the parts of Prometheus' own that concern remote write, and one of ours."""

    globals_: GlobalModel = Field(GlobalModel(), alias="global")
    remote_write: list[EndpointModel] = Field([], max_length=MAX_ENDPOINTS)
    azure_custom_metrics: list[AzureMetricsModel] = Field([], max_length=MAX_ENDPOINTS)


def read_file(path: Path) -> tuple[RemoteWriteEndpoint, ...]:
    """Return the receivers of a file, or of `remote-write.yaml` in a folder; none if the folder has none.

    Raises:
        ConfigError: it can't be read, or says something wrong.
    """
    if path.is_dir():
        path /= "remote-write.yaml"
        if not path.exists():
            return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            Problem(str(path), None, None, None, f"can't be read: {reason}")
        ) from None
    documents = load_documents(text, str(path))
    if len(documents) != 1:
        found = f"{len(documents)} documents"
        raise ConfigError(Problem(str(path), None, None, found, "one with remote_write"))
    try:
        model = RemoteWriteModel.model_validate(documents[0].data)
    except ValidationError as error:
        found_errors = error.errors(include_url=False)
        schema = RemoteWriteModel.model_json_schema
        raise ConfigError(*validation_problems(documents[0], found_errors, schema)) from None
    labels = model.globals_.external_labels
    return (
        *(_endpoint(each, labels, path.parent) for each in model.remote_write),
        *(each.endpoint(labels, path.parent) for each in model.azure_custom_metrics),
    )


def _endpoint(model: EndpointModel, labels: Mapping[str, str], folder: Path) -> RemoteWriteEndpoint:
    """Return the receiver; its files are found from the folder of the file that names them."""
    headers = list(model.headers.items())
    basic, authorization, tls, queue = (
        model.basic_auth,
        model.authorization,
        model.tls_config,
        model.queue_config,
    )
    username, password_file = None, None
    if basic is not None:
        if basic.password:
            pair = base64.b64encode(f"{basic.username}:{basic.password}".encode()).decode()
            headers.append(("Authorization", f"Basic {pair}"))
        else:
            username, password_file = basic.username, basic.password_file
    if authorization is not None and authorization.credentials_file is None:
        value = f"{authorization.type} {authorization.credentials}"
        headers.append(("Authorization", value))
    return RemoteWriteEndpoint(
        url=model.url,
        name=model.name,
        timeout_s=model.remote_timeout,
        headers=tuple(headers),
        username=username,
        password_file=_from(folder, password_file),
        token_file=_from(folder, authorization.credentials_file if authorization else None),
        azure_login=None if model.azuread is None else model.azuread.login(folder),
        ca_file=_from(folder, tls.ca_file),
        client_files=None
        if tls.cert_file is None or tls.key_file is None
        else (folder / tls.cert_file, folder / tls.key_file),
        server_name=tls.server_name,
        verifies=not tls.insecure_skip_verify,
        external_labels=tuple(labels.items()),
        rules=tuple(each.rule() for each in model.write_relabel_configs),
        requests=max(1, min(queue.max_shards, queue.capacity // queue.max_samples_per_send, 16)),
        max_samples=queue.max_samples_per_send,
        interval_s=queue.batch_send_deadline,
        min_backoff_s=queue.min_backoff,
        max_backoff_s=max(queue.min_backoff, queue.max_backoff),
        retries_429=queue.retry_on_http_429,
        max_age_s=queue.sample_age_limit,
    )


def _from(folder: Path, path: Path | None) -> Path | None:
    return None if path is None else folder / path
