"""Text as OpenAI's clients ask for it: /v1/completions, /v1/chat/completions, /v1/models.

    python -m text.app --port 8000

On a GPU this is vLLM itself: `--model NAME` starts `vllm serve NAME`. Without one, words come at the pace
that `--step-ms`, `--sequence-ms` and `--prompt-token-ms` declare, with vLLM's metrics.
"""

import argparse
import os
import shutil
import sys

from aiohttp import web

from common.devices import milliseconds, positive
from common.serving import add_server_options, label, serve
from text.api import Api
from text.batch import Batch
from text.engine import Engine, Speed
from text.metrics import Metrics

NAME = "text"


def application(batch: Batch, metrics: Metrics, model: str) -> web.Application:
    """Return the simulated server."""
    app = web.Application(client_max_size=1024 * 1024)
    label(app, "simulated")
    app.cleanup_ctx.append(batch.running)
    app.router.add_get("/metrics", metrics.page)
    app.router.add_get("/health", _health)
    app.add_routes(Api(batch, model).routes())
    return app


async def _health(_request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Run the sample."""
    parser = argparse.ArgumentParser(prog=NAME, description="OpenAI's API with vLLM's metrics.")
    add_server_options(parser)
    parser.add_argument("--model", help="Hugging Face name or folder, for vLLM on a GPU")
    parser.add_argument("--name", default="simulated", help="model name where there is no GPU")
    parser.add_argument("--queue", type=positive, default=1000, help="requests that may wait")
    parser.add_argument("--max-num-seqs", type=positive, default=64, help="requests in the batch")
    parser.add_argument("--kv-tokens", type=int, default=65_536, help="the KV cache's size")
    parser.add_argument("--step-ms", type=milliseconds, default=20, help="of every step")
    parser.add_argument("--sequence-ms", type=milliseconds, default=0.2, help="per request in it")
    parser.add_argument(
        "--prompt-token-ms", type=milliseconds, default=0.1, help="per token of new prompts"
    )
    options = parser.parse_args()
    if options.model is not None:
        start_vllm(options)
    speed = Speed(
        options.step_ms / 1000, options.sequence_ms / 1000, options.prompt_token_ms / 1000
    )
    engine = Engine(speed, options.max_num_seqs, max(1, options.kv_tokens))
    metrics = Metrics(engine, options.name)
    app = application(Batch(engine, metrics, options.queue), metrics, options.name)
    serve(app, None, NAME, options)


def start_vllm(options: argparse.Namespace) -> None:
    """Become vLLM's own server."""
    vllm = shutil.which("vllm")
    if vllm is None:
        sys.exit(f"{NAME}: --model needs vLLM, of requirements-gpu.txt, and a GPU")
    where = ["--host", options.host, "--port", str(options.port)]
    batch = ["--max-num-seqs", str(options.max_num_seqs)]
    print(f"{NAME}: on a GPU, by vllm serve {options.model}", flush=True)
    os.execv(vllm, [vllm, "serve", options.model, *where, *batch])  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main()
