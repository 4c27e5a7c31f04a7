"""The settings that decide a server's values: rules, source, objects of the cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpuscale.base.flags import FILE_FLAG, FlagReader
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.settings import (
    MILLISECONDS,
    NUMBER,
    PATH,
    PATHS,
    REPEATED_ITEMS,
    SECONDS,
    SWITCH,
    converted,
    made,
    part,
    read,
)
from gpuscale.server.metricsapi.source_settings import SourceSettings
from gpuscale.server.panels import CLUSTER, LOGGING, METRICS
from gpuscale.server.rules.budget import DEFAULT_BUDGET, RuleBudget
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.ruler.settings import RulerSettings
from gpuscale.server.sources.source import SOURCE_PLUGINS, SourceKind

_SOURCES = ("prometheus", "streams")


def _has_preset(flags: FlagReader) -> bool:
    preset, has_paths = flags.choice("preset", "auto", "on", "off"), bool(flags.every("config"))
    nothing_is_served = not has_paths and preset == "off" and not flags.text("rules-configmaps")
    if nothing_is_served or "" in flags.every("config"):
        flags.fault("--config: found nothing, expected a rule file")
    return preset == "on" or (preset == "auto" and not has_paths)


def _selector(text: str) -> str:
    parse_selector(text)
    return text


def _budget(flags: FlagReader) -> RuleBudget:
    return RuleBudget(
        rules=flags.number("rules-max-per-namespace") or DEFAULT_BUDGET.rules,
        longest_range_ms=round(flags.seconds("rules-max-range") * 1000)
        or DEFAULT_BUDGET.longest_range_ms,
    )


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Which files, presets and ConfigMaps rules are read from."""

    paths: tuple[Path, ...] = METRICS.option(
        PATHS,
        "config",
        "Rule file, or folder with rule files; read again when they change. May be given several times.",
    )
    """Later ones come before earlier ones where they give one name."""
    has_preset: bool = made(
        _has_preset,
        METRICS.flag(
            "preset",
            "Whether the rules for GPUs and model servers are there too: on, off, or auto, "
            "which is where there is no --config.",
            default="auto",
            choices=("auto", "on", "off"),
            is_ours=True,
        ),
        usual=lambda: True,
    )
    config_maps: str = METRICS.option(
        converted(_selector, ""),
        "rules-configmaps",
        "Label selector of ConfigMaps with rules of teams, such as gpuscale.dev/rules=true; "
        "none are read if empty.",
        is_ours=True,
    )
    namespace_labels: tuple[str, ...] = METRICS.option(
        REPEATED_ITEMS,
        "rules-namespace-labels",
        "Labels of series, one of which teams' rules are bound to their namespace by.",
        "namespace",
        is_ours=True,
    )
    namespaces: str = METRICS.option(
        converted(_selector, ""),
        "rules-namespaces",
        "Label selector of the namespaces whose ConfigMaps count, such as gpuscale.dev/rules=allowed; "
        "all if empty.",
        is_ours=True,
    )
    budget: RuleBudget = made(
        _budget,
        METRICS.flag(
            "rules-max-per-namespace",
            "Rules that the ConfigMaps of a namespace may have together.",
            "int",
            "200",
            is_ours=True,
        ),
        METRICS.flag(
            "rules-max-range",
            "How far back the queries of teams' rules may look, with ranges, subqueries and offsets.",
            "duration",
            "1h",
            is_ours=True,
        ),
    )
    """Of each namespace."""


def _most_freshness_ms(flags: FlagReader) -> int:
    """Return how old answers may get once scrape intervals are learned; 0 if the server learns none.

    Agents' streams bring a sample each second, and a user who gives a freshness means it.
    """
    most_ms = round(flags.seconds("value-freshness-max") * 1000)
    is_stream = flags.text("source") == "streams"
    return 0 if is_stream or flags.is_given("value-freshness") else most_ms


def _source_plugin(flags: FlagReader) -> SourceKind | None:
    name = flags.text("source")
    plugin = None if name in _SOURCES else SOURCE_PLUGINS.find(name)
    if plugin is None:
        flags.choice("source", *_SOURCES)
    return plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """The settings of a server's rules, source and objects."""

    rules: RuleSettings = part(RuleSettings)
    plugin: SourceKind | None = made(
        _source_plugin,
        METRICS.flag(
            "source",
            "Where values come from: prometheus, or streams of node agents and scrapes without a Prometheus.",
            default="prometheus",
            is_ours=True,
        ),
    )
    """What is asked in place of a Prometheus; None where there is no such."""
    freshness_ms: int = METRICS.option(
        MILLISECONDS,
        "value-freshness",
        "How old an answer of the source may be when it serves another request; 0 asks for each. Unless"
        " given, more where samples come seldom.",
        "1s",
        is_ours=True,
    )
    most_freshness_ms: int = made(
        _most_freshness_ms,
        METRICS.flag(
            "value-freshness-max",
            "The most that --value-freshness becomes, unless that is given: a fifth of the time between two"
            " samples.",
            "duration",
            "3s",
            is_ours=True,
        ),
        usual=int,
    )
    widens_queries: bool = METRICS.option(
        SWITCH,
        "widen-queries",
        "Ask for the objects of several requests in one query, where that gives the same.",
        "true",
        is_ours=True,
    )
    max_value_age_s: float | None = METRICS.option(
        SECONDS.unless_zero(None),
        "value-max-age",
        "A value that was measured longer ago, or over 10 s in the future, is absent; 0 is no limit.",
        "2m",
        is_ours=True,
    )
    relist_interval_s: float = METRICS.option(
        SECONDS, "metrics-relist-interval", "From one discovery of metrics to the next.", "10m"
    )
    max_age_s: float | None = METRICS.option(
        SECONDS.unless_zero(None),
        "metrics-max-age",
        "How old a series may be for its metrics to be listed; 0 is the relist interval.",
        "0s",
    )
    source: SourceSettings = part(SourceSettings)
    kubeconfig: Path | None = CLUSTER.option(
        PATH,
        "lister-kubeconfig",
        "Kubeconfig to look up objects with, also as --kubeconfig; the pod's service account if empty.",
        key="kubeconfig",
    )
    max_object_age_s: float = CLUSTER.option(
        SECONDS.unless_zero(float("inf")),
        "object-max-age",
        "How long the list of objects counts after the API server last confirmed it; after that, * is an "
        "error. 0 is no limit.",
        "60s",
        is_ours=True,
    )
    discovery_interval_s: float = CLUSTER.option(
        SECONDS.unless_zero(60.0),
        "discovery-interval",
        "How often the cluster's resources are looked up; 0 is every minute.",
        "0s",
    )
    verbosity: int = LOGGING.option(
        NUMBER,
        "v",
        "From 4 on, every query is logged too, and why objects have no value.",
        "0",
        alias="v",
        key="verbosity",
    )
    feeds: FeedSettings | None = None
    """What fills the store where there is no Prometheus; None where there is one."""
    ruler: RulerSettings = part(RulerSettings)
    """Prometheus rules over that store."""
    context: str | None = None
    """Of the kubeconfigs; their current one when None."""
    notes: tuple[str, ...] = ()
    """What to say of flags that change nothing here."""


COMMON_OF_VALUES = frozenset(
    {
        FILE_FLAG,
        "config",
        "preset",
        "source",
        "value-max-age",
        "prometheus-url",
        "prometheus-ca-file",
        "prometheus-token-file",
        "prometheus-identity",
        "prometheus-header",
        "prometheus-username",
        "prometheus-password-file",
        "agent-service",
        "agent",
        "scrape",
        "lister-kubeconfig",
        "v",
    }
)
"""Flags of where values come from that most users need."""

_Backend = TypeVar("_Backend", bound=BackendSettings)


def read_backend(kind: type[_Backend], flags: FlagReader, **others: object) -> _Backend:
    """Return the settings; their faults are collected by the reader, which raises them together.

    Args:
        kind: those of the server.
        flags: given and not given.
        others: fields that are not to be read, but to be these.
    """
    others.setdefault(
        "feeds", read(FeedSettings, flags) if flags.text("source") == "streams" else None
    )
    return read(kind, flags, notes=flags.notes(), **others)
