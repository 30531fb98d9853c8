"""Tests the site that Sphinx makes from the Markdown files."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.programs
IN_CSS = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")
WRONG = """
# Documentation

## Pages

- [Other](other.md)
"""
OTHER = """
# Other

[a page](gone.md), [a heading](../README.md#gone), [a file](../gone.toml),
[right](../README.md#here)
"""


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
            *("-d", target / "doctrees", "-c", ROOT / "docs", source, target / "html"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, BeautifulSoup]:
    own = (page for page in site.rglob("*.html") if "_static" not in page.parts)
    return {
        str(page.relative_to(site)): BeautifulSoup(page.read_text(), "html.parser") for page in own
    }


def test_each_markdown_file_is_a_page_in_the_navigation(
    site: Path, pages: dict[str, BeautifulSoup]
) -> None:
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/**/*.md")]
    names = {str(file.relative_to(ROOT).with_suffix(".html")) for file in written}
    assert len(names) > 20
    assert names <= pages.keys()
    linked = pages["docs/README.html"].select(".sidebar-tree a")
    shown = {
        str((site / "docs" / str(link["href"])).resolve().relative_to(site.resolve()))
        for link in linked
        if link["href"] != "#"
    }
    assert names - {"docs/README.html"} <= shown
    captions = [each.text for each in pages["docs/README.html"].select(".sidebar-tree .caption")]
    assert captions == ["Tutorial", "How-to guides", "Reference", "Explanation"]


def test_the_pages_ask_no_other_host(site: Path, pages: dict[str, BeautifulSoup]) -> None:
    """Readers can open them on a machine without network, and nobody learns what they read."""
    asked = set[str]()
    for page in pages.values():
        tags = [tag for tag in page.find_all(True) if isinstance(tag, Tag) and tag.name != "a"]
        asked |= {str(tag[name]) for tag in tags for name in ("src", "href") if name in tag.attrs}
    for sheet in site.rglob("*.css"):
        asked |= {a or b for a, b in IN_CSS.findall(sheet.read_text())}
    assert len(asked) > 10
    local = {"", "data"}
    assert {address for address in asked if urlsplit(address).scheme not in local} == set()
    assert {address for address in asked if urlsplit(address).netloc} == set()


def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "README.md").write_text("# Here\n")
    (source / "docs" / "README.md").write_text(WRONG + "- [Start](../README.md)\n")
    (source / "docs" / "other.md").write_text(OTHER)
    done = build(source, tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "WARNING" in line]
    missing = ("'gone.md'", "'gone'", "gone.toml'")
    assert [name for name in missing if any(name in line for line in lines)] == [*missing]
    assert "#here" not in done.stderr
