"""The hash that decides which series `limit_ratio` keeps.

Source: prometheus promql/engine.go (HashRatioSampler) and model/labels (Hash of a build with string labels);
xxHash, XXH64 with seed 0.
"""

from gpuscale.series.labels import LabelSet

_MASK = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_STARTS = ((_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK)
_TURNS = (1, 7, 12, 18)
_LONG_BYTES = 255


def is_sampled(labels: LabelSet, ratio: float) -> bool:
    """Return whether a ratio keeps a label set: low hashes for a positive ratio, high ones for a negative."""
    place = offset(labels)
    return place < ratio if ratio >= 0 else place >= 1 + ratio


def offset(labels: LabelSet) -> float:
    """Return a label set's hash as a number from 0 to 1."""
    parts = (each.encode() for pair in labels.items() for each in pair)
    return xxh64(b"".join(_size(len(part)) + part for part in parts)) / _MASK


def _size(length: int) -> bytes:
    if length < _LONG_BYTES:
        return bytes([length])
    return bytes([_LONG_BYTES]) + (length & 0xFFFFFF).to_bytes(3, "little")


def xxh64(content: bytes) -> int:
    """Return the 64-bit xxHash of some bytes."""
    stripes = len(content) // 32 * 32
    accumulated = _striped(content[:stripes]) if stripes else _P5
    accumulated = (accumulated + len(content)) & _MASK
    return _mixed(_with_tail(accumulated, content[stripes:]))


def _striped(content: bytes) -> int:
    lanes = list(_STARTS)
    for start in range(0, len(content), 8):
        lane = start // 8 % 4
        lanes[lane] = _round(lanes[lane], int.from_bytes(content[start : start + 8], "little"))
    accumulated = sum(_turn(lane, by) for lane, by in zip(lanes, _TURNS, strict=True)) & _MASK
    for lane in lanes:
        accumulated = ((accumulated ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return accumulated


def _with_tail(accumulated: int, tail: bytes) -> int:
    while len(tail) >= 8:
        accumulated ^= _round(0, int.from_bytes(tail[:8], "little"))
        accumulated = (_turn(accumulated, 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        accumulated ^= int.from_bytes(tail[:4], "little") * _P1 & _MASK
        accumulated = (_turn(accumulated, 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        accumulated ^= byte * _P5 & _MASK
        accumulated = _turn(accumulated, 11) * _P1 & _MASK
    return accumulated


def _mixed(accumulated: int) -> int:
    accumulated = (accumulated ^ accumulated >> 33) * _P2 & _MASK
    accumulated = (accumulated ^ accumulated >> 29) * _P3 & _MASK
    return accumulated ^ accumulated >> 32


def _round(accumulated: int, lane: int) -> int:
    return _turn((accumulated + lane * _P2) & _MASK, 31) * _P1 & _MASK


def _turn(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
