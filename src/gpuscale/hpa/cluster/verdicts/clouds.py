"""What a cloud says when it gives no machine: its code, and whether stock, quota, addresses or rights lack.

Source: aws/karpenter-provider-aws pkg/errors; Azure/karpenter-provider-azure pkg/providers/instance
    (offerings handlers); cluster-autoscaler cloudprovider/gce (error codes), aws (placeholders), azure;
    Alibaba Cloud ECS RunInstances (OperationDenied.NoStock).
"""

import re
from dataclasses import dataclass
from enum import Enum


class DenialKind(Enum):
    """What is lacking, with what helps."""

    STOCK = "Allow other types, zones or capacity types, or reserve capacity; the autoscaler tries again."
    QUOTA = (
        "Raise the quota at the cloud, or lower what the cluster may take; other zones don't help."
    )
    ADDRESSES = "Give the pool a subnet with free addresses."
    RIGHTS = "Give the autoscaler's account the right that the message names."
    UNKNOWN = "See the cloud's message; the autoscaler tries again."


_KINDS = (
    (r"(?i)quota|VcpuLimitExceeded|InstanceLimitExceeded|InstanceCountExceeded", DenialKind.QUOTA),
    (r"(?i)FreeAddresses|IP_SPACE_EXHAUSTED|SubnetIsFull", DenialKind.ADDRESSES),
    (
        r"(?i)UnauthorizedOperation|AccessDenied|AuthorizationFailed|not authorized",
        DenialKind.RIGHTS,
    ),
    (
        r"(?i)Insufficient\w*Capacity|insufficient capacity|sufficient \S+ capacity|SkuNotAvailable|"
        r"AllocationFailed|OverconstrainedAllocation|STOCKOUT|POOL_EXHAUSTED|OutOfResource|NoStock|"
        r"Unfulfillable|not available in location|cannot provision any more|no capacity",
        DenialKind.STOCK,
    ),
)
_CODE = re.compile(
    r"\b([A-Z][a-z]+(?:[A-Z][A-Za-z]+)*(?:Exceeded|Capacity|Available|Failed|Operation|Denied|Subnet|Stock)|"
    r"QuotaExceeded|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b"
)
_TYPE = re.compile(
    r"\b([a-z][a-z0-9-]*\.(?:metal|(?:\d+x)?large|medium|small)[\w-]*|Standard_\w+|ecs\.[\w.-]+|"
    r"[acgn]\d[a-z]?-[a-z]+-\d+[a-z]*)\b"
)
_ZONE = re.compile(
    r"\b([a-z]{2}(?:-[a-z]+)+-\d[a-z]|[a-z]+-[a-z]+\d-[a-z]|[a-z]+\d? zones? [\d,]+)\b"
)


@dataclass(frozen=True, slots=True)
class Denial:
    """A cloud's answer that was no machine."""

    kind: DenialKind
    code: str = ""
    types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what of it is known: the code, with types and zones."""
        of = (", ".join(each) for each in (self.types, self.zones) if each)
        return " in ".join(
            filter(None, (" of ".join(filter(None, (self.code, next(of, "")))), *of))
        )


def denial_in(text: str, code: str = "") -> Denial:
    """Return what a message of a cloud or of a node autoscaler says of a refused machine.

    Args:
        text: the message.
        code: the error's code, where it is given beside the message.
    """
    whole = f"{code} {text}"
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, whole)), DenialKind.UNKNOWN)
    codes = [code] if code else [each for each in _CODE.findall(text) if each != "LaunchFailed"]
    types, zones = (tuple(dict.fromkeys(each.findall(text))) for each in (_TYPE, _ZONE))
    return Denial(kind, codes[0] if codes else "", types, zones)
