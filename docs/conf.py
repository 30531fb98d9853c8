"""How Sphinx makes the site from the Markdown files: `make docs`.

The source folder is the root of the repository, so links between all Markdown files work as on
GitHub. A link to another file, such as a topic file, becomes a download.
"""

import re

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]
from pygments.lexers.templates import SqlJinjaLexer  # type: ignore[import-untyped]
from sphinx.application import Sphinx

project = "Orders lakehouse"
author = "The authors of Orders lakehouse"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "examples/**README.md", "pulsar_spark/*.md"]
exclude_patterns = [".*", "dist", "**/node_modules", "examples/*/dbt"]

html_theme = "furo"
html_title = project
html_extra_path = ["index.html"]  # leads from the root of the site to its first page
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None

myst_heading_anchors = 4  # as GitHub makes them, and checked
nitpicky = True

LISTS = (root_doc, "examples/README")
PART = re.compile(r"^## (?P<title>[^\n]+)$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PAGE = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<file>[^)#]+)\.md\)", re.MULTILINE)


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make the navigation from the lists of pages, so that readers on GitHub have it, too."""
    del app
    if docname not in LISTS:
        return
    for part in PART.finditer(source[0]):
        pages = [f"{page['title']} <{page['file']}>" for page in PAGE.finditer(part["text"])]
        tree = [":hidden:", f":caption: {part['title']}", "", *pages]
        source[0] += "\n".join(["", "", "```{toctree}", *tree, "```", ""])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.add_lexer("sql", SqlJinjaLexer)  # models of dbt have Jinja in their SQL
    app.add_lexer("csv", TextLexer)
