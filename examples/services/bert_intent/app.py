"""BERT intent detection over HTTP: GET /predict?query=Music answers PlayMusic.

    python -m bert_intent.app --port 8000

With `--model` and a GPU a BERT model answers. Without, a table of words does, after the time that a GPU
would have taken: `--service-ms` and `--service-times` say how long that is, `--lanes` how many requests are
worked on at once.
"""

import argparse
from collections.abc import Callable

from aiohttp import web

from bert_intent.intents import bert, by_words
from common.devices import Device, add_device_options, choose
from common.serving import Metrics, add_server_options, application, serve

MOST_CHARACTERS = 2000
NAME = "bert-intent"


def routes(device: Device, intent: Callable[[str], str]) -> list[web.RouteDef]:
    """Return the sample's own paths."""

    async def predict(request: web.Request) -> web.Response:
        query = request.query.get("query", "").strip()
        if not 0 < len(query) <= MOST_CHARACTERS:
            found = f"{len(query)} characters" if query else "no query"
            raise web.HTTPBadRequest(
                text=f"found {found}, expected ?query= with a sentence of up to {MOST_CHARACTERS}\n"
            )
        return web.Response(text=await device.run(lambda: intent(query)))

    return [web.get("/predict", predict)]


def main() -> None:
    """Run the sample."""
    parser = argparse.ArgumentParser(
        prog=NAME, description="GET /predict?query=Music answers PlayMusic."
    )
    add_server_options(parser)
    add_device_options(parser, service_ms=50)
    parser.add_argument("--model", help="folder or Hugging Face name of a sequence classifier")
    options = parser.parse_args()
    stand_in: Callable[[str], str] = by_words
    device, intent = choose(parser, options, options.model, bert, stand_in)
    app = application(device, Metrics(device))
    app.add_routes(routes(device, intent))
    serve(app, device.gpu, NAME, options)


if __name__ == "__main__":
    main()
