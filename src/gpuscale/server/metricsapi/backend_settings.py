"""What the values of a server come from, from its flags: rules, a source, objects of the cluster."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.flags import FlagReader
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.server.metricsapi.source_settings import SourceSettings, source_settings
from gpuscale.server.rules.budget import DEFAULT_BUDGET, RuleBudget
from gpuscale.server.sources.ruler.settings import (
    INTERVAL_MS,
    AlertmanagerSettings,
    RulerSettings,
    alerts_url,
)
from gpuscale.server.sources.source import SOURCE_PLUGINS, SourceKind

if TYPE_CHECKING:
    from gpuscale.server.sources.feeds.settings import FeedSettings

_SOURCES = ("prometheus", "streams")


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Where rules come from."""

    paths: tuple[Path, ...]
    """Files, and folders with files; later ones come before earlier ones where they give one name."""
    has_preset: bool
    config_maps: str
    """Label selector of teams' ConfigMaps; empty for none."""
    namespace_labels: tuple[str, ...]
    """The labels of series that are trusted to distinguish teams' namespaces."""
    namespaces: str = ""
    """Label selector of the namespaces whose ConfigMaps count; empty for all."""
    budget: RuleBudget = DEFAULT_BUDGET
    """Of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """What a server's values come from."""

    rules: RuleSettings
    relist_interval_s: float
    max_age_s: float | None
    kubeconfig: Path | None
    """None is the pod's service account."""
    discovery_interval_s: float
    source: SourceSettings
    verbosity: int = 0
    feeds: "FeedSettings | None" = None
    """What fills the store where there is no Prometheus; None where there is one."""
    plugin: SourceKind | None = None
    """What is asked in place of a Prometheus; None where there is no such."""
    ruler: RulerSettings = field(default_factory=RulerSettings)
    """Prometheus rules over that store."""
    freshness_ms: int = 0
    """How old an answer of the source may be when it serves another request."""
    most_freshness_ms: int = 0
    """The same where samples come seldom; 0 where it makes no difference."""
    widens_queries: bool = True
    """Whether one query may serve many different requests."""
    max_value_age_s: float | None = None
    """None for any age."""
    max_object_age_s: float = 60.0
    """How long a copy of the cluster's objects counts after the API server last confirmed it."""
    context: str | None = None
    """Of the kubeconfigs; their current one when None."""
    notes: tuple[str, ...] = ()
    """What to say of flags that change nothing here."""


def backend_settings(flags: FlagReader) -> BackendSettings:
    """Return what values come from by these flags; their faults are the reader's to raise."""
    feeds = None
    if flags.text("source") == "streams":
        # A server in front of a Prometheus starts without all that follows targets.
        from gpuscale.server.metricsapi.feed_settings import feed_settings

        feeds = feed_settings(flags)
    return BackendSettings(
        rules=_rules(flags),
        relist_interval_s=flags.seconds("metrics-relist-interval"),
        max_age_s=flags.seconds("metrics-max-age") or None,
        kubeconfig=flags.path("lister-kubeconfig"),
        discovery_interval_s=flags.seconds("discovery-interval") or 60.0,
        source=source_settings(flags),
        feeds=feeds,
        plugin=_source_plugin(flags),
        ruler=_ruler(flags),
        freshness_ms=round(flags.seconds("value-freshness") * 1000),
        most_freshness_ms=_most_freshness_ms(flags),
        widens_queries=flags.boolean("widen-queries"),
        max_value_age_s=flags.seconds("value-max-age") or None,
        max_object_age_s=flags.seconds("object-max-age") or float("inf"),
        verbosity=flags.number("v"),
        notes=flags.notes(),
    )


def _most_freshness_ms(flags: FlagReader) -> int:
    """Return the most that freshness may become by what is learned; 0 where nothing is to be learned.

    Agents' streams bring a sample each second, and a user who gives a freshness means it.
    """
    most_ms = round(flags.seconds("value-freshness-max") * 1000)
    is_stream = flags.text("source") == "streams"
    return 0 if is_stream or flags.is_given("value-freshness") else most_ms


def _source_plugin(flags: FlagReader) -> SourceKind | None:
    """Return the plug-in that values come from; None for what is built in."""
    name = flags.text("source")
    plugin = None if name in _SOURCES else SOURCE_PLUGINS.find(name)
    if plugin is None:
        flags.choice("source", *_SOURCES)
    return plugin


def _rules(flags: FlagReader) -> RuleSettings:
    paths = tuple(Path(text) for text in flags.every("config"))
    preset = flags.choice("preset", "auto", "on", "off")
    config_maps = flags.text("rules-configmaps")
    namespaces = flags.text("rules-namespaces")
    for name in ("rules-configmaps", "rules-namespaces"):
        flags.converted(name, parse_selector, None)
    budget = RuleBudget(
        rules=flags.number("rules-max-per-namespace") or DEFAULT_BUDGET.rules,
        longest_range_ms=round(flags.seconds("rules-max-range") * 1000)
        or DEFAULT_BUDGET.longest_range_ms,
    )
    nothing_is_served = not paths and preset == "off" and not config_maps
    if nothing_is_served or "" in flags.every("config"):
        flags.fault("--config: found nothing, expected a rule file")
    return RuleSettings(
        paths,
        preset == "on" or (preset == "auto" and not paths),
        config_maps,
        flags.items("rules-namespace-labels"),
        namespaces,
        budget,
    )


def _ruler(flags: FlagReader) -> RulerSettings:
    paths = tuple(Path(text) for text in flags.every("prometheus-rules"))
    if Path() in paths:
        flags.fault("--prometheus-rules: found nothing, expected a rule file or a folder")
    if paths and flags.text("source") != "streams":
        flags.fault(
            "--prometheus-rules: found it beside --source=prometheus, which evaluates its own rules; "
            "expected --source=streams"
        )
    interval_ms = round(flags.seconds("evaluation-interval") * 1000)
    urls = flags.items("alertmanager")
    if urls and not paths:
        flags.fault(
            "--alertmanager: found it alone, expected --prometheus-rules beside it, whose alerts are sent"
        )
    flags.each("alertmanager", urls, alerts_url)
    alertmanagers = AlertmanagerSettings(
        urls=urls,
        username=flags.text("alertmanager-username") or None,
        password_file=flags.path("alertmanager-password-file"),
        token_file=flags.path("alertmanager-token-file"),
        ca_file=flags.path("alertmanager-ca-file"),
        client_files=flags.pair(
            "alertmanager-client-tls-cert-file", "alertmanager-client-tls-key-file"
        ),
    )
    return RulerSettings(
        paths, interval_ms or INTERVAL_MS, flags.text("external-url"), alertmanagers
    )
