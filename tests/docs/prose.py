"""Grammar, spelling and readability of Markdown pages.

`make lint` runs it as `python -m tests.docs.prose`, which finds long sentences in two seconds.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import textstat
from markdown_it import MarkdownIt

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
DICTIONARY = HERE / "dictionary.txt"
# Pages that a new reader opens first.
FIRST = [ROOT / "README.md", DOCS / "index.md", *sorted((DOCS / "tutorial").glob("*.md"))]
FIRST += sorted((DOCS / "how-to").glob("*.md"))
# Sentences of more than 40 words are an error on these pages.
SHORT_SENTENCES = [*FIRST, DOCS / "architecture.md", DOCS / "glossary.md", DOCS / "runbooks" / "index.md"]


@dataclass(frozen=True)
class Finding:
    """A remark of the grammar checker: place, rule, words and message."""

    page: str
    line: int
    rule: str
    words: str
    message: str


def findings(pages: Sequence[Path], ignored: Sequence[str] = (), only: Sequence[str] = ()) -> list[Finding]:
    """Check pages with Harper, by its rules in `only` if there are any, without those in `ignored`."""
    command = [sys.executable, "-m", "harper", "lint", "--format", "json", "--quiet", "--no-color", "--dialect", "gb"]
    command += ["--user-dict-path", str(DICTIONARY)]
    command += [argument for rule in ignored for argument in ("--ignore", rule)]
    command += [argument for rule in only for argument in ("--only", rule)]
    done = subprocess.run([*command, *map(str, pages)], capture_output=True, text=True, check=False)
    files = json.loads(done.stdout) if done.stdout.strip() else []
    return [
        Finding(file["file"], lint["line"], lint["rule"], lint["matched_text"], lint["message"])
        for file in files
        for lint in file["lints"]
    ]


def long_sentences(pages: Sequence[Path]) -> list[str]:
    """Return a line for each sentence of more than 40 words."""
    return [f"{finding.page}:{finding.line}: {finding.message}" for finding in findings(pages, only=["LongSentences"])]


def sentences(page: str) -> str:
    """Return the paragraphs and list items of a page, without code, headings and tables.

    Code inside a sentence counts as one short word, because readers copy it and do not read it aloud.
    """
    texts, heading = [], False
    for token in MarkdownIt().enable("table").parse(page):
        if token.type in ("heading_open", "table_open"):
            heading = True
        elif token.type in ("heading_close", "table_close"):
            heading = False
        elif token.type == "inline" and not heading:
            words = [
                "name" if child.type == "code_inline" else " " if child.type == "softbreak" else child.content
                for child in token.children or ()
                if child.type in ("text", "code_inline", "softbreak")
            ]
            texts.append("".join(words).strip().removesuffix(":").removesuffix(".") + ".")
    return "\n".join(texts)


def reading_ease(page: str) -> float:
    """Return Flesch's reading ease of a page: 60 to 70 is plain English, below 50 is hard."""
    return float(textstat.flesch_reading_ease(sentences(page)))


if __name__ == "__main__":
    sys.exit("\n".join(long_sentences(SHORT_SENTENCES)) or None)
