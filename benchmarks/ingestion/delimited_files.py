"""Write texts of public corpora as delimited files, as programs write them, and count the texts that come back whole."""

import csv
import io
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, table, targets
from taugate.ingestion.importers.delimited import parse_delimited
from taugate.ingestion.importers.word_share import MIN_SHARE_KEPT, count_words

HEADING = "Delimited text"
CORPORA = (
    "cosqa",
    "covidqa_chunks",
    "pubmedqa_labelled",
    "scifact",
    "squad_v2_dev",
    "squadshifts_new_wiki",
    "squadshifts_reddit",
)
Rows = Sequence[Sequence[str]]


def _csv(**options: object) -> Callable[[Rows], str]:
    def write(rows: Rows) -> str:
        file = io.StringIO(newline="")
        csv.writer(file, **options).writerows(rows)  # type: ignore[arg-type]  # options of its own choice
        return file.getvalue()

    return write


def _escaped(escapes: dict[str, str]) -> Callable[[Rows], str]:
    table_of_escapes = str.maketrans(escapes)
    return lambda rows: "".join("\t".join(cell.translate(table_of_escapes) for cell in row) + "\n" for row in rows)


def _on_one_line(rows: Rows) -> str:
    return "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)


# The first six are those of pandas, Excel, LibreOffice and the csv module.
DIALECTS: dict[str, Callable[[Rows], str]] = {
    "comma, quotes if needed": _csv(),
    "comma, all fields quoted": _csv(quoting=csv.QUOTE_ALL),
    "semicolon, quotes if needed": _csv(delimiter=";"),
    "semicolon, all fields quoted": _csv(delimiter=";", quoting=csv.QUOTE_ALL),
    "tab, quotes if needed": _csv(delimiter="\t"),
    "pipe, quotes if needed": _csv(delimiter="|", lineterminator="\n"),
    "comma, quotes escaped by backslash": _csv(doublequote=False, escapechar="\\"),
    "comma, no quotes, escapes": _csv(quoting=csv.QUOTE_NONE, escapechar="\\"),
    "tab, no quotes, escapes": _csv(delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\"),
    "comma, single quotes": _csv(quotechar="'"),
    "comma, all in single quotes": _csv(quotechar="'", quoting=csv.QUOTE_ALL),
    "PostgreSQL's COPY": _escaped({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}),
    "MySQL's OUTFILE": _escaped({"\\": "\\\\", "\n": "\\\n", "\t": "\\\t"}),
    "tab, quotes are content": _on_one_line,
}
_USUAL = 6


def section(plan: ImportPlan) -> str:
    """Write and read the files, and return the tables."""
    data = Path(os.environ["TAUGATE_DATA"])
    corpora = {name: _texts(data / name) for name in CORPORA}
    rng = random.Random(plan.seed)  # noqa: S311 (no secret is made of it)
    whole: dict[str, int] = {}
    kept: dict[str, int] = {}
    least: dict[str, float] = {}
    for dialect, write in DIALECTS.items():
        whole[dialect], kept[dialect], least[dialect] = 0, 0, 1.0
        for texts in corpora.values():
            for _ in range(plan.delimited_files):
                rows, column = _table(rng, texts)
                right, recall = _read(write(rows), [row[column] for row in rows[1:]])
                whole[dialect] += right
                kept[dialect] += recall >= MIN_SHARE_KEPT
                least[dialect] = min(least[dialect], recall)
    files = plan.delimited_files * len(CORPORA)
    usual = [*DIALECTS][:_USUAL]
    reached = [
        Target(
            "files in the first six dialects with a word recall of .98 or more",
            sum(kept[dialect] for dialect in usual),
            _USUAL * files,
        ),
        Target("word recall of the worst file of any dialect", min(least.values()), MIN_SHARE_KEPT),
    ]
    shown = [[dialect, files, whole[dialect], f"{least[dialect]:.3f}"] for dialect in DIALECTS]
    return (
        f"{len(DIALECTS)} dialects, seven public corpora, {plan.delimited_files} files of each, of 1 to 60 rows. "
        "What no reader can tell is whether two backslashes are one that is escaped, or two.\n\n"
        f"{targets(reached)}\n\n{table(['dialect', 'files', 'all texts whole', 'word recall of the worst'], shown)}\n"
    )


def _texts(folder: Path) -> list[str]:
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").split("\n")
    return [text for line in lines if line and (text := json.loads(line)["text"]).strip()]


def _table(rng: random.Random, texts: Sequence[str]) -> tuple[list[list[str]], int]:
    """Return rows with a header, and the position of the column of texts."""
    sample = rng.sample(texts, rng.choice([1, 2, 3, 4, 5, 8, 20, 60]))
    shape = rng.randrange(3)
    if shape == 0:
        return [["id", "text"], *([str(number), text] for number, text in enumerate(sample))], 1
    if shape == 1:
        labelled = ([text, f"{rng.random():.3f}", rng.choice("ab")] for text in sample)
        return [["text", "score", "label"], *labelled], 0
    numbered = ([f"d{number}", f"The {number}", text, str(number)] for number, text in enumerate(sample))
    return [["doc", "title", "text", "n"], *numbered], 2


def _read(written: str, texts: Sequence[str]) -> tuple[bool, float]:
    """Tell whether all texts come back whole, and the share of their words that does."""
    read = [document.text for document in parse_delimited(written.encode()).documents]
    expected = count_words(texts)
    recall = (expected & count_words(read)).total() / max(expected.total(), 1)
    return [" ".join(text.split()) for text in read] == [" ".join(text.split()) for text in texts], recall
