"""A scenario moved into the rehearsal's namespaces and onto its nodes."""

from dataclasses import replace
from typing import TypeVar

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.base.objects.workloads import Deployment, Job, Service
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.scenario.setup import Setup

Item = TypeVar(
    "Item", Deployment, Job, Service, HorizontalPodAutoscaler, ScaledObject, PodDisruptionBudget
)


def placed(setup: Setup, mark: RehearsalMark) -> Setup:
    """Return the scenario with rehearsal namespaces, and with labels and taints on its nodes."""
    pipeline = setup.pipeline
    agent_namespace = mark.namespace_of(pipeline.agent_namespace)
    return replace(
        setup,
        pipeline=pipeline.model_copy(update={"agent_namespace": agent_namespace}),
        pools=tuple(_pool(each, mark) for each in setup.pools),
        deployments=tuple(_moved(each, mark) for each in setup.deployments),
        services=tuple(_moved(each, mark) for each in setup.services),
        hpas=tuple(_moved(each, mark) for each in setup.hpas),
        scaled_objects=tuple(_moved(each, mark) for each in setup.scaled_objects),
        workloads=tuple(
            replace(each, deployment=mark.key_of(each.deployment)) for each in setup.workloads
        ),
        jobs=tuple(replace(each, job=_moved(each.job, mark)) for each in setup.jobs),
        budgets=tuple(_moved(each, mark) for each in setup.budgets),
    )


def namespaces(setup: Setup) -> tuple[str, ...]:
    """Return the namespaces of a scenario's objects, sorted."""
    metas = [deployment.metadata for deployment in setup.deployments]
    metas += [service.metadata for service in setup.services]
    metas += [hpa.metadata for hpa in setup.hpas]
    metas += [scaled.metadata for scaled in setup.scaled_objects]
    metas += [run.job.metadata for run in setup.jobs]
    return tuple(sorted({meta.namespace for meta in metas}))


def _moved(item: Item, mark: RehearsalMark) -> Item:
    namespace = mark.namespace_of(item.metadata.namespace)
    return replace(item, metadata=replace(item.metadata, namespace=namespace))


def _pool(item: CloudPool, mark: RehearsalMark) -> CloudPool:
    pool = item.pool
    marked = replace(pool, labels={**pool.labels, **mark.labels}, taints=(*pool.taints, mark.taint))
    return replace(item, pool=marked)
