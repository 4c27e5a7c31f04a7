"""XID messages against NVIDIA's list."""

import pytest

from gpuscale.agent.formats.xid import XID_MESSAGES, xid_message


@pytest.mark.parametrize(
    ("xid", "message"),
    [
        (0, "No Error"),
        (13, "Graphics Engine Exception"),
        (31, "GPU memory page fault"),
        (48, "Double Bit ECC Error"),
        (79, "GPU has fallen off the bus"),
        (119, "GSP RPC Timeout"),
        (172, "Uncorrectable SRAM Error"),
        (173, "Unknown Error"),
        (-1, "Unknown Error"),
    ],
)
def test_xid_has_the_message_of_the_exporter(xid: int, message: str) -> None:
    assert xid_message(xid) == message


def test_list_has_no_holes() -> None:
    assert sorted(XID_MESSAGES) == list(range(173))
