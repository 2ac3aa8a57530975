"""Corpora to update: a public data set as it is or repeated to a size, and newer versions of it."""

import json
import random
import secrets
import shutil
from itertools import cycle, islice
from pathlib import Path


def repeated(data: Path, folder: Path, documents: int) -> Path:
    """Write a data set with its documents repeated under new ids until there are so many; queries and qrels stay.

    A repeated document has the text of the original, so that no more texts have to be encoded; index, texts and every
    array of the release are as large as those of so many different documents.
    """
    shutil.copytree(data, folder)
    records = [json.loads(line) for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for row, record in enumerate(islice(cycle(records), documents)):
            name = record["_id"] if row < len(records) else f"{record['_id']} again {row}"
            corpus.write(json.dumps(record | {"_id": name}, ensure_ascii=False) + "\n")
    return folder


def newer(data: Path, folder: Path, share: float, seed: int) -> Path:
    """Write a newer version of a data set: a third each of the share is changed, removed and added.

    No document that answers a query is removed, so that `taugate calibrate` reads the result, too. The texts hold a
    random word, so that no cache knows them.
    """
    shutil.copytree(data, folder)
    rng, word = random.Random(seed), secrets.token_hex(4)  # noqa: S311 (no secret)
    records = [json.loads(line) for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    judged = {line.split("\t")[1] for path in (data / "qrels").glob("*.tsv") for line in path.open(encoding="utf-8")}
    third = max(1, round(share * len(records) / 3))
    free = [row for row, record in enumerate(records) if record["_id"] not in judged]
    removed = {*rng.sample(free, min(third, len(free)))}
    changed = rng.sample([row for row in range(len(records)) if row not in removed], third)
    for row in changed:
        records[row]["text"] += f" Edition {word}."
    kept = [record for row, record in enumerate(records) if row not in removed]
    for number in range(third):
        text = f"Addition {word} {number}. {records[rng.randrange(len(records))]['text']}"
        kept.insert(rng.randrange(len(kept) + 1), {"_id": f"new {number}", "text": text})
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
    return folder
