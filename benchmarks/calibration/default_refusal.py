"""Measure how many questions the default refusal refuses and how many answers it loses, on unseen queries."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from benchmarks.calibrated import IndexedSet
from benchmarks.encoding import encoded_queries, loaded_encoder
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.calibration.encoding.corpus import encode_near_misses, with_words
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.progress import Job
from taugate.calibration.settings import CalibrationSettings
from taugate.data.location import write_sample
from taugate.policy.arrays import QueryVectors, dense_of
from taugate.release.refusal_records import QuestionKind, RefusalRecord, RefusedQuestions
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import RULE, hybrid_vectors

HEADING = "The default refusal: refused and lost"
SETS = ("squad_v2_dev", "scifact", "cosqa", "covidqa_chunks", "pubmedqa_labelled")
_SHIFTS = ("squadshifts_new_wiki", "squadshifts_reddit")
# Weight of the lexical part that `taugate calibrate` chooses for these sets; 0 for the others.
WEIGHTS = {"squad_v2_dev": 1.0, "scifact": 0.5, "covidqa_chunks": 1.0, "squadshifts_new_wiki": 1.0}
# Questions of other people about other subjects; a share of so many is known to ± .03.
_OTHERS, _MAX_OTHERS = "ood_queries", 1200
_LISTS = {"CLINC150": "clinc150_oos", "Banking77": "banking77_test"}


def section(experiment: Experiment) -> str:
    """Calibrate every set by default, and count what ρ refuses."""
    others = _others(experiment.data)
    rows, above = [], []
    for name in ("sample", *experiment.wanted(SETS + _SHIFTS)):
        with _folder(experiment.data, name) as folder, tempfile.TemporaryDirectory() as spool:
            for weight in dict.fromkeys((0.0, WEIGHTS.get(name, 0.0))):
                indexed = with_questions(folder, weight, experiment.seed, Path(spool, f"{weight:g}"))
                study, _ = indexed.studied(CalibrationSettings(seed=experiment.seed, refuse="auto"))
                if study.refusal is None:
                    raise AssertionError(f"{name}: the documents answer every off-topic question")
                record, refused = study.refusal.record, []
                for asked in others:
                    best = indexed.index.search(asked if weight else dense_of(asked), 1).scores[:, 0]
                    refused.append(float((best < np.float32(study.refusal.rule.tau)).mean()))
                rows.append(_row(f"{name}, w = {weight:g}" if weight else name, record, refused))
                stated = [
                    counted.lower for kind, counted in record.evidence.items() if kind in {"off_topic", "request"}
                ]
                above += [lower > share for lower in stated for share in refused]
    header = ["set", "ρ", "off-topic", "short requests", *_LISTS, "near misses", "human unanswerable"]
    header.append("right answers lost")
    return f"""\
`taugate calibrate` sets ρ. How many questions that no document answers does it refuse, and how many right answers does it lose? Off-topic
questions and short requests are those of the half that chose nothing. Human unanswerable questions and right answers that choose are counted
by the ρ that the other folds choose. CLINC150 and Banking77 are up to {_MAX_OTHERS:,} questions each of other people (`{_OTHERS}`). Limits are
one-sided, 95 %. Rows with w have the lexical part in the score that `--lexical auto` chooses.

{table(header, rows)}

The stated limit of the questions that come with Taugate is above the share of another list in {sum(above)} of {len(above)} cases. It allows for
questions of a further field, and is the prediction limit of an analysis of variance with random fields over all 300 questions of the half, or
the exact limit of the kind if that is lower ([why](../decisions.md#refusing-questions)). Near misses
are harder still: their scores lie among those of right answers. Questions of people that have no answer, on
squad_v2_dev, are refused as rarely as near misses are. To refuse more of them, label some and give `--max-answered`.
"""


def with_questions(folder: Path, weight: float, seed: int, spool: Path) -> IndexedSet:
    """Read, encode and index a data set with near misses.

    Args:
        folder: Folder of the data set.
        weight: Weight of the lexical part of the score, 0 for the cosine alone.
        seed: Seed of the near misses.
        spool: Folder for the documents, which is made.
    """
    spool.mkdir(exist_ok=True)
    indexed = IndexedSet.read(folder, "test", DEFAULT_ENCODER, spool)
    dataset, index, encoded = indexed.dataset, indexed.index, indexed.encoded
    near = encode_near_misses(dataset, loaded_encoder(), None, seed, Job(), rule=RULE if weight else None)
    if weight:
        words = LexicalIndex.of(document.encoded_text for document in dataset.documents)
        encoded, index = with_words(encoded, dataset), HybridIndex(index, words, weight)
    return IndexedSet(dataset, replace(encoded, near_misses=near), index)


def _row(name: str, record: RefusalRecord, others: list[float]) -> list[str]:
    if record.lost is None or record.rho is None:
        raise AssertionError(f"{name}: no default ρ")
    lost = f"{share(record.lost.mean)} (at most {share(record.lost.upper)})"
    kinds = [_counted(record.evidence.get(kind)) for kind in get_args(QuestionKind)]
    return [name, share(record.rho), *kinds[:2], *map(share, others), *kinds[2:], lost]


def _counted(kind: RefusedQuestions | None) -> str:
    if kind is None:
        return "–"
    return f"{share(kind.refused / kind.queries)} of {kind.queries:,} (at least {share(kind.lower)})"


def _others(data: Path) -> list[QueryVectors]:
    lines = [json.loads(line) for line in (data / _OTHERS / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    lists = [
        [line["text"] for line in lines if line["metadata"]["set"] == name][:_MAX_OTHERS] for name in _LISTS.values()
    ]
    return [hybrid_vectors(encoded_queries(texts), texts) for texts in lists]


@contextmanager
def _folder(data: Path, name: str) -> Iterator[Path]:
    """Give the folder of a data set; the sample is written to a temporary one."""
    if name != "sample":
        yield data / name
        return
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder) / name)
        yield Path(folder) / name
