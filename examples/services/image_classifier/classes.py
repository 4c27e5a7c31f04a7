"""What says what is in a picture: ResNet-50 on a GPU, or its main colour where there is none."""

import colorsys
from collections.abc import Callable

from PIL import Image

Classify = Callable[[Image.Image], tuple[str, float]]
"""Takes a picture; returns a label and how sure it is of it, 0 to 1."""
_HUES = ("red", "yellow", "green", "cyan", "blue", "magenta")
_GREYS = ("black", "grey", "white")


def by_colour(picture: Image.Image) -> tuple[str, float]:
    """Return the colour that most of the picture has, and its share."""
    small = picture.resize((32, 32))
    counts = dict.fromkeys((*_HUES, *_GREYS), 0)
    pixels = small.tobytes()
    for start in range(0, len(pixels), 3):
        counts[_colour(*pixels[start : start + 3])] += 1
    best = max(counts, key=lambda name: counts[name])
    return best, counts[best] / (32 * 32)


def _colour(red: int, green: int, blue: int) -> str:
    hue, saturation, value = colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)
    if saturation < 0.2 or value < 0.2:
        return _GREYS[min(2, int(value * 3))]
    return _HUES[round(hue * 6) % 6]


def resnet(weights: str) -> tuple[str, Classify]:
    """Load ResNet-50 onto the GPU.

    Args:
        weights: a file with the state of torchvision's resnet50, trained on ImageNet.

    Returns:
        The GPU's name, and what classifies a picture.

    Raises:
        ImportError: torch or torchvision is not installed.
        RuntimeError: there is no GPU.
        OSError: the file can't be read.
    """
    import torch
    from torchvision.models import ResNet50_Weights, resnet50

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    known = ResNet50_Weights.IMAGENET1K_V2
    model = resnet50()
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    model = model.to("cuda").eval()
    prepare, labels = known.transforms(), known.meta["categories"]

    def classify(picture: Image.Image) -> tuple[str, float]:
        batch = prepare(picture).unsqueeze(0).to("cuda")
        with torch.inference_mode():
            chances = model(batch).softmax(dim=1)[0]
        best = int(chances.argmax())
        return str(labels[best]), float(chances[best])

    classify(Image.new("RGB", (224, 224)))  # warms up
    return torch.cuda.get_device_name(), classify
