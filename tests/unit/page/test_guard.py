import pytest

from gpuscale.server.page.addresses import is_named


@pytest.mark.parametrize(
    ("asked", "host", "meant"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "127.0.0.1", True),
        ("evil.example", "127.0.0.1", False),
        ("192.0.2.7", "127.0.0.1", False),
        ("192.0.2.7", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("gpu.example", "gpu.example", True),
    ],
)
def test_only_names_of_this_machine_are_answered(asked: str, host: str, meant: bool) -> None:
    assert is_named(asked, host) is meant
