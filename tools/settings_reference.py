"""docs/settings.md: every setting of the node agent and the servers, made of their fields.

`make reference` writes the page: `python tools/settings_reference.py > docs/settings.md`.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuscale.agent.exporter.settings import GROUPS as AGENT
from gpuscale.base.flags import FILE_FLAG, Flag
from gpuscale.cli.options.flag_help import flag_names
from gpuscale.server.metricsapi.settings import GROUPS
from gpuscale.server.scaler.settings import GROUPS as SCALER

_START = """# Settings of the node agent, the metrics API server and the scaler

Each setting has a flag, and a key in the YAML file that `--settings` names. Flags without *(ours)* are those
of what is replaced: dcgm-exporter's of the node agent, prometheus-adapter's of the metrics API server.

```yaml
prometheus:
  url: http://prometheus.monitoring:9090
  timeout: 10s
metrics:
  valueMaxAge: 1m
  config: [/etc/rules/ours.yaml, /etc/rules/theirs.yaml]
```

A value of the file means what the flag with that text means, and a flag wins over the file. What can't be is
an error that names the file, the line and the key, and nothing is served. The file is read at the start.
Durations are texts such as `30s` and `1h30m`.

On a cluster, `agent.settings`, `metricsApi.settings` and `scaler.settings` of the [values file](install.md)
hold these keys, without those that the installation sets itself. `render` checks them as the program would,
and the pods get them as such a file.
"""
_AGENT = """
## The node agent

A flag wins over its variable, and both win over the file with settings; that wins over dcgm-exporter's own
file, `--config-file`. Flags may be written as Go programs take them (`-collectors FILE`,
`--kubernetes=false`). One that changes nothing here is accepted, and explained in the log. A duration may be
a number of milliseconds, as dcgm-exporter has it.
"""


def settings_markdown() -> str:
    """Return the page."""
    return "".join(
        (
            _START,
            _AGENT,
            *_tables(AGENT, has_variables=True),
            "\n## The metrics API server\n",
            *_tables(GROUPS),
            "\n## The scaler\n\n",
            "Metrics, Prometheus, Streams, Cluster and Logging are as above, without ",
            f"{_without(GROUPS, SCALER)}.\n",
            *_tables({title: SCALER[title] for title in ("Serving", "Limits")}),
        )
    )


def _without(all_: Mapping[str, Iterable[Flag]], some: Mapping[str, Iterable[Flag]]) -> str:
    has = {flag.name for flags in some.values() for flag in flags}
    names = [
        f"`--{flag.name}`"
        for title in ("Metrics", "Prometheus", "Streams", "Cluster", "Logging")
        for flag in all_[title]
        if flag.name not in has and not flag.no_effect
    ]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _tables(groups: Mapping[str, Iterable[Flag]], *, has_variables: bool = False) -> Iterator[str]:
    columns = ["flag", *(["variable"] if has_variables else []), "key", "default", "what it does"]
    idle: dict[str, list[str]] = {}
    for title, flags in groups.items():
        rows = []
        for flag in flags:
            variable = [f"`{flag.env}`"] if has_variables else []
            if flag.no_effect:
                names = " ".join([f"`--{flag.name}`", *(f"({each})" for each in variable)])
                idle.setdefault(flag.no_effect, []).append(names)
                continue
            ours = " *(ours)*" if flag.is_ours else ""
            default = f"`{flag.default}`" if flag.default else ""
            key = "" if flag.name == FILE_FLAG else f"`{flag.key}`"
            flag_cell = f"{', '.join(f'`{name}`' for name in flag_names(flag))}{ours}"
            rows.append(_row(flag_cell, *variable, key, default, _what(flag)))
        if rows:
            yield f"\n### {title}\n\n{_row(*columns)}{_row(*('---' for _ in columns))}"
            yield from rows
    if idle:
        yield "\n### Accepted, without effect\n\n| flags | why they change nothing |\n| --- | --- |\n"
        yield from (f"| {', '.join(names)} | {why} |\n" for why, names in idle.items())


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _what(flag: Flag) -> str:
    if flag.kind != "choice":
        return flag.help
    return f"{flag.help.removesuffix('.')} ({', '.join(flag.choices)})."


if __name__ == "__main__":
    print(settings_markdown(), end="")
