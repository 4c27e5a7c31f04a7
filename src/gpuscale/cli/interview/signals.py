"""The list of signals, grouped by what serves them."""

from typing import Any

_HEAD = f"  {'signal':24}{'HPA':10}{'target':16}what it is, and why that target\n"


def signal_list() -> str:
    """Return every signal as text: a group for each server, gateway, proxy or exporter."""
    from gpuscale.signals import by_family

    lines: list[str] = []
    for family, signals in by_family():
        names = f"--of names {family.names}" if family.names else ""
        needs = "; ".join(each for each in (family.needs, names) if each)
        lines += ["", f"{family.title} ({family.version})"]
        if needs:
            lines.append(f"  {needs}")
        for name, signal in signals.items():
            target = f"{signal.target:g} {signal.unit}"
            lines.append(f"  {name:24}{signal.kind:10}{target:16}{signal.what}")
            lines.append(f"  {'':50}{signal.why}")
    return _HEAD + "\n".join(lines) + "\n"


def signal_data() -> dict[str, Any]:
    """Return the same as data."""
    from gpuscale.signals import by_family

    return {
        name: {
            "of": family.title,
            "version": family.version,
            "needs": family.needs,
            "names": family.names,
            "kind": signal.kind,
            "metric": signal.metric,
            "series": list(signal.spellings),
            "unit": signal.unit,
            "target": signal.target,
            "what": signal.what,
            "why": signal.why,
        }
        for family, signals in by_family()
        for name, signal in signals.items()
    }
