"""Print the figures of a source tree: sizes, functions, imports, prose, and what starting each server costs.

    python tools/house.py [FOLDER ...] [--servers]      (default: src/gpuscale)

Definitions: lines count blanks. A function's length leaves out its docstring. A private name begins with
one underscore. A flat folder has more than 15 modules of its own. A name is unused if no other place of the
tree has it: no identifier, attribute, import or text. Generated modules (`*_pb2.py`) are left out. A server's
start is the processor time until it answers (of the collector, the first seconds), which other work on the
machine changes little.
"""

import argparse
import ast
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_IN_FOLDER = 15
TINY_LINES = 40
START_LIMIT_S = 60.0
SETTLE_S = 3.0
"""A server has loaded what it needs by then."""
RUNS = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One file, parsed."""

    path: Path
    lines: tuple[str, ...]
    tree: ast.Module

    def functions(self) -> Iterator[Function]:
        """Yield every function and method, nested ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and the page that answers once it works."""

    name: str
    arguments: tuple[str, ...]
    page: str
    is_child: bool = False
    """Whether the figure is that of the process that it starts, not its own."""


def modules(folder: Path) -> list[Module]:
    """Return the modules below a folder."""
    paths = (path for path in sorted(folder.rglob("*.py")) if "_pb2" not in path.name)
    texts = ((path, path.read_text(encoding="utf-8")) for path in paths)
    return [Module(path, tuple(text.splitlines()), ast.parse(text)) for path, text in texts]


def figures(folder: Path) -> dict[str, str]:
    """Return the figures of a tree, each as text by its name."""
    read = modules(folder)
    sizes = [len(each.lines) for each in read]
    functions = [node for each in read for node in each.functions()]
    lengths = [_length(node) - _docstring_lines(node) for node in functions]
    lines = sum(sizes)
    private = sum(_is_private(node.name) for node in functions)
    crowded = [
        f"{path.relative_to(folder.parent)} {count}" for path, count in _folders(read).items()
    ]
    imports = sum(_length(node) for each in read for node in _imports(each.tree))
    docstrings = sum(_docstring_lines(node) for each in read for node in _documented(each.tree))
    comments = sum(line.strip().startswith("#") for each in read for line in each.lines)
    doubled = class_names_defined_twice(read)
    unused = unused_names(read)
    return {
        "modules / lines": f"{len(sizes)} / {_thousands(lines)}",
        "module median / p90 / max": _spread(sizes),
        f"modules ≤ {TINY_LINES} lines": _share(
            sum(size <= TINY_LINES for size in sizes), len(sizes)
        ),
        f"flat folders > {MOST_IN_FOLDER} modules": _listed(crowded),
        "function median / p90 / max": _spread(lengths),
        "functions > 60 lines": f"{sum(each > 60 for each in lengths)} of {_thousands(len(lengths))}",
        "functions per 100 lines": f"{100 * len(lengths) / lines:.1f}",
        "private share of functions": f"{_percent(private, len(functions))}",
        "import lines": f"{100 * imports / lines:.1f} %",
        "docstring lines": f"{100 * docstrings / lines:.1f} %",
        "`#` comment lines": f"{100 * comments / lines:.1f} %",
        "class names defined more than once": _listed(
            f"{name} {count}" for name, count in doubled.items()
        ),
        "unused names": _listed(unused),
    }


def class_names_defined_twice(read: Iterable[Module]) -> dict[str, int]:
    """Return the public class names that several modules define, most often first."""
    places: dict[str, set[Path]] = defaultdict(set)
    for each in read:
        for node in ast.walk(each.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(each.path)
    counts = {name: len(paths) for name, paths in places.items() if len(paths) > 1}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def unused_names(read: Sequence[Module]) -> list[str]:
    """Return the functions, classes and constants of modules that nothing in the tree names again."""
    named = Counter(name for each in read for name in _names(each.tree))
    return sorted(
        f"{each.path.stem}.{name}"
        for each in read
        for name in _defined(each.tree)
        if not named[name] and not name.startswith("__")
    )


def start_and_memory(server: Server, runs: int = RUNS) -> tuple[float, float]:
    """Return the medians of a server's seconds of CPU until it answers, and of its MiB some seconds later."""
    measured = [_started(server) for _ in range(runs)]
    return statistics.median(s for s, _ in measured), statistics.median(m for _, m in measured)


def servers() -> tuple[Server, ...]:
    """Return the servers, each on free ports of loopback, without a cluster and without GPUs."""
    streams = (
        *("metrics-api", "--source=streams", "--agent=127.0.0.1:9", "--secure-port=0"),
        "--insecure-loopback-port={port}",
    )
    return (
        Server("agent", ("exporter", "--gpu=simulated", "--address=127.0.0.1:{port}"), "/metrics"),
        Server("metrics-api", streams, "/livez"),
        Server("collector", streams, "/livez", is_child=True),
        Server("up", ("up", "--port={port}"), "/"),
    )


def main() -> None:
    """Print a table for each folder, and one of the servers if they are asked for."""
    parser = argparse.ArgumentParser(description="figures of a source tree")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src/gpuscale")])
    parser.add_argument("--servers", action="store_true", help="start each server, too")
    asked = parser.parse_args()
    for folder in asked.folders:
        _print_table((str(folder), ""), figures(folder).items())
    if asked.servers:
        rows = [(each.name, start_and_memory(each)) for each in servers()]
        cells = [(name, f"{s:.2f} s of CPU, {mib:.0f} MiB") for name, (s, mib) in rows]
        _print_table(("server", "start, memory"), cells)


def _started(server: Server) -> tuple[float, float]:
    """Start a server once, end it, and return its seconds and MiB."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = str(Path(sys.executable).parent / "gpuscale")
    arguments = [each.format(port=port) for each in server.arguments]
    with subprocess.Popen(
        [program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}{server.page}", process)
            seconds = _cpu_s(process.pid)
            time.sleep(SETTLE_S)
            if server.is_child:
                child = _child(process.pid)
                return _cpu_s(child), _memory_mib(child)
            return seconds, _memory_mib(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url) as answer:
            answer.read()
            return
        time.sleep(0.01)
    sys.exit(f"no answer at {url} from {process.args!r}")


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def _folders(read: Iterable[Module]) -> dict[Path, int]:
    counts = Counter(each.path.parent for each in read if each.path.name != "__init__.py")
    return {path: count for path, count in counts.most_common() if count > MOST_IN_FOLDER}


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _documented(tree: ast.Module) -> Iterator[Documented]:
    return (node for node in ast.walk(tree) if isinstance(node, Documented))


def _docstring_lines(node: Documented) -> int:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return _length(first) if isinstance(first.value.value, str) else 0
    return 0


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that is used: read, imported, an attribute, or a text such as those of `__all__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value) if len(node.value) < 200 else ()


def _spread(values: Sequence[int]) -> str:
    ordered = sorted(values) or [0]
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{statistics.median(ordered):.0f} / {p90} / {_thousands(ordered[-1])}"


def _share(count: int, of: int) -> str:
    return f"{count} ({_percent(count, of)})"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / max(1, of):.0f} %"


def _thousands(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return f"{len(found)}: {', '.join(found)}" if found else "0"


def _print_table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
    lines = [head, ("---", "---"), *rows]
    sys.stdout.write("".join(f"| {left} | {right} |\n" for left, right in lines) + "\n")


if __name__ == "__main__":
    main()
