"""A small labelled data set that comes as a package: what `taugate quickstart` calibrates on."""

from pathlib import Path

import orjson

from taugate.errors import InputError


def write_sample(folder: Path) -> None:
    """Write zaragoza-construction-faq (503 questions and answers, English, CC BY 4.0) in the BEIR layout."""
    try:
        import zaragoza_construction_faq
    except ImportError as error:
        raise InputError("the sample data set is not installed; pip install 'taugate[sample]'") from error
    entries = zaragoza_construction_faq.load(lang="en")
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (
        {"_id": entry["id"], "text": entry["a"], "metadata": {"category": entry["category"]}} for entry in entries
    )
    queries = ({"_id": f"q-{entry['id']}", "text": entry["q"]} for entry in entries)
    (folder / "corpus.jsonl").write_bytes(b"".join(orjson.dumps(document) + b"\n" for document in documents))
    (folder / "queries.jsonl").write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    rows = [f"q-{entry['id']}\t{entry['id']}\t1\n" for entry in entries]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
