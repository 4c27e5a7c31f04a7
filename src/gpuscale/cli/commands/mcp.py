"""`gpuscale mcp`: the commands that only look, as tools of a Model Context Protocol server on stdio.

Whoever calls a tool is a language model, which may have read anything: where credentials lie and go, and
which folders may be read, is said by who starts the server, and no argument of a tool changes it.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from gpuscale import __version__
from gpuscale.base.errors import GpuscaleError, UsageError
from gpuscale.cli.commands.decide import named_sources
from gpuscale.cli.exits import NO
from gpuscale.cli.options.cluster import Context, Kubeconfig
from gpuscale.cli.options.prometheus import (
    PrometheusIdentity,
    PrometheusTokenFile,
    PrometheusUrl,
    RecordedCaFile,
    check_url,
)

if TYPE_CHECKING:
    from mcp.server import Server

# -P: modules in the working directory are not imported.
_COMMAND = (sys.executable, "-P", "-m", "gpuscale.cli.main")
_LONGEST_S = 300.0
_MOST_BYTES = 1_000_000
"""Of an answer: a model reads all of it."""
_AT_ONCE = 2
"""Calls that run; each is a process, and others wait."""
_CLUSTER = ("kubeconfig", "context")
_PROMETHEUS = ("prometheus_url", "prometheus_token_file", "prometheus_ca_file")
_BESIDE = ("prometheus_url", "prometheus_token_file", "prometheus_identity")
_INSTRUCTIONS = (
    "Reads GPU autoscaling on Kubernetes, and changes nothing. Start with doctor for what is wrong, decide "
    "for why an HPA does or does not scale, report for what happened, money for what GPUs cost. Answers are "
    "the JSON of the gpuscale commands of the same names."
)


@dataclass(frozen=True, slots=True)
class _Tool:
    """A command that a client may call."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    """That a call may give. Those that write, ask, serve or go to other addresses are left out."""
    connection: tuple[str, ...]
    """That the server gives: where to look, and with what credentials."""
    needs: str = ""
    """Of the connection, what it can't do without."""


_TOOLS: Mapping[str, _Tool] = {
    "decide": _Tool(("decide",), ("what", "namespace", "all_namespaces"), _CLUSTER),
    "doctor": _Tool(("doctor",), ("namespace",), (*_CLUSTER, *_BESIDE)),
    "lint": _Tool(
        ("lint",),
        ("files", "live", "kubernetes_version", "instance_types", "baseline", "skip_unknown"),
        _CLUSTER,
    ),
    "why": _Tool(
        ("metrics-api", "why"), ("whose", "metric", "selector", "metric_selector"), _CLUSTER
    ),
    "report": _Tool(("report",), ("since", "until", "namespace"), _PROMETHEUS, "prometheus_url"),
    "money": _Tool(
        ("money",),
        (
            *("since", "until", "by", "label", "gpu_price", "currency", "instance_types"),
            *("savings", "most", "forecast"),
        ),
        _PROMETHEUS,
        "prometheus_url",
    ),
    "top": _Tool(("top",), ("namespace",), (*_CLUSTER, *_BESIDE)),
}


def mcp(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Where lint and decide may read files; relative names are of the first. Without one, no "
            "file is read.",
        ),
    ] = None,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_ca_file: RecordedCaFile = None,
    prometheus_identity: PrometheusIdentity = None,
) -> None:
    """Serve the commands that look to an assistant, as tools of the Model Context Protocol.

    They are decide, doctor, lint, why, report, money and top, and only read. Speaks on standard input and
    output, until that ends; a client starts it. Cluster, Prometheus and folders are those given here,
    whatever a call asks for.

    Exit code 0: the client has ended; 2: the input is wrong.

    Example:  gpuscale mcp

    Example:  gpuscale mcp deploy/ --context prod --prometheus-url http://127.0.0.1:9090
    """
    from mcp.server.stdio import stdio_server

    check_url("--prometheus-url", prometheus_url)
    for each in folders or ():
        if not each.is_dir():
            raise UsageError(f"found {str(each)!r}, expected a folder")
    given = {
        "kubeconfig": kubeconfig and kubeconfig.absolute(),
        "context": context,
        "prometheus_url": prometheus_url,
        "prometheus_token_file": prometheus_token_file and prometheus_token_file.absolute(),
        "prometheus_ca_file": prometheus_ca_file and prometheus_ca_file.absolute(),
        "prometheus_identity": prometheus_identity,
    }
    connection = {name: str(value) for name, value in given.items() if value is not None}
    server = _server(Calls([each.resolve() for each in folders or ()], connection))

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(serve())


class Calls:
    """What a client may call, and how a call becomes a command.

    Args:
        folders: in which files may be read, without symbolic links.
        connection: options of the server about cluster and Prometheus, by parameter.
    """

    def __init__(self, folders: Sequence[Path], connection: Mapping[str, str]) -> None:
        self.folder = folders[0] if folders else None
        self._folders = folders
        self._connection = connection
        self._commands = {name: _command(tool.command) for name, tool in _TOOLS.items()}

    def described(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield each tool's name, what it is for, and the JSON schema of its arguments."""
        for name, command in self._commands.items():
            parameters = self._parameters(name)
            yield (
                name,
                " ".join(command.help.partition("\n\n")[0].split()),
                {
                    "type": "object",
                    "properties": {each.name: _schema(each) for each in parameters.values()},
                    "required": [each.name for each in parameters.values() if each.required],
                    "additionalProperties": False,
                },
            )

    def words(self, name: str, given: Mapping[str, object]) -> list[str]:
        """Return the command line of a call.

        Raises:
            UsageError: the tool or an argument is not known, or asks for what the server may not read.
        """
        if name not in _TOOLS:
            raise UsageError(f"found no tool {name!r}, expected one of {', '.join(_TOOLS)}")
        parameters = self._parameters(name)
        options, last = ["--output=json"], ["--"]
        for key, value in given.items():
            if key not in parameters:
                raise UsageError(f"found {key!r}, expected some of {', '.join(parameters)}")
            parameter = parameters[key]
            texts = _texts(parameter, value)
            if "FILE" in (parameter.metavar or ""):
                self._check_files(parameter, texts)
            if parameter.param_type_name == "argument":
                last += texts
            elif _kind(parameter) is bool:
                options += parameter.opts[:1] if value else []
            else:
                options += [f"{parameter.opts[0]}={text}" for text in texts]
        for parameter in self._commands[name].params:
            if parameter.name not in _TOOLS[name].connection or (
                name == "lint" and not given.get("live")
            ):
                continue
            if parameter.name in self._connection:
                options.append(f"{parameter.opts[0]}={self._connection[parameter.name]}")
            elif parameter.name == _TOOLS[name].needs:
                raise UsageError(
                    f"{name} needs {parameter.opts[0]}: start gpuscale mcp with {parameter.opts[0]} "
                    f"{parameter.metavar}"
                )
        return [*_TOOLS[name].command, *options, *last]

    def _parameters(self, name: str) -> dict[str, Any]:
        return {
            each.name: each
            for each in self._commands[name].params
            if each.name in _TOOLS[name].options
        }

    def _check_files(self, parameter: Any, names: Sequence[str]) -> None:  # noqa: ANN401 - typer keeps its classes to itself
        if parameter.name == "what":  # of decide: HPAs and files
            names = [each for each in named_sources(names) if isinstance(each, str)]
        for name in names:
            if not self._folders:
                raise UsageError(f"found {name!r}, and gpuscale mcp was started without a FOLDER")
            file = (self._folders[0] / name).resolve()
            if not any(file.is_relative_to(each) for each in self._folders):
                places = ", ".join(map(str, self._folders))
                raise UsageError(
                    f"{parameter.name}: found {name!r}, expected a file in {places}; to read others, start "
                    "gpuscale mcp with their FOLDER"
                )


def _server(calls: Calls) -> "Server[Any]":
    """Return the server of the tools."""
    from mcp.server import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

    slots = asyncio.Semaphore(_AT_ONCE)
    tools = [
        Tool(
            name=name,
            description=description,
            input_schema=schema,
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
        )
        for name, description, schema in calls.described()
    ]

    async def listed(_context: object, _params: object) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def called(_context: object, params: Any) -> CallToolResult:  # noqa: ANN401 - the library's type of calls
        try:
            words = calls.words(params.name, params.arguments or {})
            async with slots:
                text, failed = await _answer(words, calls.folder)
        except GpuscaleError as error:
            text, failed = str(error), True
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    return Server(
        "gpuscale",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


async def _answer(words: Sequence[str], folder: Path | None) -> tuple[str, bool]:
    """Return what a command prints, or what it says of errors, and whether it failed.

    In a process, so that a call that is cancelled ends, and leaves nothing behind for the next.
    """
    process = await asyncio.create_subprocess_exec(
        *(*_COMMAND, *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
    )
    try:
        async with asyncio.timeout(_LONGEST_S):
            printed, told = await process.communicate()
    except TimeoutError:
        return f"no answer within {_LONGEST_S:g} s; ask for less, such as one namespace", True
    finally:
        if process.returncode is None:
            process.kill()
    if len(printed) > _MOST_BYTES:
        large = f"the answer has {len(printed)} bytes, more than {_MOST_BYTES}"
        return f"{large}; ask for less, such as one namespace", True
    failed = process.returncode not in (0, NO) or not printed.strip()
    text = printed if printed.strip() else told  # decide prints its errors as documents too
    return text.decode(errors="replace"), failed


# What typer knows of a command. It keeps its classes to itself.


def _command(path: Sequence[str]) -> Any:  # noqa: ANN401 - as above
    from typer.main import get_command

    from gpuscale.cli.registry import app

    found: Any = get_command(app)
    context = found.context_class(found, info_name="gpuscale")
    for word in path:
        found = found.get_command(context, word)
    return found


def _kind(parameter: Any) -> Any:  # noqa: ANN401 - as above
    return parameter.type_descriptor.annotation


def _is_list(parameter: Any) -> bool:  # noqa: ANN401 - as above
    return get_origin(_kind(parameter)) is list


def _schema(parameter: Any) -> dict[str, object]:  # noqa: ANN401 - as above
    kind = _kind(parameter)
    help_ = parameter.help or ""
    if parameter.metavar:
        help_ = f"{parameter.metavar}: {help_}"
    if isinstance(parameter.show_default, str):
        help_ += f" Default: {parameter.show_default}."
    elif isinstance(parameter.default, str) and parameter.default:
        help_ += f" Default: {parameter.default}."
    if kind is bool:
        return {"type": "boolean", "description": help_}
    if kind is int:
        return {"type": "integer", "description": help_}
    if _is_list(parameter):
        return {"type": "array", "items": {"type": "string"}, "description": help_}
    choices = {"enum": [each.value for each in kind]} if issubclass(kind, Enum) else {}
    return {"type": "string", "description": help_, **choices}


def _texts(parameter: Any, value: object) -> list[str]:  # noqa: ANN401 - as above
    """Return a value of a call as texts of the command line.

    Raises:
        UsageError: it has another type than the schema says.
    """
    if _kind(parameter) is bool and isinstance(value, bool):
        return []
    if _is_list(parameter) and isinstance(value, list) and all(isinstance(x, str) for x in value):
        return value
    if _kind(parameter) is int and type(value) is int:
        return [str(value)]
    if isinstance(value, str) and _schema(parameter)["type"] == "string":
        return [value]
    expected = _schema(parameter)["type"]
    raise UsageError(f"{parameter.name}: found {value!r}, expected {expected}")
