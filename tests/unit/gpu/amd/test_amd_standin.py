# mypy: disable-error-code="arg-type, attr-defined"
"""The stand-in for amdsmi against the source of the installed package.

The package can't be imported without its native library, so its source is parsed instead.
"""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuscale.agent.amd import library
from gpuscale.signals.amd.values import AMD_CALLS, PROCESS_FUNCTION
from gpuscale.testing import amdsmi
from gpuscale.testing.amdsmi import StandInAmdSmi, StandInGpu, stand_in_process

FOLDER = Path(next(iter(find_spec("amdsmi").submodule_search_locations)))
INTERFACE = ast.parse((FOLDER / "amdsmi_interface.py").read_text())
EXCEPTIONS = ast.parse((FOLDER / "amdsmi_exception.py").read_text())
WRAPPER = ast.parse((FOLDER / "amdsmi_wrapper.py").read_text())
EXPORTS = ast.parse((FOLDER / "__init__.py").read_text())

FUNCTIONS = {node.name: node for node in INTERFACE.body if isinstance(node, ast.FunctionDef)}
CLASSES = {
    node.name: node
    for node in (*INTERFACE.body, *EXCEPTIONS.body)
    if isinstance(node, ast.ClassDef)
}
NUMBERS = {
    node.targets[0].id: node.value.value
    for node in WRAPPER.body
    if isinstance(node, ast.Assign)
    and isinstance(node.targets[0], ast.Name)
    and isinstance(node.value, ast.Constant)
}
EXPORTED = {
    alias.name
    for node in ast.walk(EXPORTS)
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
STOOD_IN = sorted(name for name in dir(StandInAmdSmi) if name.startswith("amdsmi_"))
ENUMS = [
    amdsmi.AmdSmiInitFlags,
    amdsmi.AmdSmiTemperatureType,
    amdsmi.AmdSmiTemperatureMetric,
    amdsmi.AmdSmiClkType,
    amdsmi.AmdSmiVirtualizationMode,
]
ERRORS = [
    amdsmi.AmdSmiException,
    amdsmi.AmdSmiLibraryException,
    amdsmi.AmdSmiRetryException,
    amdsmi.AmdSmiTimeoutException,
]


def parameters(node):
    arguments = node.args
    assert (arguments.vararg, arguments.kwarg, arguments.kwonlyargs) == (None, None, [])
    required = len(arguments.args) - len(arguments.defaults)
    return [(each.arg, index >= required) for index, each in enumerate(arguments.args)]


def stood_in_parameters(function):
    signature = inspect.signature(function).parameters.values()
    return [
        (each.name, each.default is not each.empty) for each in signature if each.name != "self"
    ]


def keys_in(node):
    """Return the text keys of all dictionaries that stand in a function."""
    return {
        key.value
        for each in ast.walk(node)
        if isinstance(each, ast.Dict)
        for key in each.keys
        if isinstance(key, ast.Constant)
    }


def keys_of(answer):
    if isinstance(answer, list):
        return set().union(*(keys_of(each) for each in answer))
    if not isinstance(answer, dict):
        return set()
    return set(answer).union(*(keys_of(each) for each in answer.values()))


@pytest.mark.parametrize("name", STOOD_IN)
def test_functions_take_the_parameters_of_the_librarys(name) -> None:
    assert name in EXPORTED
    assert stood_in_parameters(getattr(StandInAmdSmi, name)) == parameters(FUNCTIONS[name])


@pytest.mark.parametrize(
    "name",
    [n for n in STOOD_IN if n.startswith("amdsmi_get_gpu_")]
    + ["amdsmi_get_power_info", "amdsmi_get_energy_count", "amdsmi_get_pcie_info"],
)
def test_answers_have_the_keys_of_the_librarys(name) -> None:
    module = StandInAmdSmi(StandInGpu(processes=[stand_in_process(7, cu_occupancy=1)]))
    module.amdsmi_init()
    (handle,) = module.amdsmi_get_processor_handles()
    assert keys_of(getattr(module, name)(handle)) == keys_in(FUNCTIONS[name])


def test_clocks_have_the_keys_of_the_librarys() -> None:
    module = StandInAmdSmi(StandInGpu())
    module.amdsmi_init()
    (handle,) = module.amdsmi_get_processor_handles()
    answer = module.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX)
    assert set(answer) == keys_in(FUNCTIONS["amdsmi_get_clock_info"])


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_enums_have_the_librarys_members_and_numbers(enum) -> None:
    assert enum.__name__ in EXPORTED
    theirs = {
        node.targets[0].id: NUMBERS[node.value.attr]
        for node in CLASSES[enum.__name__].body
        if isinstance(node, ast.Assign)
    }
    ours = {name: member.value for name, member in enum.__members__.items()}
    assert ours.items() <= theirs.items()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_errors_are_the_librarys(error) -> None:
    assert error.__name__ in EXPORTED
    node = CLASSES[error.__name__]
    assert [base.id for base in node.bases] == [error.__mro__[1].__name__]
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name.startswith("get_"):
            assert stood_in_parameters(getattr(error, method.name)) == parameters(method)[1:]


def test_error_texts_are_the_librarys() -> None:
    (switch,) = [
        node for node in ast.walk(CLASSES["AmdSmiLibraryException"]) if isinstance(node, ast.Dict)
    ]
    theirs = {
        NUMBERS[key.attr]: value.value
        for key, value in zip(switch.keys, switch.values, strict=True)
    }
    assert amdsmi._TEXTS.items() <= theirs.items()


def test_the_readers_status_codes_are_the_librarys() -> None:
    names = {
        4: "FAIL_LOAD_MODULE",
        5: "FAIL_LOAD_SYMBOL",
        18: "INIT_ERROR",
        32: "NOT_INIT",
        34: "DRIVER_NOT_LOADED",
        51: "NO_DRV",
        54: "AMDGPU_RESTART_ERR",
        1: "INVAL",
        6: "DRM_ERROR",
        8: "TIMEOUT",
        12: "IO",
        31: "NOT_FOUND",
        33: "NO_SLOT",
    }
    assert {code: NUMBERS[f"AMDSMI_STATUS_{name}"] for code, name in names.items()} == {
        code: code for code in names
    }
    assert set(names) == library.SESSION_CODES | library.GONE_CODES


def test_every_call_of_the_reader_is_one_of_the_library() -> None:
    functions = {call.function for call in AMD_CALLS} | {PROCESS_FUNCTION}
    assert functions <= EXPORTED & set(STOOD_IN)
    for call in AMD_CALLS:
        for enum, member in call.arguments:
            members = {
                node.targets[0].id for node in CLASSES[enum].body if isinstance(node, ast.Assign)
            }
            assert member in members


def test_handles_of_an_earlier_driver_are_refused() -> None:
    module = StandInAmdSmi(StandInGpu())
    module.amdsmi_init()
    (handle,) = module.amdsmi_get_processor_handles()
    module.reload_driver()
    with pytest.raises(amdsmi.AmdSmiLibraryException) as caught:
        module.amdsmi_get_gpu_activity(handle)
    assert caught.value.get_error_code() == 1
    assert str(caught.value) == "Error code:\n\t1 | AMDSMI_STATUS_INVAL - Invalid parameters"
