"""Pictures from bytes, with bounds, and one to try with."""

import io

from PIL import Image

MOST_BYTES = 16 * 1024 * 1024
_MOST_PIXELS = 40_000_000
"""A small file may unfold to gigabytes; a camera's photo has fewer pixels than this."""
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")


class NoPictureError(Exception):
    """What came is not a picture that is taken; the text says what is."""


def read(data: bytes) -> Image.Image:
    """Return a picture in RGB.

    Raises:
        NoPictureError: no picture, or too large a one.
    """
    try:
        picture = Image.open(io.BytesIO(data), formats=_FORMATS)
        width, height = picture.size
        if width * height > _MOST_PIXELS:
            raise NoPictureError(
                f"found {width} x {height} pixels, expected {_MOST_PIXELS} at the most"
            )
        return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise NoPictureError(f"expected a picture, one of {', '.join(_FORMATS)}") from error


def sample() -> Image.Image:
    """Return a picture of a blue sky over green grass."""
    picture = Image.new("RGB", (224, 224), (90, 150, 230))
    picture.paste((70, 160, 60), (0, 180, 224, 224))
    return picture
