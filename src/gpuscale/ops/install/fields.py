"""Types of text in a values file: addresses, selectors, rule files, images."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.objects.taints import parse_startup_key
from gpuscale.ops.install.image import (
    REPOSITORY_PATTERN,
    TAG_PATTERN,
    checked_repository,
    checked_tag,
)
from gpuscale.series.rules import load_rule_groups
from gpuscale.server.sources.feeds import exporters
from gpuscale.server.sources.ruler import alerts_url
from gpuscale.signals import load_counters

Word = Annotated[str, Field(pattern=r"^[^\s\"'`$\\{}]+$", max_length=512)]
"""A text that is put into addresses, arguments and scripts; nothing that a shell or a template would read."""
StartupKey = Annotated[
    str,
    Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", max_length=317),
    AfterValidator(parse_startup_key),
]
"""Key of a start-up taint of one's own."""
MAX_TARGET = 999_999
"""Larger numbers are printed with an exponent by Helm."""
Target = Annotated[float, Field(gt=0, le=MAX_TARGET, multiple_of=0.001)]
Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
"""An id of Azure, such as that of a tenant or an identity."""
Repository = Annotated[
    str,
    Field(max_length=255, json_schema_extra={"pattern": REPOSITORY_PATTERN}),
    AfterValidator(checked_repository),
]
Tag = Annotated[str, Field(json_schema_extra={"pattern": TAG_PATTERN}), AfterValidator(checked_tag)]


def _selector(text: str) -> str:
    parse_selector(text)
    return text


LabelSelector = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_./=!,() -]+$", max_length=512), AfterValidator(_selector)
]
"""As kubectl takes it with `--selector`."""


def _rule_file(text: str) -> str:
    try:
        load_rule_groups(text, "rules")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


RuleFileText = Annotated[str, Field(max_length=900_000), AfterValidator(_rule_file)]


def _exporter_pods(text: str) -> str:
    try:
        for each in text.split(","):
            exporters(each.strip())
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


ExporterPods = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_./=, -]+$", max_length=2048), AfterValidator(_exporter_pods)
]
"""As the metrics API takes it with `--exporter-pods`."""


def _alertmanager_url(text: str) -> str:
    try:
        alerts_url(text)
        urlsplit(text).port  # noqa: B018 - raises where it is none
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


AlertmanagerUrl = Annotated[
    str,
    Field(pattern=r"^https?://[^\s\"'`$\\{},]+$", max_length=512),
    AfterValidator(_alertmanager_url),
]


def _counters_csv(text: str) -> str:
    try:
        load_counters(text, "customMetrics")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


CountersCsv = Annotated[str, Field(max_length=900_000), AfterValidator(_counters_csv)]
