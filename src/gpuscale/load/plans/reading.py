"""Detects which tool's plan a file is, and reads it."""

from collections.abc import Callable
from pathlib import PurePath

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.load.plans.jmeter import read_jmeter
from gpuscale.load.plans.k6 import read_k6
from gpuscale.load.plans.locust import read_locust_config, read_locustfile
from gpuscale.load.plans.taurus import is_taurus, read_taurus
from gpuscale.load.plans.types import ForeignPlan

_EXPECTED = (
    "a plan of Taurus (.yml), JMeter (.jmx), Locust (.py, .conf, .toml) or k6 (.js, .ts, .json)"
)


def read_plan(text: str, name: str, read_beside: Callable[[str], str]) -> ForeignPlan:
    """Read a plan, detected by file name and content.

    Args:
        text: of the file.
        name: as the user gave it.
        read_beside: returns the text of a file that it names, found from where it is.

    Raises:
        ConfigError: it is no plan that is known, or is wrong.
    """
    match PurePath(name).suffix.lower():
        case ".jmx" | ".xml":
            return read_jmeter(text, name)
        case ".js" | ".ts" | ".mjs":
            return read_k6(text, name)
        case ".py":
            return read_locustfile(text, name)
        case ".conf" | ".toml" | ".cfg" | ".ini":
            return read_locust_config(text, name, read_beside)
        case ".json" | ".yml" | ".yaml":
            document = next(iter(load_documents(text, name)), None)
            if document is not None and is_taurus(document.data):
                return read_taurus(text, name)
            if text.lstrip().startswith("{"):
                return read_k6(text, name)
    if text.lstrip().startswith("<"):
        return read_jmeter(text, name)
    raise ConfigError(Problem(name, None, None, "another file", _EXPECTED))
