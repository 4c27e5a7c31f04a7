"""docs/settings.md: every setting of the metrics API server and the scaler, made of their fields.

`make reference` writes the page: `python tools/settings_reference.py > docs/settings.md`.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuscale.base.flags import FILE_FLAG, Flag
from gpuscale.server.metricsapi.settings import GROUPS
from gpuscale.server.scaler.settings import GROUPS as SCALER

_START = """# Settings of the metrics API server and the scaler

Each setting has a flag, and a key in the YAML file that `--settings` names. Flags without *(ours)* are
prometheus-adapter's.

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

On a cluster, `metricsApi.settings` and `scaler.settings` of the [values file](install.md) hold these keys,
without those that the installation sets itself. `render` checks them as the server would, and the pods get
them as such a file.
"""


def settings_markdown() -> str:
    """Return the page."""
    return "".join(
        (
            _START,
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


def _tables(groups: Mapping[str, Iterable[Flag]]) -> Iterator[str]:
    idle: dict[str, list[str]] = {}
    for title, flags in groups.items():
        rows = []
        for flag in flags:
            if flag.no_effect:
                idle.setdefault(flag.no_effect, []).append(f"`--{flag.name}`")
            else:
                ours = " *(ours)*" if flag.is_ours else ""
                default = f"`{flag.default}`" if flag.default else ""
                key = "" if flag.name == FILE_FLAG else f"`{flag.key}`"
                rows.append(f"| `--{flag.name}`{ours} | {key} | {default} | {flag.help} |\n")
        if rows:
            yield f"\n### {title}\n\n| flag | key | default | what it does |\n| --- | --- | --- | --- |\n"
            yield from rows
    if idle:
        yield "\n### Accepted, without effect\n\n| flags | why they change nothing |\n| --- | --- |\n"
        yield from (f"| {', '.join(names)} | {why} |\n" for why, names in idle.items())


if __name__ == "__main__":
    print(settings_markdown(), end="")
