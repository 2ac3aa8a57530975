"""Damage files of records, and look for words that are lost without a note."""

import csv
import io
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, table, targets
from taugate.data.parsed import UnreadableFile
from taugate_import.parse import read_file
from taugate_import.word_share import MIN_SHARE_KEPT, count_words

HEADING = "Damaged files of records"
_CORPORA = ("scifact", "squad_v2_dev", "squadshifts_reddit")
_HEADER = re.compile(rb"id[,\t]text[,\t]price\n")  # its names are no text, though a text may hold the same words
Texts = Sequence[str]


def section(plan: ImportPlan) -> str:
    """Damage files and read them, and return the table."""
    data = Path(os.environ["TAUGATE_DATA"])
    corpora = [_texts(data / name) for name in _CORPORA]
    rng = random.Random(plan.seed)  # noqa: S311 (no secret is made of it)
    shown = []
    silent = 0
    for kind, write in WRITERS.items():
        outcomes = {"whole": 0, "named with a note": 0, "skipped with a reason": 0, "words lost in silence": 0}
        for _ in range(plan.mutated_files):
            texts = rng.sample(rng.choice(corpora), rng.randint(2, 30))
            damaged = rng.choice(DAMAGES)(rng, write(texts))
            outcomes[outcome(plan.work / f"x.{kind}", damaged, texts, _without_header)] += 1
        silent += outcomes["words lost in silence"]
        shown.append([kind, plan.mutated_files, *outcomes.values()])
    rows = [Target("files that lose words in silence", silent, at_most=0)]
    header = ["kind", "files", "whole", "named with a note", "skipped with a reason", "words lost in silence"]
    return (
        "Files are cut, bytes are flipped, lines are swapped, repeated or lost, quotes and delimiters are dropped. A file "
        "is *whole* if its documents have 98 % of the words that are in the original texts and still in the file.\n\n"
        f"{targets(rows)}\n\n{table(header, shown)}\n"
    )


def outcome(path: Path, raw: bytes, texts: Sequence[str], written: Callable[[bytes], str]) -> str:
    """Read a damaged file and say what became of its words.

    Args:
        path: Where the file is written; it is removed.
        raw: Damaged bytes.
        texts: Texts that were written to the file.
        written: Decodes what is left of them in a file that can be read.
    """
    path.write_bytes(raw)
    try:
        file = read_file(path)
    except UnreadableFile:
        return "skipped with a reason"
    finally:
        path.unlink()
    there = count_words(texts) & count_words([written(raw)])
    facts = [str(value) for document in file.documents for value in document.metadata.values()]
    kept = count_words([part for each in file.documents for part in (each.key, each.title, each.text)] + facts)
    if (there & kept).total() >= MIN_SHARE_KEPT * there.total():
        return "whole"
    return "named with a note" if file.notes or file.share < MIN_SHARE_KEPT else "words lost in silence"


def _without_header(raw: bytes) -> str:
    return _HEADER.sub(b"", raw).decode("utf-8", "replace")


def _texts(folder: Path) -> list[str]:
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").split("\n")
    return [text for line in lines if line and (text := json.loads(line)["text"]).strip()]


def _csv(texts: Texts, delimiter: str) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["id", "text", "price"])
    writer.writerows([number, text, number / 4] for number, text in enumerate(texts))
    return file.getvalue().encode()


def _records(texts: Texts) -> list[dict[str, object]]:
    return [
        {"id": number, "text": text, "answers": [{"text": text[:50]}], "price": number / 4}
        for number, text in enumerate(texts)
    ]


def _parquet(texts: Texts) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(_records(texts)), file, compression="none", use_dictionary=False)
    return file.getvalue()


WRITERS: dict[str, Callable[[Texts], bytes]] = {
    "csv": lambda texts: _csv(texts, ","),
    "tsv": lambda texts: _csv(texts, "\t"),
    "json": lambda texts: json.dumps(_records(texts), ensure_ascii=False, indent=1).encode(),
    "jsonl": lambda texts: "".join(
        json.dumps(record, ensure_ascii=False) + "\n" for record in _records(texts)
    ).encode(),
    "parquet": _parquet,
}


def _flip(rng: random.Random, raw: bytes) -> bytes:
    damaged = bytearray(raw)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(7)
    return bytes(damaged)


def _drop(character: bytes) -> Callable[[random.Random, bytes], bytes]:
    def damage(rng: random.Random, raw: bytes) -> bytes:
        places = [position for position, byte in enumerate(raw) if byte == character[0]]
        dropped = set(rng.sample(places, min(len(places), rng.randint(1, 4))))
        return bytes(byte for position, byte in enumerate(raw) if position not in dropped)

    return damage


def _lines(change: Callable[[random.Random, list[bytes]], None]) -> Callable[[random.Random, bytes], bytes]:
    def damage(rng: random.Random, raw: bytes) -> bytes:
        lines = raw.split(b"\n")
        change(rng, lines)
        return b"\n".join(lines)

    return damage


def _swap(rng: random.Random, lines: list[bytes]) -> None:
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _lose(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rng, raw: raw[: rng.randrange(1, len(raw))],
    lambda rng, raw: raw[rng.randrange(1, len(raw)) :],
    _flip,
    _drop(b'"'),
    _drop(b","),
    _drop(b"\n"),
    _lines(_swap),
    _lines(_lose),
    _lines(lambda rng, lines: lines.insert(rng.randrange(len(lines)), rng.choice(lines))),
)
