"""The first questions and documents of the sample, for tests that need real texts and not many."""

from pathlib import Path


def write_part(sample: Path, folder: Path, count: int) -> Path:
    """Write the first documents of the sample, and the question that each answers, into a new folder."""
    (folder / "qrels").mkdir(parents=True)
    for name, first in (("corpus.jsonl", 0), ("queries.jsonl", 0), ("qrels/test.tsv", 1)):  # one is a table's header
        lines = (sample / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[: count + first]), encoding="utf-8")
    return folder
