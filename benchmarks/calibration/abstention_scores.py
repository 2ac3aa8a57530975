"""Compare scores that tell unanswerable queries from answerable ones, on documents that had no say.

A section of docs/benchmarks/abstention.md (abstention_tables.py).
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, with_error
from taugate.calibration.abstention import choose
from taugate.calibration.abstention.choose import QueryLabels, learn_score
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.metrics.clusters import clusters
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.policy.abstention import MODEL_SIGNALS, SIGNALS, Signals
from taugate.retrieval.policy.background import Float64

HEADING = "Scores, on documents that had no say"
DESIGN = "squad_v2_dev"
LABELLED = (DESIGN, "mixed_large")
REMOVED = ("squadshifts_new_wiki", "squadshifts_reddit", "covidqa_chunks", "cosqa")
K = 5
SPLITS = 50  # a mean over them is known to a seventh of the deviation that the tables have
_NO_Z = "model without z"
_SINGLE = ("best_similarity", "margin", "z", "lexical")
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_BUDGETS = (200, 600, 1800)
_SHARES = (0.2, 0.3, 0.4, 0.5, 0.6)
_CHOSEN = "chosen"


@dataclass(frozen=True)
class Asked:
    """q labelled queries of both kinds: signals (q, len(SIGNALS)), whether each has an answer, and its cluster."""

    values: Float64
    has_answer: NDArray[np.bool_]
    labels: NDArray[np.int64]

    @classmethod
    def read(cls, data: Path, name: str, gone: Sequence[int] | None = None) -> Self:
        """EncodedSplit through the project's own cache; progress goes to stdout.

        Args:
            gone: A seed, to leave half of the documents with a query out of the corpus; queries on them have no answer
                then, and others that the set labels as unanswerable are left out.
        """
        encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
        cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
        with tempfile.TemporaryDirectory() as spool:
            dataset = read_dataset(data / name, "test", Path(spool))
            encoded = encode_dataset(dataset, encoder, cache, lambda line: print(f"{name}: {line}"), Stopwatch())
            labels = clusters(dataset.answerable + dataset.unanswerable)
            queries, vectors = dataset.answerable, encoded.answerable
            has_answer = np.ones(len(queries), dtype=np.bool_)
            corpus = np.arange(len(dataset.documents))
            if gone is None:
                queries, vectors = queries + dataset.unanswerable, np.concatenate([vectors, encoded.unanswerable])
                has_answer = np.arange(len(queries)) < len(dataset.answerable)
            else:
                labels = labels[: len(queries)]
                has_answer = np.random.default_rng(gone).permutation(labels.max() + 1)[labels] % 2 == 0
                removed = [query.relevant for query, kept in zip(queries, has_answer, strict=True) if not kept]
                corpus = np.setdiff1d(corpus, [position for relevant in removed for position in relevant])
            texts = [dataset.documents[position].encoded_text for position in corpus.tolist()]
        signals = Signals.of(K, encoded.documents[corpus], texts)
        top = FlatIndex.build(encoded.documents[corpus]).search(vectors, K)
        return cls(signals.values(SIGNALS, [query.text for query in queries], vectors, top), has_answer, labels)

    def take(self, rows: NDArray[np.bool_]) -> Self:
        """Some of the queries."""
        return type(self)(self.values[rows], self.has_answer[rows], self.labels[rows])

    def halves(self, seed: Sequence[int]) -> tuple[Self, Self]:
        """Two halves of the documents, each with all queries on its documents."""
        names, places = np.unique(self.labels, return_inverse=True)
        first = (np.random.default_rng(seed).permutation(len(names)) < len(names) / 2)[places]
        return self.take(first), self.take(~first)

    def some(self, queries: int, seed: Sequence[int]) -> Self:
        """About so many queries, of whole documents."""
        names, places = np.unique(self.labels, return_inverse=True)
        order = np.random.default_rng(seed).permutation(len(names))[places]
        return self.take((np.cumsum(np.bincount(order)) <= queries)[order])

    def columns(self, names: Sequence[str]) -> Float64:
        """Some of the signals."""
        return self.values[:, [SIGNALS.index(name) for name in names]]

    def errors(self, scores: Float64) -> tuple[float, float]:
        """AUROC of a score, and the share of unanswerable queries answered where γ of the answerable are refused."""
        known = np.sort(scores[self.has_answer])
        least = known[int(MAX_EMPTY * len(known))]
        return float(roc_auc_score(self.has_answer, scores)), float((scores[~self.has_answer] >= least).mean())


def section(experiment: Experiment) -> str:
    """Measure each score on unseen documents over random splits."""
    parts = []
    for name in experiment.wanted(LABELLED):
        asked = Asked.read(experiment.data, name)
        if name == DESIGN:
            design, report = asked.halves([experiment.seed])
            parts += [_designed(experiment, design), _compared(experiment, f"{name}, the other half", report)]
        else:
            parts.append(_compared(experiment, name, asked))
    for name in experiment.wanted(REMOVED):
        asked = Asked.read(experiment.data, name, [experiment.seed, 1])
        parts.append(_compared(experiment, f"{name}, half of its documents removed", asked))
    return "\n\n".join([_introduction(), *parts])


def _introduction() -> str:
    return f"""\
A score tells unanswerable queries from answerable ones. Each cell has β at γ = {share(MAX_EMPTY, 2)}; ± is the standard deviation over {SPLITS} random splits.
In each split half of the documents calibrate, four tenths of them to fit and to choose, and all queries on the other half are scored.

The signals, their model and its strength were chosen on half of the documents of {DESIGN}. Its unanswerable questions are
hard: each was written to look as if one paragraph answered it. The other half had no say. mixed_large, 14 sets in one corpus, had a say
in one thing: z is of no use on {DESIGN}, so it was left out, but came back when the model was no better without it on
mixed_large. The last four sets had no say. Half of their documents with a query are removed, so the queries of these have no answer."""


def _compared(experiment: Experiment, name: str, asked: Asked) -> str:
    """Every score on the documents that did not calibrate."""
    found: dict[str, list[tuple[float, float]]] = {}
    taken: Counter[str] = Counter()
    for split in range(SPLITS):
        calibration, unseen = asked.halves([experiment.seed, split])
        everyone = np.ones(len(calibration.labels), dtype=np.bool_)
        learnt = learn_score(
            calibration.values, QueryLabels(calibration.has_answer, calibration.labels, everyone), MAX_EMPTY, split
        )
        taken[learnt.name] += 1
        scores = {each: unseen.columns([each])[:, 0] for each in _SINGLE}
        scores["model"] = _model(calibration.take(learnt.learns), unseen, MODEL_SIGNALS)
        without = tuple(each for each in MODEL_SIGNALS if each != "z")
        scores[_NO_Z] = _model(calibration.take(learnt.learns), unseen, without)
        scores[_CHOSEN] = scores[learnt.name]
        for each, values in scores.items():
            found.setdefault(each, []).append(unseen.errors(values))
    best = np.array(found["best_similarity"])
    rows = []
    for each, errors in found.items():
        auroc, answered = np.array(errors).T
        less = answered - best[:, 1]
        chosen = "" if each in {_CHOSEN, _NO_Z} else f"{taken[each] / SPLITS:.0%}"
        figures = [with_error(float(value.mean()), float(value.std())) for value in (auroc, answered, less)]
        rows.append([each.replace("_", " "), *figures, chosen])
    kinds = f"{asked.has_answer.sum():,} answerable and {(~asked.has_answer).sum():,} unanswerable queries"
    header = ["score", "AUROC", "β", "β less that of best similarity", "chosen in"]
    return f"**{name}**: {kinds}.\n\n{table(header, rows)}"


def _designed(experiment: Experiment, design: Asked) -> str:
    """Format the tables by which the constants were chosen."""
    others = [
        ("as it is", MODEL_SIGNALS),
        *(
            (f"without {name.replace('_', ' ')}", tuple(s for s in MODEL_SIGNALS if s != name))
            for name in MODEL_SIGNALS
        ),
        *((f"and {name.replace('_', ' ')}", (*MODEL_SIGNALS, name)) for name in SIGNALS if name not in MODEL_SIGNALS),
    ]
    signals = [[name, *_budgets(experiment, design, names)] for name, names in others]
    kept, strengths = choose._STRENGTH, []
    for strength in _STRENGTHS:
        choose._STRENGTH = strength
        strengths.append([f"{strength:g}", *_budgets(experiment, design, MODEL_SIGNALS)])
    choose._STRENGTH = kept
    halves = [design.halves([experiment.seed, split])[1] for split in range(SPLITS)]
    best = share(float(np.mean([unseen.errors(unseen.columns(_SINGLE[:1])[:, 0])[1] for unseen in halves])))
    budgets = [f"{budget:,} queries to fit on" for budget in _BUDGETS]
    return f"""\
**{DESIGN}, the half that they were chosen on**: β of the model on the other documents of this half, by its signals and by the
inverse strength C of its penalty, and of the score chosen, by the share of queries that learns; best similarity alone has {best}.

{table(["signals of the model", *budgets], signals)}

{table(["C", *budgets], strengths)}

{table(["share that fits and chooses", "β of the score chosen"], _shares(experiment, design))}"""


def _budgets(experiment: Experiment, design: Asked, names: Sequence[str]) -> list[str]:
    """β of a model on these signals, fitted on so many queries."""
    cells = []
    for budget in _BUDGETS:
        answered = []
        for split in range(SPLITS):
            seen, unseen = design.halves([experiment.seed, split])
            answered.append(unseen.errors(_model(seen.some(budget, [experiment.seed, split]), unseen, names))[1])
        cells.append(share(float(np.mean(answered))))
    return cells


def _shares(experiment: Experiment, design: Asked) -> list[list[str]]:
    """β of what is chosen with other shares of the queries to learn from."""
    kept, rows = choose._LEARN, []
    for learns in _SHARES:
        choose._LEARN = learns
        answered = []
        for split in range(SPLITS):
            seen, unseen = design.halves([experiment.seed, split])
            everyone = np.ones(len(seen.labels), dtype=np.bool_)
            learnt = learn_score(seen.values, QueryLabels(seen.has_answer, seen.labels, everyone), MAX_EMPTY, split)
            if learnt.name == "model":
                scores = _model(seen.take(learnt.learns), unseen, MODEL_SIGNALS)
            else:
                scores = unseen.columns([learnt.name])[:, 0]
            answered.append(unseen.errors(scores)[1])
        rows.append([share(learns, 1), with_error(float(np.mean(answered)), float(np.std(answered)))])
    choose._LEARN = kept
    return rows


def _model(seen: Asked, unseen: Asked, names: Sequence[str]) -> Float64:
    """Log-odds of the unseen queries by a model that was fitted on the seen ones."""
    return choose.fit_score_model(seen.columns(names), seen.has_answer).log_odds(unseen.columns(names))
