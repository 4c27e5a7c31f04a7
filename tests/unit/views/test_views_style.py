"""The colours of both schemes keep the contrast that WCAG 2.1 asks for: 4.5 for text, 3 for lines.

Lines also stay apart for the colour-blind.
"""

import math
import re
from itertools import combinations

import pytest

from gpuscale.base.pages.assets import static_text

BLOCKS = re.findall(r":root \{(.*?)\}", static_text("style.css"), re.DOTALL)
SCHEMES = {"light": BLOCKS[0], "dark": BLOCKS[1]}
TEXT = ["ink", "ink-2", "ink-3", "accent", "pending", "fine", "warning"]
LINES = [f"series-{i}" for i in range(1, 9)] + ["load", "scaling", "pods", "nodes"]

# What a dichromat sees, on linear RGB: Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), severity 1.
SIGHTS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
APART = 20
"""CIE 1976 colour difference; 2.3 is just noticeable side by side, and thin lines need several times that."""


def colours(scheme):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", SCHEMES[scheme]))


def linear_rgb(colour):
    # WCAG 2.1, definition of relative luminance.
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def luminance(colour):
    red, green, blue = linear_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lab(colour, sight):
    """Return CIELAB coordinates (D65) of a colour as it is seen."""
    linear = linear_rgb(colour)
    seen = [sum(m * c for m, c in zip(row, linear, strict=True)) for row in SIGHTS[sight]]
    r, g, b = (min(1, max(0, channel)) for channel in seen)
    x, y, z = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (
            (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
            0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
            (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", TEXT)
def test_text_stands_out_from_its_ground(scheme: str, name) -> None:
    found = colours(scheme)
    grounds = ["surface", "paper", *(["sunken"] if name.startswith("ink") else [])]
    if name == "accent":
        grounds.append("accent-soft")
    assert min(contrast(found[name], found[ground]) for ground in grounds) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LINES)
def test_lines_stand_out_from_the_chart(scheme: str, name) -> None:
    found = colours(scheme)
    assert contrast(found[name], found["surface"]) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_lines_are_told_apart_by_everyone(scheme: str, sight) -> None:
    series = [colours(scheme)[f"series-{i}"] for i in range(1, 9)]
    for one, other in combinations(series, 2):
        assert math.dist(lab(one, sight), lab(other, sight)) >= APART, (one, other)


def test_both_schemes_name_the_same_colours() -> None:
    assert colours("light").keys() == colours("dark").keys()
