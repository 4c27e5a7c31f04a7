"""The tuned settings of a node pool written into its scenario, whose comments and order stay."""

from pathlib import Path

from gpuscale.base.documents.documents import Path as Place
from gpuscale.base.documents.documents import load_documents
from gpuscale.base.documents.edited import Value, with_values
from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import format_duration
from gpuscale.base.text_files import STDIN, read_text
from gpuscale.base.whole_files import check_writable
from gpuscale.lab import load_policy, read_beside
from gpuscale.lab.plan.tuning import DELAY, MIN_NODES, UNNEEDED, DedicatedPool
from gpuscale.lab.sim.scenario import load_setup, parse_scenario

_MINUTE_MS = 60_000


def scenario_base(file: str, scenario: str | None, *, force: bool) -> str:
    """Return the text of the scenario to write values into: that of the scenario that was tuned.

    Args:
        file: to be written.
        scenario: that is tuned.
        force: whether a file that is there may be changed.

    Raises:
        UsageError: it can't be written, must not be, or there is no scenario's file.
    """
    if scenario is None or not Path(scenario).is_file():
        found = "no scenario" if scenario is None else f"the shipped scenario {scenario}"
        found = "standard input" if scenario == STDIN else found
        raise UsageError(f"--write-scenario: found {found}, expected a scenario's file to tune")
    check_writable([file], "--write-scenario")
    if Path(file).exists() and not force:
        raise UsageError(f"--write-scenario: {file} is there already; --force changes it")
    if Path(file).resolve().parent != Path(scenario).resolve().parent:
        expected = f"one beside {scenario}, whose files it names"
        raise UsageError(f"--write-scenario: found {file}, expected {expected}")
    return read_text(scenario)


def scenario_text(file: str, base: str, pool: DedicatedPool, values: dict[str, float]) -> str:
    """Return a scenario with a pool's tuned values; what stays as it is, is not touched.

    Args:
        file: what messages call it.
        base: the scenario's text.
        pool: as it was.
        values: by name.

    Raises:
        ConfigError: a value can't be put in its place.
    """
    document = load_documents(base, file)[0]
    names = [each.name for each in parse_scenario(base, file)[0].spec.node_pools]
    text = with_values(base, file, document.index, _changes(names.index(pool.name), pool, values))
    load_setup(text, file, lambda name: read_beside(Path(file).parent, name), load_policy)
    return text


def _changes(index: int, pool: DedicatedPool, values: dict[str, float]) -> dict[Place, Value]:
    found: dict[Place, Value] = {}
    if values[MIN_NODES] != pool.nodes.least:
        found["spec", "nodePools", index, "min"] = round(values[MIN_NODES])
    before = {each.name: each.default for each in pool.parameters(0)}
    for name, key in ((UNNEEDED, "unneededTime"), (DELAY, "delayAfterAdd")):
        if values[name] != before[name]:
            duration = format_duration(round(values[name] * _MINUTE_MS))
            found["spec", "nodeAutoscaler", key] = duration
    return found
