"""The pages of the documentation, taken apart: files, sessions with their outputs, and command lines.

In a page, a fenced block `yaml title=NAME` is a file, and a `console` block is a session: each line that
begins with `$ ` is a command, and what follows is its output. There, `...` stands for anything: for any
lines where it is a line of its own, for any text within a line.
"""

import re
import shlex
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>[^\s`]*)(?: title=(?P<title>\S+))?\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`([^`\n]+)`")
SHELL_KINDS = ("", "sh", "bash", "shell", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block: what follows the fence, the title of a file, the text."""

    kind: str
    title: str | None
    body: str


@dataclass(frozen=True)
class Command:
    """A command of a session, and the lines that it should print."""

    text: str
    output: tuple[str, ...]

    @property
    def stays(self):
        """Whether it goes on in the background."""
        return self.text.rstrip().endswith("&") and not self.text.rstrip().endswith("&&")


def page_name(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    return [
        Block(found["kind"], found["title"], _dedented(found["body"], len(found["indent"])))
        for found in BLOCK.finditer(page.read_text())
    ]


def files(page):
    """Return the texts of the page's files by name."""
    return {block.title: block.body for block in blocks(page) if block.title}


def unnamed_files(page):
    """Return the files whose name does not stand in the text before them: a browser shows no `title=`."""
    text, end, found = page.read_text(), 0, []
    for block in BLOCK.finditer(text):
        if block["title"] and f"`{block['title']}`" not in text[end : block.start()]:
            found.append(block["title"])
        end = block.end()
    return found


def session(page):
    """Return the commands of the page's sessions, in their order."""
    return [
        command
        for block in blocks(page)
        if block.kind == "console"
        for command in _commands(block.body)
    ]


def matches(wanted, printed):
    """Whether the lines are as wanted; `...` stands for anything, runs of blanks count as one."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else f"{_line_pattern(line)}\n" for line in wanted
    )
    return re.fullmatch(pattern, "".join(f"{_squeezed(line)}\n" for line in printed)) is not None


def gpuscale_lines(page):
    """Return each line that runs gpuscale, of blocks for a shell and of inline code, as its words."""
    text = page.read_text()
    shown = [block for block in blocks(page) if block.kind in SHELL_KINDS]
    lines = [line for block in shown for line in _shell_lines(block)]
    lines += [code for code in INLINE.findall(BLOCK.sub("", text)) if code.startswith("gpuscale ")]
    return [words for line in lines if "gpuscale" in line for words in runs_of_gpuscale(line)]


def runs_of_gpuscale(line):
    """Return the words after `gpuscale` of each simple command of a line; none of what is no shell."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that a later line closes
        return []
    parts = [
        list(part)
        for ends, part in groupby(tokens, lambda token: not token.strip("|&;()<>"))
        if not ends
    ]
    return [found for part in parts if (found := _after_gpuscale(part)) is not None]


def _dedented(text, width):
    return "".join(
        line[width:] if line.strip() else line for line in text.splitlines(keepends=True)
    )


def _commands(body):
    for chunk in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = chunk.splitlines()
        end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield Command("\n".join(lines[:end]), tuple(lines[end:]))


def _shell_lines(block):
    if block.kind == "console":
        return [command.text.replace("\\\n", " ") for command in _commands(block.body)]
    return block.body.replace("\\\n", " ").splitlines()


def _after_gpuscale(words):
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        words = words[1:]
    return words[1:] if words and words[0] in ("gpuscale", ".venv/bin/gpuscale") else None


def _line_pattern(line):
    return r"[^\n]*".join(re.escape(part) for part in _squeezed(line).split("..."))


def _squeezed(line):
    return " ".join(line.split())
