"""The colours of both schemes keep the contrast that WCAG 2.1 asks for: 4.5 for text, 3 for lines."""

import re

import pytest

from gpuscale.views.assets import static_text

BLOCKS = re.findall(r":root \{(.*?)\}", static_text("style.css"), re.DOTALL)
SCHEMES = {"light": BLOCKS[0], "dark": BLOCKS[1]}
TEXT = ["ink", "ink-2", "ink-3", "accent", "pending", "fine", "warning"]
LINES = [f"series-{i}" for i in range(1, 9)] + ["load", "scaling", "pods", "nodes"]


def colours(scheme):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", SCHEMES[scheme]))


def luminance(colour):
    # WCAG 2.1, definition of relative luminance.
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", TEXT)
def test_text_stands_out_from_its_ground(scheme, name):
    found = colours(scheme)
    grounds = ["surface", "paper", *(["sunken"] if name.startswith("ink") else [])]
    if name == "accent":
        grounds.append("accent-soft")
    assert min(contrast(found[name], found[ground]) for ground in grounds) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LINES)
def test_lines_stand_out_from_the_chart(scheme, name):
    found = colours(scheme)
    assert contrast(found[name], found["surface"]) >= 3


def test_both_schemes_name_the_same_colours():
    assert colours("light").keys() == colours("dark").keys()
