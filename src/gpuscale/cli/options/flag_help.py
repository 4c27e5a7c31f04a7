"""What help says of a flag."""

from gpuscale.base.flags import Flag

_KINDS = {"bool": "BOOL", "duration": "DURATION", "list": "LIST", "int": "N"}
_ENDINGS = {"-url": "URL", "-file": "FILE", "-kubeconfig": "FILE", "-dir": "FOLDER"}


def flag_names(flag: Flag) -> list[str]:
    """Return the names of a flag with their dashes."""
    if not flag.alias:
        return [f"--{flag.name}"]
    return [f"--{flag.name}", f"-{flag.alias}" if len(flag.alias) == 1 else f"--{flag.alias}"]


def value_word(flag: Flag) -> str:
    """Return the word for a flag's value."""
    if flag.choices:
        return "|".join(flag.choices)
    if flag.kind in _KINDS:
        return _KINDS[flag.kind]
    return next((word for end, word in _ENDINGS.items() if flag.name.endswith(end)), "TEXT")


def help_text(flag: Flag) -> str:
    """Return what a flag does, its default and its variable."""
    text = f"{flag.help} (Changes nothing here.)" if flag.no_effect else flag.help
    text = f"{text} Default: {flag.default}." if flag.default else text
    return f"{text} Variable: {flag.env}." if flag.env else text
