"""Makes pages that are written for GitHub fit for MkDocs: `hooks` in mkdocs.yml names this module.

Links to files that are no part of the site lead to the repository, titles of code blocks are quoted, and
blocks in lists are indented by four.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tests have no MkDocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\((?P<target>[^):#]+)(?P<anchor>#[^)]*)?\)")
_BLOCK = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^(?P<fence> *```\w+) title=(?P<title>[^\s\"]+)$", re.MULTILINE)
_IN_LIST = re.compile(r"^   (?! )", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as Python-Markdown takes it."""
    served = {f"docs/{file.src_uri}" for file in files}
    linked = with_links(markdown, page.file.src_uri, served, f"{config['repo_url']}/blob/main")
    parts = _BLOCK.split(_TITLE.sub(r'\g<fence> title="\g<title>"', linked))
    parts[::2] = [_IN_LIST.sub("    ", prose) for prose in parts[::2]]
    return "".join(parts)


def with_links(markdown: str, page: str, served: set[str], repository: str) -> str:
    """Return the text with absolute links to the files of the repository that the site does not serve.

    Args:
        markdown: the page.
        page: its path in docs/.
        served: the files in docs/ that the site serves.
        repository: the address under which the repository's files are.
    """

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), found["target"]))
        if path in served or not (ROOT / path).exists():
            return found[0]  # where nothing is, the strict build reports the link
        return f"]({repository}/{path}{found['anchor'] or ''})"

    return _LINK.sub(link, markdown)
