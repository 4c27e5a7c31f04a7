"""Whatever AMD SMI answers, a reading holds plain numbers in range, or a reason."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.amd.reader import AmdReader
from gpuscale.signals.amd.values import AMD_CALLS, NoValueError
from gpuscale.testing.amdsmi import StandInAmdSmi, StandInGpu

NUMBERS = st.integers(-1, 2**64) | st.floats()
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3) | st.just("N/A"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["gfx_activity", "vram_used", "pcie_metric", "pcie_speed", "pid", "clk"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from([value for call in AMD_CALLS for value in call.values]), ANYTHING)
def test_any_answer_gives_a_number_in_range_or_a_reason(value, answer) -> None:
    try:
        found = value.read(answer)
    except NoValueError as error:
        reason = str(error)
        assert reason
        return
    assert math.isfinite(found)
    assert 0 <= found <= value.most


@given(ANYTHING)
def test_any_answer_to_any_call_leaves_a_reading(answer) -> None:
    class Odd(StandInAmdSmi):
        def amdsmi_get_gpu_vram_usage(self, processor_handle):
            return answer

        def amdsmi_get_gpu_process_list(self, processor_handle):
            return answer

        def amdsmi_get_gpu_asic_info(self, processor_handle):
            return answer

    (reading,) = AmdReader(Odd(StandInGpu())).read(1000)
    assert reading.values["DCGM_FI_DEV_GPU_UTIL"] == 42
    assert {type(each) for each in reading.values.values()} <= {int, float, str}
