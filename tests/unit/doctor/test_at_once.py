"""Several requests at once: where a server is gone, one error is raised, and not a group of them."""

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.ops.doctor.direct import at_once


async def _answer(number: int) -> int:
    return number


async def _fail(error: Exception) -> int:
    raise error


async def test_answers_come_in_their_order() -> None:
    assert await at_once(_answer(number) for number in range(40)) == tuple(range(40))


async def test_errors_of_the_outside_are_one() -> None:
    with pytest.raises(UnavailableError, match="gone"):
        await at_once([_fail(UnavailableError("gone")), _fail(UnavailableError("gone"))])


async def test_a_fault_of_ours_is_not_hidden_by_one_of_the_outside() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await at_once([_fail(UnavailableError("gone")), _fail(KeyError("bug"))])
    assert any(isinstance(each, KeyError) for each in raised.value.exceptions)
