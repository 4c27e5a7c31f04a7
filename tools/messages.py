"""Makes the Python messages from our .proto files: `make proto`.

Only messages are generated. Those who use them name the methods themselves, which spares a second generated
file that carries no types.
"""

from pathlib import Path

from grpc_tools import protoc

_SOURCE_ROOT = Path(__file__).parents[1] / "src"
_HEADER = "# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n"


def generate(proto: Path) -> None:
    """Write the generated files beside a proto file.

    Raises:
        RuntimeError: the compiler found a fault, which it has printed.
    """
    arguments = (f"--proto_path={_SOURCE_ROOT}", f"--python_out={_SOURCE_ROOT}")
    if protoc.main(("protoc", *arguments, f"--pyi_out={_SOURCE_ROOT}", str(proto))) != 0:
        raise RuntimeError(f"protoc could not compile {proto.name}")
    for ending in ("_pb2.py", "_pb2.pyi"):
        path = proto.with_name(proto.stem + ending)
        path.write_text(_HEADER + path.read_text())


if __name__ == "__main__":
    for each in sorted(_SOURCE_ROOT.rglob("*.proto")):
        generate(each)
