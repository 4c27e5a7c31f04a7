"""The tree of errors that gpuscale raises on purpose.

```
GpuscaleError
├── UsageError                    the command line is wrong
│   ├── CredentialError           kube.client.credentials
│   └── PluginError               base.plugins
├── ConfigError                   a file's content is wrong; carries one Problem per fault
│   └── ExpositionError           base.exposition.reading.entries
│       ├── NativeHistogramError  base.exposition.reading.entries
│       └── ScrapeLimitError      series.storage.limits
├── QueryError                    a PromQL text is wrong or uses what is not supported
│   ├── UncoveredError            it needs samples that are no longer kept
│   ├── BadQueryError             series.promql.parse
│   ├── QueryTimeoutError         series.promql.budget
│   ├── TooManyBytesError         series.promql.budget
│   └── TemplateError             base.golang.template.values
├── NotFoundError                 the thing asked for is not there
│   ├── MetricNotFoundError       server.rules.queries.plan
│   ├── NoLabelError              server.rules.resource_labels
│   ├── ObjectNotFoundError       server.metricsapi.wire.statuses
│   └── UnknownResourceError      server.rules.resources
├── UnavailableError              a part outside does not answer; trying again may help
│   ├── ApiUnreachableError       kube.client.errors
│   ├── CallFailedError           agent.nvml.faults
│   ├── CudaError                 load.gpu.driver
│   ├── DcgmError                 agent.dcgm.library
│   ├── DriverGoneError           agent.nvml.faults
│   ├── GpuLostError              agent.nvml.faults
│   ├── KubeletError              agent.attribution.kubelet.allocations
│   ├── ListError                 server.metricsapi.wire.statuses
│   ├── NotDiscoveredError        server.metricsapi.wire.statuses
│   ├── ObjectsUnavailableError   kube.informers.directory
│   ├── PortTakenError            server.page.front
│   ├── TooManyTriggersError      triggers.answer
│   ├── TriggerUnknownError       server.metricsapi.triggers.served
│   └── UnreadableError           ops.observe.lookup
├── UpstreamError                 a part outside answered with an error
│   ├── AmdFault                  agent.amd.library
│   ├── AnsweredError             ops.doctor.direct
│   ├── ApiStatusError            kube.client.errors
│   ├── BeyondLimitError          server.sources.feeds.scraper
│   ├── MetricFetchError          server.rules.queries.plan
│   ├── NotOfTheApiError          server.metricsapi.federation.answers
│   ├── TooLargeError             server.sources.http.session
│   ├── UnexpectedResultError     server.rules.queries.plan
│   └── UnsupportedFormatError    base.exposition.reading.entries
├── BugError                      gpuscale broke one of its own rules
├── ApiError                      series.promapi.body
├── CouldNotLookError             cli.options.cluster
├── ExpiredError                  lab.kube_api.store
├── RefusedError                  server.scaler.known_triggers
├── StreamError                   base.exposition.stream
└── UncomputableError             hpa.types
```

Beside an error of another module is that module, in gpuscale. Branches say what the caller can do. The
command line turns the first two and QueryError into exit code 2.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in one file: where it is, what was found there and what belongs there."""

    source: str
    """File name as the user gave it, or a name such as `<stdin>`."""
    line: int | None
    """1-based; None where the fault is the whole file's."""
    field: str | None
    """Dotted path, column or key; None where the line says it all."""
    found: str | None
    expected: str
    fix: str | None = None
    """What to do, where that is not clear from `expected`."""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        field = f"{self.field}: " if self.field else ""
        found = f"found {self.found}, expected {self.expected}" if self.found else self.expected
        fix = f"; {self.fix}" if self.fix else ""
        return f"{where}: {field}{found}{fix}"


class GpuscaleError(Exception):
    """Base of every error that gpuscale raises on purpose."""


class UsageError(GpuscaleError):
    """The command line asks for something that can't be done."""


class ConfigError(GpuscaleError):
    """A file's content is wrong. Nothing of it was applied."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class QueryError(GpuscaleError):
    """A PromQL text can't be parsed, or uses a part of the language that is not supported."""


class UncoveredError(QueryError):
    """A query needs samples that the store has dropped; its value would be wrong.

    Args:
        message: which ones.
        until_ms: the newest of the samples that are gone, in milliseconds since the epoch.
    """

    def __init__(self, message: str, until_ms: int) -> None:
        super().__init__(message)
        self.until_ms = until_ms


class NotFoundError(GpuscaleError):
    """What was asked for does not exist."""


class UnavailableError(GpuscaleError):
    """A part outside does not answer; the same call may work later."""


class UpstreamError(GpuscaleError):
    """A part outside answered with an error of its own."""


class BugError(GpuscaleError):
    """gpuscale broke one of its own rules; please report it."""
