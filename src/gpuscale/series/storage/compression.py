"""Compression: Zstandard and Snappy with cramjam, else algorithms of the standard library.

Source: github.com/google/snappy format_description.txt.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib.util import find_spec

_ZLIB_LEVEL = 1
_ZSTD_LEVEL = 1
_LITERAL_LENGTH_IN_4_BYTES = 63 << 2
_CORRUPT = "the compressed bytes are corrupt"


class Compression(IntEnum):
    """A compression method; its number is written to files."""

    ZLIB = 1
    ZSTD = 2


class CompressionError(ValueError):
    """Bytes that can't be decompressed."""


def best_compression() -> Compression:
    """Return the best installed method; Zstandard takes a third of zlib's time."""
    return Compression.ZSTD if _has_cramjam() else Compression.ZLIB


def compress(data: bytes, compression: Compression) -> bytes:
    """Compress bytes; other threads run meanwhile."""
    if compression is Compression.ZLIB:
        return zlib.compress(data, _ZLIB_LEVEL)
    import cramjam

    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))


def decompress(data: bytes, compression: Compression, size: int) -> bytes:
    """Decompress to `size` bytes, never to more.

    Raises:
        CompressionError: the bytes are corrupt, hold more or less, or need a package that is missing.
    """
    if compression is Compression.ZLIB:
        return _inflate(data, size)
    if not _has_cramjam():
        raise CompressionError("it is compressed with Zstandard, which takes gpuscale[streams]")
    import cramjam

    made = bytearray(size)
    try:
        count = cramjam.zstd.decompress_into(data, made)
    except cramjam.DecompressionError:
        raise CompressionError(_CORRUPT) from None
    if count != size:
        raise CompressionError(_CORRUPT)
    return bytes(made)


def snappy_block(data: bytes) -> bytes:
    """Return a Snappy block; without cramjam it is not smaller than the data."""
    return _snappy()(data)


def _snappy() -> Callable[[bytes], bytes]:
    if not _has_cramjam():
        return _snappy_literal
    import cramjam

    return lambda data: bytes(cramjam.snappy.compress_raw(data))


def _snappy_literal(data: bytes) -> bytes:
    """Return a block whose only element is a literal."""
    size = len(data)
    preamble = bytearray()
    while size >= 0x80:
        preamble.append(size & 0x7F | 0x80)
        size >>= 7
    preamble.append(size)
    if not data:
        return bytes(preamble)
    length = (len(data) - 1).to_bytes(4, "little")
    return b"".join((preamble, bytes((_LITERAL_LENGTH_IN_4_BYTES,)), length, data))


def _inflate(data: bytes, size: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        made = inflating.decompress(data, size + 1)
    except zlib.error:
        raise CompressionError(_CORRUPT) from None
    if len(made) != size or not inflating.eof:
        raise CompressionError(_CORRUPT)
    return made


def _has_cramjam() -> bool:
    return find_spec("cramjam") is not None
