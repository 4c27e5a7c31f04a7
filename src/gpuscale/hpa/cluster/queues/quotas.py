"""What ClusterQueues have, use and lend each other within a cohort.

Source: kueue v0.17.0 pkg/cache/scheduler/resource_node.go; cohorts of one level.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuscale.base.objects.kueue import ClusterQueue, ResourceQuota

Share = tuple[str, str]
"""A resource in a flavor: the flavor's name, and the resource's."""
_NOTHING = ResourceQuota(0)


class Quotas:
    """The quotas of ClusterQueues, and what is used of them.

    Args:
        queues: all of them, by name.
    """

    def __init__(self, queues: Mapping[str, ClusterQueue]) -> None:
        self.cohorts = {name: queue.cohort for name, queue in queues.items()}
        self._quotas: dict[tuple[str, Share], ResourceQuota] = {}
        self._used: Counter[tuple[str, Share]] = Counter()
        self._lent: Counter[tuple[str, Share]] = Counter()
        """What a cohort has for all: the quotas of its queues that they lend."""
        self._taken: Counter[tuple[str, Share]] = Counter()
        """What is used of that."""
        for name, queue in queues.items():
            for group in queue.groups:
                for flavor, quotas in group.flavors:
                    for resource, quota in quotas.items():
                        share = flavor, resource
                        self._quotas[name, share] = quota
                        self._lent[queue.cohort, share] += quota.nominal - self._kept(name, share)

    def quota(self, queue: str, share: Share) -> ResourceQuota:
        return self._quotas.get((queue, share), _NOTHING)

    def used(self, queue: str, share: Share) -> int:
        return self._used[queue, share]

    def add(self, queue: str, amounts: Iterable[tuple[Share, int]], sign: int = 1) -> None:
        """Count amounts as used; with `sign` -1 no longer."""
        for share, amount in amounts:
            before = self._borrowable(queue, share)
            self._used[queue, share] += sign * amount
            if cohort := self.cohorts[queue]:
                self._taken[cohort, share] += self._borrowable(queue, share) - before

    def available(self, queue: str, share: Share) -> int:
        """Return what is left for a queue, with what it may borrow now."""
        quota, used, cohort = (
            self.quota(queue, share),
            self._used[queue, share],
            self.cohorts[queue],
        )
        if not cohort:
            return max(0, quota.nominal - used)
        kept = self._kept(queue, share)
        of_cohort = self._lent[cohort, share] - self._taken[cohort, share]
        if quota.borrowing_limit is not None:
            own = quota.nominal - kept - self._borrowable(queue, share)
            of_cohort = min(of_cohort, own + quota.borrowing_limit)
        return max(0, max(0, kept - used) + of_cohort)

    def most(self, queue: str, share: Share) -> int:
        """Return what a queue could use if nobody used anything."""
        quota, cohort = self.quota(queue, share), self.cohorts[queue]
        if not cohort:
            return quota.nominal
        most = self._kept(queue, share) + self._lent[cohort, share]
        if quota.borrowing_limit is not None:
            most = min(most, quota.nominal + quota.borrowing_limit)
        return most

    def borrows(self, queue: str, share: Share, amount: int) -> bool:
        """Return whether a queue uses more than its own with another amount."""
        return self._used[queue, share] + amount > self.quota(queue, share).nominal

    def _kept(self, queue: str, share: Share) -> int:
        """Return what a queue does not lend."""
        quota = self.quota(queue, share)
        return 0 if quota.lending_limit is None else max(0, quota.nominal - quota.lending_limit)

    def _borrowable(self, queue: str, share: Share) -> int:
        """Return what a queue uses of what its cohort may use too."""
        return max(0, self._used[queue, share] - self._kept(queue, share))
