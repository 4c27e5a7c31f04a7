"""Parts of the cluster that could not be read."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity, Unseen
from gpuscale.base.words import counted
from gpuscale.ops.doctor.facts import allowing
from gpuscale.ops.doctor.judges import (
    ACCESS,
    AGENT,
    KINDS,
    PROMETHEUS,
    WORKLOAD,
    ClusterFinding,
    ClusterJudge,
)
from gpuscale.ops.doctor.snapshot import Look, Snapshot

_CHECKS = Checks(ACCESS)
CANNOT_SEE = _CHECKS.add(
    "cannot-see",
    Severity.WARNING,
    "Something that can't be looked at, and the rights it takes.",
    "Allow whom the kubeconfig names to get and list it.",
)


def access_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return a finding for each part that could not be read."""
    hidden = {kind.plural: look for kind in KINDS if (look := _hidden(snapshot, kind.plural))}
    if not hidden:
        return
    needs = ",".join(dict.fromkeys(look.needs for look in hidden.values()))
    yield CANNOT_SEE.found(
        ", ".join(hidden),
        f"Can't see {counted(len(hidden), 'kind')} of objects, so nothing is known of them.",
        next(iter(hidden.values())).fault,
        Fix(
            f"Allow whom the kubeconfig names to get and list {needs.replace(',', ', ')}; the role in "
            "docs/doctor.md has all.",
            allowing("reads", needs),
        ),
    )


def _hidden(snapshot: Snapshot, plural: str) -> Look | None:
    look = snapshot.looks.get(plural)
    return look if look is not None and look.fault else None


def unseen_parts(snapshot: Snapshot) -> Iterator[Unseen]:
    """Yield the parts of the chain that could be read in part only, or not at all."""
    for kind in KINDS:
        look = snapshot.looks.get(kind.plural)
        if look is None or not look.fault:
            continue
        fix = Fix(f"Allow get and list of {look.needs}.", allowing(kind.plural, look.needs))
        for hop in kind.hops:
            yield Unseen(hop, kind.plural, look.fault, fix)
    for name, look in snapshot.looks.items():
        if "." in name and look.fault:  # a custom resource
            fix = Fix(f"Allow list of {name}.", allowing(name, name, "list"))
            yield Unseen(WORKLOAD, name, look.fault, fix)
    yield from _prometheus(snapshot)
    for agent in snapshot.agents:
        if agent.is_locked:
            namespace, _, name = agent.pod.partition("/")
            say = "Forward its port and name it, with a user that it knows and the CA of its certificate."
            command = (
                f"kubectl port-forward -n {namespace} {name} {agent.port}  # and: {agent.command}"
            )
            yield Unseen(AGENT, f"pod/{agent.pod}", agent.fault, Fix(say, command))
        elif agent.fault:
            say = "See the finding agent-unreachable; --agent NODE=URL asks it past the API server."
            yield Unseen(AGENT, f"pod/{agent.pod}", agent.fault, Fix(say, agent.command))
    if snapshot.agents_passed_over:
        asked = len(snapshot.agents)
        yield Unseen(
            AGENT,
            counted(snapshot.agents_passed_over, "agent"),
            f"{asked} of {asked + snapshot.agents_passed_over} agents were asked, evenly spread",
            Fix("Name others with --agent NODE=URL; Prometheus' `up` covers all."),
        )


def _prometheus(snapshot: Snapshot) -> Iterator[Unseen]:
    look = snapshot.prometheus
    forward = "kubectl port-forward -n NAMESPACE svc/PROMETHEUS 9090"
    if look.unasked:
        yield Unseen(
            PROMETHEUS,
            f"prometheus/{look.address}",
            f"{look.unasked}: targets and series were not looked at",
            Fix(
                "Name an address at which it answers from here with --prometheus-url; with Azure's, also "
                "--prometheus-identity or --prometheus-token-file; of another managed one, a port on which "
                "a signing proxy listens.",
                f"gpuscale doctor --prometheus-url {look.address}",
            ),
        )
    elif look.fault:
        yield Unseen(
            PROMETHEUS,
            f"prometheus/{look.address}",
            look.fault,
            Fix("See the finding above; --prometheus-url asks it past the API server.", forward),
        )
    elif not look.address:
        yield Unseen(
            PROMETHEUS,
            "prometheus",
            "no metrics server here names a Prometheus",
            Fix(
                "If there is one, name its address with --prometheus-url.",
                f"{forward}; gpuscale doctor --prometheus-url http://127.0.0.1:9090",
            ),
        )


JUDGE = ClusterJudge("access", _CHECKS, access_findings)
