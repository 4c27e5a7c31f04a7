"""An image classifier over HTTP: POST a picture to /predict, or GET /predict for the sample's own.

    python -m image_classifier.app --port 8000

With `--weights` and a GPU, ResNet-50 answers. Without, the picture's main colour does, after the time that a
GPU would have taken: `--service-ms` and `--service-times` say how long that is, `--lanes` how many requests
are worked on at once.
"""

import argparse
import asyncio

from aiohttp import web

from common.devices import Device, add_device_options, choose
from common.serving import Metrics, add_server_options, application, serve
from image_classifier import pictures
from image_classifier.classes import Classify, by_colour, resnet

NAME = "image-classifier"


def routes(device: Device, classify: Classify) -> list[web.RouteDef]:
    """Return the sample's own paths."""

    async def predict(request: web.Request) -> web.Response:
        picture = pictures.sample()
        if request.method == "POST":
            data = await request.read()
            try:
                picture = await asyncio.to_thread(pictures.read, data)
            except pictures.NoPictureError as error:
                raise web.HTTPBadRequest(text=f"{error}\n") from None
        label, chance = await device.run(lambda: classify(picture))
        return web.json_response({"label": label, "score": round(chance, 4)})

    return [web.get("/predict", predict), web.post("/predict", predict)]


def main() -> None:
    """Run the sample."""
    parser = argparse.ArgumentParser(prog=NAME, description="POST a picture to /predict.")
    add_server_options(parser)
    add_device_options(parser, service_ms=60)
    parser.add_argument("--weights", help="file with the state of torchvision's resnet50")
    options = parser.parse_args()
    stand_in: Classify = by_colour
    device, classify = choose(parser, options, options.weights, resnet, stand_in)
    app = application(device, Metrics(device), pictures.MOST_BYTES)
    app.add_routes(routes(device, classify))
    serve(app, device.gpu, NAME, options)


if __name__ == "__main__":
    main()
