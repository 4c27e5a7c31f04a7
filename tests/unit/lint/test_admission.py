"""The admission policies: made of errors alone, and of the same table of GPU resources as lint.

What an API server makes of them is tested on one (tests/cluster/test_admission_policies.py).
"""

import re

import pytest

from gpuscale.base.findings import Severity
from gpuscale.base.objects.gpu_resources import GPU_PATTERN, gpu_kind
from gpuscale.ops.lint.admission import admission_policies
from gpuscale.ops.lint.checks import CHECKS


def test_each_validation_names_an_error_of_lint() -> None:
    policies = [each for each in admission_policies() if each["kind"].endswith("Policy")]
    messages = [each["message"] for policy in policies for each in policy["spec"]["validations"]]
    for message in messages:
        (found,) = re.findall(r" \(gpuscale lint: (.+)\)$", message)
        assert CHECKS[found].severity is Severity.ERROR
        assert "\n" not in message
    assert len(messages) > 5


def test_each_policy_has_a_binding_that_denies() -> None:
    policies, bindings = admission_policies()[::2], admission_policies()[1::2]
    for policy, binding in zip(policies, bindings, strict=True):
        assert binding["spec"] == {
            "policyName": policy["metadata"]["name"],
            "validationActions": ["Deny"],
        }


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/cpx_nps4"),
        *("gpu.intel.com/xe", "gpu.intel.com/i915_monitoring", "nvidia.com/gpumem-percentage"),
        *("aliyun.com/gpu-mem", "example.com/vgpu", "example.com/disk.shared", "cpu", "memory"),
        *("ephemeral-storage", "hugepages-2Mi", "nvidia.com/mig", "aliyun.com/gpu-mem.shared"),
    ],
)
def test_the_pattern_is_the_table(name) -> None:
    assert (re.fullmatch(GPU_PATTERN, name) is not None) is (gpu_kind(name) is not None)
