"""Pairs of questions that a small language model wrote, beside crops of the same documents, judged by human queries."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.adapt.embedded import embed
from benchmarks.adapt.trials import STEPS, AdaptPlan
from benchmarks.llm_queries.runs import queries as generate
from benchmarks.markdown import table
from taugate.adaptation.job import learn_and_judge
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.parts import TRAIN, VALIDATION
from taugate.adaptation.recipes import search_trial
from taugate.adaptation.settings import AdaptationSettings
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.gate.baseline import DEPTH
from taugate.calibration.metrics.clusters import cluster_bootstrap, clusters
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import CORPUS, QUERIES, Dataset, LabelledQuery, read_dataset
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.retrieval.encoder.encoder import OnnxEncoder

HEADING = "Crops or questions"
_SET = "squadshifts_reddit"
_FEWEST = 30  # questions to learn from, as `taugate adapt` has it


@dataclass(frozen=True)
class Adapted:
    """An adaptation by one kind of pairs.

    Attributes:
        whitening: Points, mean.
        gain: Of NDCG@10 of each unseen query, (q,).
    """

    queries: AdaptationQueries
    admitted: bool
    whitening: float
    gain: NDArray[np.float64]


def section(plan: AdaptPlan) -> str:
    """Ask a language model about documents to learn from, and adapt by its questions, and by crops."""
    with tempfile.TemporaryDirectory(prefix="taugate-adapt-") as work:
        spools = [Path(work, name) for name in ("spool", "questions")]
        for spool in spools:
            spool.mkdir()
        dataset = read_dataset(plan.data / _SET, "test", spools[0])
        crops = AdaptationQueries.collect(dataset, None, plan.seed)
        written, seconds = _questions(dataset, crops, plan, Path(work))
        cropped = {position for query in crops.train + crops.validation for position in query.relevant}
        asked = replace(
            crops,
            train=[query for query in crops.parts.queries(TRAIN, written) if cropped.issuperset(query.relevant)],
            validation=[
                query for query in crops.parts.queries(VALIDATION, written) if cropped.issuperset(query.relevant)
            ],
        )
        if len(asked.train) < _FEWEST:
            return (
                f"Not measured: of {plan.questions} documents {len(asked.train)} gave a question to learn from; give a "
                "larger --questions."
            )
        about = {position for query in asked.train + asked.validation for position in query.relevant}
        same = replace(
            crops,
            train=[query for query in crops.train if about.issuperset(query.relevant)],
            validation=[query for query in crops.validation if about.issuperset(query.relevant)],
        )
        kinds = {"questions": asked, "crops of the same documents": same, "all crops": crops}
        found = {name: _adapt(dataset, each, plan) for name, each in kinds.items()}
    units = clusters(crops.unseen)
    rows = []
    for name, each in found.items():
        behind = cluster_bootstrap(100 * (each.gain - found["questions"].gain), units, np.random.default_rng(0), 2000)
        beside = "" if name == "questions" else f"{behind.mean:+.1f} ({behind.lower:+.1f} to {behind.upper:+.1f})"
        counts = [f"{len(each.queries.train):,}", f"{len(each.queries.validation):,}"]
        gains = [f"{each.whitening:+.1f}", f"{100 * each.gain.mean():+.1f}", beside]
        rows.append([name, *counts, *gains, "yes" if each.admitted else "no"])
    header = [
        "pairs",
        "to learn from",
        "to choose by",
        "whitening",
        "the recipe that was chosen",
        "beside questions",
        "admitted",
    ]
    return f"""\
{_SET}: SmolLM2-135M-Instruct was asked about {plan.questions:,} documents of the parts to learn from and to choose by, which took {seconds:.1f} s a question;
{len(written):,} questions were kept. The examples of its prompt are the built-in ones. Gains are points of NDCG@10 on {len(crops.unseen):,} unseen queries of
people, with a 95 % interval by document of the difference from questions. Crops cost nothing, so that a minute allows all of them.

{table(header, rows)}"""


def _questions(
    dataset: Dataset, crops: AdaptationQueries, plan: AdaptPlan, work: Path
) -> tuple[list[LabelledQuery], float]:
    """Write questions about a sample of the documents that are not unseen; returns them, and seconds a question."""
    known = np.sort(np.concatenate([crops.parts.passages(TRAIN), crops.parts.passages(VALIDATION)]))
    folder = work / _SET
    folder.mkdir()
    documents = [dataset.documents[position] for position in known.tolist()]
    lines = (orjson.dumps({"_id": each.id, "text": each.text}) + b"\n" for each in documents)
    (folder / CORPUS).write_bytes(b"".join(lines))
    (folder / QUERIES).touch()
    result = generate(folder, "--method", "local", "--max", str(plan.questions), "--seed", str(plan.seed))
    written = read_dataset(folder, GENERATED, work / "questions").answerable
    moved = [
        replace(each, relevant={int(known[row]): grade for row, grade in each.relevant.items()}) for each in written
    ]
    return moved, result["seconds_per_query"]


def _adapt(dataset: Dataset, queries: AdaptationQueries, plan: AdaptPlan) -> Adapted:
    encoder, settings = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER)), AdaptationSettings(seed=plan.seed)
    adapted = learn_and_judge(dataset, queries, encoder, settings, lambda _: None, Stopwatch(), STEPS)
    record = adapted.record
    texts = [each.encoded_text for each in dataset.documents]
    documents, vectors = (
        embed(DEFAULT_ENCODER, texts, "document"),
        embed(DEFAULT_ENCODER, [query.text for query in queries.unseen], "query"),
    )
    before, after = (
        search_trial(queries.unseen, vectors, documents, learned, DEPTH, None).outcomes().ndcg
        for learned in (None, adapted.learned)
    )
    whitening = next(each.ndcg for each in record.gate if each.candidate == "whitening")
    return Adapted(queries, record.admitted, 100 * (whitening.candidate - whitening.baseline), after - before)
