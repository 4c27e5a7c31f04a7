"""Digits of 28 x 28 pixels: MNIST's, or ones that are drawn here where MNIST is not at hand."""

import gzip
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 28
_GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""0 to 9 in the 5 x 7 dots of character displays."""
_IMAGES, _LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049


class Digits(NamedTuple):
    """Pictures and what they show."""

    pixels: NDArray[np.float32]
    """A row a picture, 0 to 1."""
    labels: NDArray[np.int64]


def drawn(count: int, seed: int) -> Digits:
    """Return digits in random places, with noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, count)
    pixels = draw.random((count, SIDE, SIDE), dtype=np.float32)
    pixels *= 0.4
    glyphs = [_large(text) for text in _GLYPHS]
    for picture, label in zip(pixels, labels, strict=True):
        top, left = draw.integers(2, 6), draw.integers(4, 10)
        picture[top : top + 21, left : left + 15] += 0.6 * glyphs[label]
    return Digits(pixels.reshape(count, -1), labels)


def _large(text: str) -> NDArray[np.float32]:
    dots = np.array([[float(dot) for dot in row] for row in text.split()], dtype=np.float32)
    return np.kron(dots, np.ones((3, 3), dtype=np.float32))


def of_mnist(folder: Path) -> Digits:
    """Return MNIST's training set from its own files.

    Raises:
        OSError: a file is not there, or can't be read.
        ValueError: a file is something else.
    """
    images = gzip.decompress((folder / _IMAGES).read_bytes())
    magic, count, rows, columns = struct.unpack_from(">IIII", images)
    if magic != _IMAGES_MAGIC or (rows, columns) != (SIDE, SIDE):
        raise ValueError(f"{folder / _IMAGES}: expected pictures of {SIDE} x {SIDE} in IDX format")
    text = gzip.decompress((folder / _LABELS).read_bytes())
    if struct.unpack_from(">II", text) != (_LABELS_MAGIC, count):
        raise ValueError(f"{folder / _LABELS}: expected {count} labels in IDX format")
    pixels = np.frombuffer(images, np.uint8, count * SIDE * SIDE, 16).reshape(count, -1)
    labels = np.frombuffer(text, np.uint8, count, 8)
    return Digits(np.divide(pixels, 255, dtype=np.float32), labels.astype(np.int64))
