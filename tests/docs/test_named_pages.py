"""Every page that a message, an alert, the chart, a comment or a command of make names exists, with its heading."""

import re
import subprocess
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from deploy.site.build import moved

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?<![\w/.-])((?:docs|benchmarks)/[\w/-]+(?:\.md|/(?=\s)))(?:#([\w-]+))?")
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([\w-]+))?\)")
_SITE = (ROOT / "mkdocs.yml", ROOT / "deploy" / "site")  # have paths on the site
_PLACEHOLDER = "docs/runbooks/TaugateX.md"
_EARLIER = {"CHANGELOG.md"}  # names pages of earlier versions, too; its links are tested


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() or [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.md")]
    return [ROOT / name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


@cache
def anchors(page: Path) -> set[str]:
    """Return the ids of a page's headings, as the site has them."""
    used: dict[str, int] = {}
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    for before, token in pairwise(tokens):
        if before.type == "heading_open" and token.children is not None:
            text = "".join(child.content for child in token.children if child.type in ("text", "code_inline"))
            slug = re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKD", text)).strip().lower())
            slug = slug.encode("ascii", "ignore").decode()
            used[f"{slug}_{used[slug]}" if slug in used else slug] = used.get(slug, 0) + 1
    return {*used}


def missing(page: Path, anchor: str | None) -> bool:
    return not page.exists() or bool(anchor and page.suffix == ".md" and anchor not in anchors(page))


def test_pages_named_in_code_exist() -> None:
    lost, seen = [], 0
    for path in tracked("*.py", "*.c", "*.h", "*.y*ml", "*.tpl", "*.txt", "*.json", "*.toml", "*.conf", "Makefile"):
        if "tests" in path.relative_to(ROOT).parts or path in _SITE or path.is_relative_to(_SITE[1]):
            continue
        for name, anchor in NAMED.findall(path.read_text(encoding="utf-8")):
            seen += 1
            if name != _PLACEHOLDER and missing(ROOT / name, anchor):
                lost.append(f"{path.relative_to(ROOT)}: {name}#{anchor}")
    assert seen > 100
    assert lost == []


def test_links_of_pages_lead_to_headings() -> None:
    lost = []
    for page in tracked("*.md"):
        text = page.read_text(encoding="utf-8")
        links = LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        named = [] if page.name in _EARLIER else NAMED.findall(text)
        for path, anchor in links:
            if anchor not in ("only-light", "only-dark") and missing(page.parent / path if path else page, anchor):
                lost.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
        lost += [f"{page.relative_to(ROOT)}: {name}#{anchor}" for name, anchor in named if missing(ROOT / name, anchor)]
    assert lost == []


def test_pages_that_moved_are_not_pages() -> None:
    assert [old for old in moved() if (ROOT / "docs" / old).exists()] == []
