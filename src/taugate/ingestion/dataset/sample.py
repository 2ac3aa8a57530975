"""The sample data set: zaragoza-construction-faq in the BEIR layout, for a first try."""

from importlib.util import find_spec
from pathlib import Path

import orjson

from taugate.errors import InputError
from taugate.ingestion.dataset.corpus import CORPUS
from taugate.ingestion.dataset.judgements import HEADER, qrels_of
from taugate.ingestion.dataset.queries import QUERIES
from taugate.storage.folders import make_folder


def check_sample_installed() -> None:
    """Check that the extra with the sample data set is installed.

    Raises:
        InputError: If it is not installed.
    """
    if find_spec("zaragoza_construction_faq") is None:
        raise InputError("the sample data set is not installed; pip install 'taugate[calibration,sample]'")


def write_sample(folder: Path) -> None:
    """Write zaragoza-construction-faq (503 questions and answers, English, CC BY 4.0) into a folder.

    Args:
        folder: Folder of the data set, created if needed.

    Raises:
        InputError: If the extra is not installed, or the folder cannot be made.
    """
    check_sample_installed()
    import zaragoza_construction_faq

    entries = zaragoza_construction_faq.load(lang="en")
    make_folder(folder / "qrels")
    documents = (
        {"_id": entry["id"], "text": entry["a"], "metadata": {"category": entry["category"]}} for entry in entries
    )
    queries = ({"_id": f"q-{entry['id']}", "text": entry["q"]} for entry in entries)
    (folder / CORPUS).write_bytes(b"".join(orjson.dumps(document) + b"\n" for document in documents))
    (folder / QUERIES).write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    rows = [f"q-{entry['id']}\t{entry['id']}\t1\n" for entry in entries]
    (folder / qrels_of("test")).write_text(f"{HEADER}\n" + "".join(rows), encoding="utf-8")
