"""Text from outside, fit for a terminal."""


def printable(text: str) -> str:
    """Return the text with escapes for what a terminal would act on, such as colours and line ends."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )
