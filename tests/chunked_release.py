"""A release of the sample whose documents are divided into sentences, as `taugate import` divides long documents."""

import json
import re
import shutil
from pathlib import Path

from taugate.cli import main as cli


def write_chunked(sample: Path, folder: Path) -> Path:
    """Write the sample with a chunk for each sentence; qrels name the first chunk of a relevant document."""
    data = shutil.copytree(sample, folder)
    first: dict[str, str] = {}
    lines = []
    for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        spans = [match.span() for match in re.finditer(r"[^.!?]+[.!?]*\s*", record["text"]) if match[0].strip()]
        first[record["_id"]] = record["_id"] if len(spans) < 2 else f"{record['_id']}#1"
        if len(spans) < 2:
            lines.append(record)
            continue
        for number, (start, end) in enumerate(spans, 1):
            chunk = {"_id": f"{record['_id']}#{number}", "text": record["text"][start:end]}
            lines.append(record | chunk | {"parent": record["_id"], "span": [start, end]})
    (data / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for qrels in (data / "qrels").glob("*.tsv"):
        header, *rows = qrels.read_text(encoding="utf-8").splitlines()
        cells = [row.split("\t") for row in rows]
        named = ["\t".join([query, first[document], score]) for query, document, score in cells]
        qrels.write_text("\n".join([header, *named]) + "\n", encoding="utf-8")
    return data


def write_chunked_release(sample: Path, encoder: Path, folder: Path, *options: str) -> Path:
    """Calibrate the chunked sample in an empty folder; returns the releases directory with its only release."""
    data = write_chunked(sample, folder / "data")
    command = ["calibrate", str(data), "--releases", str(folder / "releases"), "--encoder", str(encoder)]
    command += options
    if cli.main(command):
        raise RuntimeError("the chunked sample could not be calibrated")
    return folder / "releases"
