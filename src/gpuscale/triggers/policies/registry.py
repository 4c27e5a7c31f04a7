"""The policies that gpuscale brings, by name."""

from gpuscale.triggers.policies.hpa import HPA, HPA_ON_DEMAND
from gpuscale.triggers.policies.others.apa import APA
from gpuscale.triggers.policies.others.keda import KEDA
from gpuscale.triggers.policies.others.kpa import KPA
from gpuscale.triggers.policies.ours.calibrated import CALIBRATED
from gpuscale.triggers.policies.ours.credit import CREDIT
from gpuscale.triggers.policies.ours.feedback import FEEDBACK
from gpuscale.triggers.policies.ours.guarded import GUARDED
from gpuscale.triggers.policies.ours.scheduled import SCHEDULED
from gpuscale.triggers.policies.ours.seasonal import SEASONAL
from gpuscale.triggers.policies.ours.trend import TREND
from gpuscale.triggers.policies.policy import Policy
from gpuscale.triggers.policies.static import STATIC

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
