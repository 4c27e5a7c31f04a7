"""Model servers in the containers of a workload: which one, in which release, started with which options.

Source: vLLM 0.11 vllm/config/cache.py (0.9 of the memory by default) and engine/arg_utils.py; SGLang 0.5
    server_args.py (the share is worked out from the GPU); text-generation-inference 3.3 launcher/src/main.rs
    (1.0); TensorRT-LLM 1.0 llmapi/llm_args.py (KvCacheConfig: 0.9 of what is free); llama.cpp common/arg.cpp.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.ops.lint.parts import Part
from gpuscale.ops.lint.workloads import Workload


@dataclass(frozen=True, slots=True)
class Server:
    """A model server, by what names it in a container."""

    family: str
    """The first part of its signals' names."""
    words: tuple[str, ...]
    """One of them is in its image's name or in its command."""
    memory: str = ""
    """The option for the share of the GPU's memory that it takes when it starts; empty: it takes none."""
    running: str = ""
    """The series of requests at work."""
    limits: tuple[str, ...] = ()
    """Spellings of the option that bounds them."""


SERVERS = (
    Server(
        "vllm",
        ("vllm",),
        "--gpu-memory-utilization",
        "vllm:num_requests_running",
        ("--max-num-seqs", "--max_num_seqs"),
    ),
    Server(
        "sglang",
        ("sglang",),
        "--mem-fraction-static",
        "sglang:num_running_reqs",
        ("--max-running-requests",),
    ),
    Server(
        "tgi",
        ("text-generation-inference", "text-generation-launcher"),
        "--cuda-memory-fraction",
        "tgi_batch_current_size",
        ("--max-batch-size",),
    ),
    Server("trtllm", ("tensorrt-llm", "trtllm"), "kv_cache_free_gpu_memory_fraction"),
    Server(
        "llamacpp",
        ("llama.cpp", "llama-server"),
        running="llamacpp:requests_processing",
        limits=("--parallel", "-np"),
    ),
)
_RELEASES = {"vllm": re.compile(r"(?:^|/)vllm/vllm-openai:v?(\d+)\.(\d+)")}
"""The release in the tag of a project's own image, by family; others number theirs on their own."""


def servers_in(workload: Workload) -> Iterator[tuple[Server, Part]]:
    """Yield the model servers of a workload's pods, each with its container."""
    for container in workload.pods.part.items("containers"):
        # A command names models too, which are called like servers.
        for words in (container.text("image"), _words(container)):
            found = [each for each in SERVERS if any(word in words for word in each.words)]
            yield from ((each, container) for each in found)
            if found:
                break


def number_of(container: Part, options: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the option that is given as `--option 8` or `--option=8`, and its number."""
    for option in options:
        found = re.search(rf"(?:^|\s){re.escape(option)}[=\s]+(\d+)(?:\s|$)", _words(container))
        if found:
            return option, int(found[1])
    return None


def release_of(workload: Workload, family: str) -> tuple[tuple[int, ...], str] | None:
    """Return the release of a server that a workload runs, and the image that says so."""
    for container in workload.pods.part.items("containers"):
        image = container.text("image")
        found = _RELEASES[family].search(image) if family in _RELEASES else None
        if found is not None:
            release = tuple(map(int, found.groups()))
            return release, f"{container.place('image')}: image {image}"
    return None


def _words(container: Part) -> str:
    return " ".join([*container.texts("command"), *container.texts("args")])
