"""Pages without scripts: one HTML file that loads nothing."""

import html

from gpuscale.base.pages.assets import static_text
from gpuscale.base.pages.inline import hash_source


def render_still(name: str, heading: str, about: str, body: str, foot: str, style: str) -> str:
    """Return a page as one HTML text; the same parts give the same text.

    Args:
        name: of what it is about, for the window's title; text.
        heading: text.
        about: beside the heading; text.
        body: the sections; markup, whose text is escaped by now.
        foot: text.
        style: CSS behind that of all pages.
    """
    style = static_text("style.css") + style
    policy = f"default-src 'none'; style-src {hash_source(style)}; img-src data:"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(name)} · gpuscale</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body class="report">
<header class="top">
  <p class="brand">gpuscale</p>
  <div class="title"><h1>{html.escape(heading)}</h1><p>{html.escape(about)}</p></div>
</header>
<main>
{body}
</main>
<footer class="foot">{html.escape(foot)}</footer>
</body>
</html>
"""


def section(key: str, title: str, body: str) -> str:
    """Return one panel of a page, over its whole width.

    Args:
        key: names it among the others.
        title: text.
        body: markup.
    """
    return (
        f'  <section class="panel summary" aria-labelledby="{key}-title">\n'
        f'    <h2 id="{key}-title">{html.escape(title)}</h2>{body}\n  </section>'
    )
