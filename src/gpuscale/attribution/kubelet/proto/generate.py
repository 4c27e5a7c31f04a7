"""Makes the message classes from `podresources.proto`: `make proto`.

Only messages are generated. The client names its three methods itself, which spares a second generated
file that carries no types.
"""

from pathlib import Path

from grpc_tools import protoc

_FOLDER = Path(__file__).parent
_SOURCE_ROOT = _FOLDER.parents[3]
_PROTO = _FOLDER / "podresources.proto"
_MADE = ("podresources_pb2.py", "podresources_pb2.pyi")
_HEADER = "# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n"


def generate() -> None:
    """Write the generated files beside the proto file.

    Raises:
        RuntimeError: the compiler found a fault, which it has printed.
    """
    arguments = (f"--proto_path={_SOURCE_ROOT}", f"--python_out={_SOURCE_ROOT}")
    if protoc.main(("protoc", *arguments, f"--pyi_out={_SOURCE_ROOT}", str(_PROTO))) != 0:
        raise RuntimeError(f"protoc could not compile {_PROTO.name}")
    for name in _MADE:
        path = _FOLDER / name
        path.write_text(_HEADER + path.read_text())


if __name__ == "__main__":
    generate()
