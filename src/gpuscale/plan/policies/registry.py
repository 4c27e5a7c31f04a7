"""The policies that gpuscale brings, by name."""

from gpuscale.plan.policies.hpa import HPA, HPA_ON_DEMAND
from gpuscale.plan.policies.others.apa import APA
from gpuscale.plan.policies.others.keda import KEDA
from gpuscale.plan.policies.others.kpa import KPA
from gpuscale.plan.policies.ours.calibrated import CALIBRATED
from gpuscale.plan.policies.ours.credit import CREDIT
from gpuscale.plan.policies.ours.feedback import FEEDBACK
from gpuscale.plan.policies.ours.guarded import GUARDED
from gpuscale.plan.policies.ours.scheduled import SCHEDULED
from gpuscale.plan.policies.ours.seasonal import SEASONAL
from gpuscale.plan.policies.ours.trend import TREND
from gpuscale.plan.policies.policy import Policy
from gpuscale.plan.policies.static import STATIC

_ALL = (
    STATIC,
    HPA,
    HPA_ON_DEMAND,
    KEDA,
    KPA,
    APA,
    CREDIT,
    TREND,
    SEASONAL,
    SCHEDULED,
    FEEDBACK,
    GUARDED,
    CALIBRATED,
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}
