"""Parses triggers: metadata of KEDA's triggers, and files with the same keys.

Every fault is found at once, each with its key, and with the name that was probably meant.
"""

from collections.abc import Iterator, Mapping

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.words import closest, printable
from gpuscale.triggers.keys import Note
from gpuscale.triggers.policy_keys import PolicyCheck, any_policy
from gpuscale.triggers.reading import ENTRY_KEYS, KEYS, TriggerReader
from gpuscale.triggers.trigger import Trigger

KEDA_KEYS = frozenset(
    {
        *("scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile", "caCert", "tlsClientCert"),
        *("tlsClientKey", "authModes", "metricType"),
    }
)
"""What KEDA's triggers of type external carry for KEDA itself."""
_FROM_ENV = "FromEnv"
MAX_TRIGGERS = 5_000
"""In one file."""
_MAX_SHOWN = 80


def read_metadata(
    metadata: Mapping[str, str],
    namespace: str,
    source: str = "trigger metadata",
    check: PolicyCheck = any_policy,
) -> Trigger:
    """Return the trigger of a ScaledObject's or ScaledJob's metadata.

    Args:
        metadata: flat texts, as KEDA sends them; KEDA's own keys pass. A key that ends in FromEnv has its
            value from the environment, and counts as the key without that.
        namespace: of the ScaledObject.
        source: what is named in faults.
        check: judges a policy's name and settings.

    Raises:
        ConfigError: it has faults; all are reported.
    """
    problems: list[Problem] = []

    def note(key: str, expected: str, found: str | None, fix: str | None) -> None:
        problems.append(Problem(source, None, key, found, expected, fix))

    values: dict[str, object] = {}
    for key, value in metadata.items():
        base = key.removesuffix(_FROM_ENV)
        known = base if base in KEYS and key not in KEYS else key
        if known in KEYS:
            if known in values:
                note(key, f"{known} once, with FromEnv or without", None, None)
            values[known] = value
        elif known not in KEDA_KEYS and base not in KEDA_KEYS:
            _unknown(key, {*KEYS, *KEDA_KEYS}, note)
    trigger = TriggerReader(values, note, check).trigger(namespace)
    if problems or trigger is None:
        raise ConfigError(*problems)
    return trigger


def read_triggers(text: str, source: str, check: PolicyCheck = any_policy) -> tuple[Trigger, ...]:
    """Return a file's triggers: YAML with a list under `triggers`.

    Args:
        text: of the file.
        source: its name.
        check: judges a policy's name and settings.

    Raises:
        ConfigError: it has faults, or gives one name twice in a namespace; all are reported.
    """
    problems: list[Problem] = []
    found: list[Trigger] = []
    for document in load_documents(text, source):
        found += _read_document(document, problems, check)
    if len(found) > MAX_TRIGGERS:
        expected = f"at most {MAX_TRIGGERS} triggers in a file"
        problems.append(Problem(source, None, None, str(len(found)), expected))
    if problems:
        raise ConfigError(*problems)
    return tuple(found)


def is_trigger_file(data: object) -> bool:
    """Return whether a document is a file of triggers: a mapping with `triggers`, and no object's kind."""
    return isinstance(data, dict) and "triggers" in data and "kind" not in data


def _read_document(
    document: Document, problems: list[Problem], check: PolicyCheck
) -> Iterator[Trigger]:
    data = document.data
    if not isinstance(data, dict):
        problems.append(document.problem((), "a mapping with `triggers`"))
        return
    for key in data:
        if key != "triggers":
            meant = closest(key, ("triggers",))
            fix = f"write {meant}" if meant else None
            problems.append(document.problem((key,), "no other key than triggers", fix=fix))
    entries = data.get("triggers")
    if not isinstance(entries, list):
        problems.append(document.problem(("triggers",), "a list of triggers"))
        return
    seen: dict[tuple[str, str], int | None] = {}
    for index, entry in enumerate(entries):
        trigger = _read_entry(document, index, entry, problems, check)
        if trigger is None:
            continue
        key = (trigger.namespace, trigger.name)
        line = document.line(("triggers", index))
        if key in seen:
            expected = f"a name of its own; {trigger.name} stands on line {seen[key]} already"
            path = ("triggers", index, "metricName")
            problems.append(document.problem(path, expected))
        seen[key] = line
        yield trigger


def _read_entry(
    document: Document, index: int, entry: object, problems: list[Problem], check: PolicyCheck
) -> Trigger | None:
    if not isinstance(entry, dict):
        problems.append(
            document.problem(("triggers", index), "a mapping with the keys of a trigger")
        )
        return None
    before = len(problems)

    def note(key: str, expected: str, found: str | None, fix: str | None) -> None:
        path: Path = ("triggers", index, *key.split("."))
        problems.append(document.problem(path, expected, found=found, fix=fix))

    for key in entry:
        if key not in ENTRY_KEYS:
            _unknown(key, ENTRY_KEYS, note)
    namespace = entry.get("namespace")
    reader = TriggerReader(entry, note, check)
    name = reader.namespace("namespace", namespace)
    trigger = reader.trigger(name)
    return trigger if len(problems) == before else None


def _unknown(key: str, known: "set[str] | frozenset[str]", note: Note) -> None:
    meant = closest(key, known)
    shown = printable(key[:_MAX_SHOWN])
    note(shown, "a key of a trigger", None, f"write {meant}" if meant else None)
