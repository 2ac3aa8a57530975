"""The guide for language models: llms.txt lists its pages with a line on each, llms-full.txt has their text.

Both follow the navigation of mkdocs.yml (https://llmstxt.org). The full text leaves out the changelog, and pages
that benchmarks write: they are tables of figures.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_LISTED_ONLY = ("benchmarks/", "reference/changelog.md")


def write_llms(site: Path, pages: Path, configuration: Mapping[str, Any]) -> None:
    """Write llms.txt and llms-full.txt.

    Args:
        site: Folder of the built site.
        pages: Folder with the pages that it was built from.
        configuration: mkdocs.yml.
    """
    lines, texts = [f"# {configuration['site_name']}", "", f"> {configuration['site_description']}"], []
    for entry in configuration["nav"]:
        for section, items in entry.items():
            lines += ["", f"## {section}", ""]
            for page in listed(items):
                text = (pages / page).read_text(encoding="utf-8")
                lines.append(f"- [{_title(text, page)}]({page}){_summary(text)}")
                if not page.startswith(_LISTED_ONLY):
                    texts.append(f"<!-- {page} -->\n\n{text.strip()}\n")
                    (site / page).parent.mkdir(parents=True, exist_ok=True)
                    (site / page).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(texts), encoding="utf-8")


def listed(navigation: object) -> Iterator[str]:
    """Yield the pages of a navigation: nested lists, and mappings of titles to pages."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for entry in navigation.values():
            yield from listed(entry)
    elif isinstance(navigation, list):
        for entry in navigation:
            yield from listed(entry)


def _title(text: str, page: str) -> str:
    found = _TITLE.search(text)
    return found[1] if found else page


def _summary(text: str) -> str:
    """Return the first sentence below the title, behind a colon; empty if the page begins with something else."""
    _, _, body = text.partition("\n\n")
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", body.split("\n\n")[0]).replace("\n", " ")
    sentence = re.match(r"[A-Z*`][^|!]*?[.?](?= |$)", paragraph)
    return f": {sentence[0]}" if sentence else ""
