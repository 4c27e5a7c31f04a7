"""Simulations and searches from Python, for scripts and notebooks. Part of the promised API.

run = gpuscale.simulate("ack-bert", settings=["spec.duration=10m"])
found = gpuscale.tune("ack-bert", policies=["hpa-demand"])
"""

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike, cpu_count
from typing import Any, Literal

from gpuscale.base.errors import UsageError
from gpuscale.base.promises import promise_terms
from gpuscale.lab.tuning import (
    HELD_BACK_PERCENT,
    LIMITS,
    PROMISE,
    SEED,
    TRIES,
    is_within,
)

__all__ = ["Simulation", "Tuning", "simulate", "tune"]

Fidelity = Literal["exact", "lagged", "fluid"]
"""`lagged` is an older name of `exact`."""
_FRAME_HEIGHT = 640
_PLAN = "'gpuscale[plan]'"


@dataclass(frozen=True, slots=True)
class _Answer(ABC):
    document: Mapping[str, Any]
    """As `-o json` prints it."""

    @abstractmethod
    def to_html(self) -> str:
        """Return the page that `--output-file FILE.html` writes."""

    @abstractmethod
    def _columns(self) -> dict[str, list[Any]]:
        """Return the columns of its data frame by name."""

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not installed with gpuscale
        """Return a pandas.DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        return _package("pandas").DataFrame(self._columns())

    def to_polars(self) -> Any:  # noqa: ANN401 - nor is polars
        """Return a polars.DataFrame.

        Raises:
            UsageError: polars is not installed.
        """
        return _package("polars").DataFrame(self._columns())

    def _repr_html_(self) -> str:
        """Return the page in a frame, which is how a notebook shows it."""
        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="{_FRAME_HEIGHT}"></iframe>'


@dataclass(frozen=True, slots=True)
class Simulation(_Answer):
    """A finished run: its document, its series as data frames, its report."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Return GPU-hours, cost and the other figures of the whole run."""
        found: Mapping[str, Any] = self.document["summary"]
        return found

    def to_html(self) -> str:
        """Return the report, one HTML file."""
        from gpuscale.lab.views import render_report

        return render_report(self.document)

    def _columns(self) -> dict[str, list[Any]]:
        """Return the series, a column each; `t` is in seconds from the start."""
        return dict(self.document["series"])


@dataclass(frozen=True, slots=True)
class Tuning(_Answer):
    """What a search found: a row for the HPA as it is, tuned, and for each policy."""

    @property
    def settings(self) -> Mapping[str, float]:
        """Return the tuned settings by name."""
        found: Mapping[str, float] = self.document["rows"][1]["settings"]
        return found

    @property
    def is_gain(self) -> bool:
        """Return whether the settings kept the promise on the scored days and are better than today's.

        `gpuscale tune --write` writes no others.
        """
        return bool(self.document["isGain"])

    @property
    def said(self) -> Sequence[str]:
        """Return what the figures say, a sentence each."""
        found: Sequence[str] = self.document["said"]
        return found

    def to_html(self) -> str:
        """Return the page, one HTML file."""
        from gpuscale.lab.views import render_tuned

        return render_tuned(self.document)

    def _columns(self) -> dict[str, list[Any]]:
        """Return the rows; a setting that a policy does not have is None."""
        rows: list[Mapping[str, Any]] = self.document["rows"]
        flat = [
            {key: value for key, value in row.items() if key != "settings"}
            | {f"settings.{name}": value for name, value in row["settings"].items()}
            for row in rows
        ]
        names = dict.fromkeys(name for row in flat for name in row)
        return {name: [row.get(name) for row in flat] for name in names}


def simulate(
    scenario: str | PathLike[str],
    *,
    settings: Sequence[str] = (),
    seed: int | None = None,
    fidelity: Fidelity = "exact",
    details: bool = False,
) -> Simulation:
    """Run a scenario in virtual time, as `gpuscale simulate` does.

    Args:
        scenario: the name of one that ships with gpuscale, or a file.
        settings: fields of it to set, each as `spec.duration=10m`.
        seed: of this run; None takes the scenario's.
        fidelity: `exact`, what each hop shows, or `fluid`, whole services in steps, for large fleets.
        details: keep the series of single pods and GPUs in a large run too; `fluid` has none.

    Raises:
        UsageError: no such scenario, one that can't be run so, or `fluid` without `gpuscale[plan]`.
        ConfigError: a file is wrong.
    """
    from dataclasses import replace

    from gpuscale.lab import find_setup
    from gpuscale.lab.sim import simulate as run

    setup = find_setup(str(scenario), settings)
    if seed is not None:
        _check_limits(seed=seed)
        setup = replace(setup, seed=seed)
    if fidelity not in {"exact", "lagged", "fluid"}:
        raise UsageError(f"fidelity: found {fidelity!r}, expected exact or fluid")
    if fidelity == "fluid":
        _package("numpy", _PLAN)
    return Simulation(run(setup, fidelity=fidelity, details=details))


def tune(
    scenario: str | PathLike[str] | None = None,
    *,
    demand: str | PathLike[str] | None = None,
    start_up_s: float | None = None,
    seconds_per_request: float | None = None,
    hpa: str | PathLike[str] | None = None,
    workload: str | None = None,
    metric_full: float | None = None,
    price_per_hour: float | None = None,
    currency: str | None = None,
    policies: Sequence[str] = ("hpa-demand",),
    keep: Sequence[str] = (),
    promise: str | Sequence[str] = PROMISE,
    held_back_percent: float = HELD_BACK_PERCENT,
    tries: int = TRIES,
    seed: int = SEED,
    workers: int | None = None,
    on: str | None = None,
    state: str | PathLike[str] | None = None,
    nodes: bool = True,
) -> Tuning:
    """Find the settings of an HPA that cost least and keep enough pods, as `gpuscale tune` does.

    Needs `gpuscale[plan]`.

    Args:
        scenario: the name of one that ships with gpuscale, or a file; or `demand` instead.
        demand: a CSV file with `time` and `demand`, or `rate` with `seconds_per_request`.
        start_up_s: from the order of a pod until it serves; None takes the scenario's.
        seconds_per_request: that one request takes of one pod.
        hpa: a manifest with the HPA; None takes the scenario's, or the defaults.
        workload: the Deployment, where a scenario has several.
        metric_full: what the HPA's metric says when pods are busy all the time.
        price_per_hour: of a node.
        currency: of the price.
        policies: compared with the HPA, by name.
        keep: settings that stay as they are.
        promise: to users, such as `wait=5s:99.5%`; several are kept together.
        held_back_percent: of the days, at the end, that are scored and not searched.
        tries: settings tried in breadth, of each policy.
        seed: of what is tried.
        workers: threads; None takes one per core.
        on: `dask://HOST:PORT` or `ray://HOST:PORT`.
        state: a file that keeps what was tried.
        nodes: whether a scenario's node pool is searched together with the HPA, where it can be.

    Raises:
        UsageError: a number out of its limits, arguments that don't go together, an HPA that can't be
            replayed, or no `gpuscale[plan]`.
        ConfigError: a file is wrong.
    """
    _package("numpy", _PLAN)
    from gpuscale.base.text_files import read_text
    from gpuscale.lab import find_setup
    from gpuscale.lab.tuning import (
        Overrides,
        Promise,
        TuningRequest,
        answer,
        manifest_of,
        of_demand,
        of_setup,
        policy_names,
    )

    if (scenario is None) == (demand is None):
        both = "neither" if scenario is None else "both"
        raise UsageError(f"found {both}, expected a scenario or a demand")
    _check_limits(
        start_up_s=start_up_s,
        seconds_per_request=seconds_per_request,
        metric_full=metric_full,
        price_per_hour=price_per_hour,
        held_back_percent=held_back_percent,
        tries=tries,
        seed=seed,
        workers=workers,
    )
    given = Overrides(
        start_up_s,
        price_per_hour=price_per_hour,
        currency=currency,
        metric_full=metric_full,
    )
    asked = TuningRequest(
        policy_names(policies or ("none",)),
        Promise(promise_terms("promise", [promise] if isinstance(promise, str) else promise)),
        held_back_percent / 100,
        tries,
        seed,
        workers or cpu_count() or 1,
        tuple(keep),
        on,
        None if state is None else str(state),
        nodes,
    )
    manifest = None if hpa is None else manifest_of(str(hpa), read_text(str(hpa)))
    if scenario is not None:
        setup = find_setup(str(scenario))
        found, autoscaler = of_setup(setup, str(scenario), workload, manifest, given)
    else:
        found, autoscaler = of_demand(
            str(demand), "time", None, seconds_per_request, manifest, given
        )
    return Tuning(answer(found, autoscaler, asked).document)


def _check_limits(**given: float | None) -> None:
    """Raise UsageError for the first number that is out of its limits."""
    for name, value in given.items():
        limits = LIMITS[name]
        if value is not None and not is_within(name, value):
            upper = "or more" if limits.highest == math.inf else f"to {limits.highest:,.10g}"
            raise UsageError(f"{name}: found {value!r}, expected {limits.lowest:g} {upper}")


def _package(name: str, install: str = "") -> Any:  # noqa: ANN401 - a module of no base dependency
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise UsageError(
            f"found no Python package {name}; install it with: pip install {install or name}"
        ) from None
