"""The query embeddings paper's Table 1 for the data sets here: NDCG@10 after PCA of queries, and of queries and documents."""

from collections.abc import Callable

import numpy as np
from bench import Bench, second_encoder
from page import share, table
from searched import Encoded

from calibration.data.dataset import LabelledQuery
from calibration.encoding.source import DEFAULT_ENCODER
from calibration.gate import Candidate, Outcome, judge
from calibration.margin import Gate
from calibration.metrics.isotropy import isotropy
from calibration.projection.folds import cross_validated
from calibration.projection.pca import fit_pca, retained
from calibration.query_set.clusters import clusters
from calibration.trial import Trial
from retrieval.projection import Projection
from retrieval.similarity import Float32

HEADING = "Projections"
SETS = (
    "squad_v2_dev",
    "pubmedqa_labelled",
    "covidqa_chunks",
    "cosqa",
    "scifact/train",
    "mixed_large",
    "squadshifts_new_wiki",
)
SECOND_SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "cosqa")
_RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1)
_FOLDS = 3  # as the paper's Table 4
_K = 5
# What a projection is fitted on, by name; documents may be had in any number, queries of other folds only.
_Fit = Callable[[Float32, Float32, np.random.Generator], Projection]


def _both(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    fitted = fit_pca(np.concatenate([queries, documents]))
    return fitted.projection.first(retained(0.9, queries.shape[1], fitted.rank))


def _random(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    """A random 10 % of the dimensions is removed (Appendix D)."""
    kept = np.sort(rng.permutation(queries.shape[1])[: int(0.9 * queries.shape[1])])
    return Projection(np.zeros(queries.shape[1]), np.eye(queries.shape[1])[:, kept])


def _standardised(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    return Projection(documents.mean(axis=0, dtype=np.float64), np.diag(1 / documents.std(axis=0, dtype=np.float64)))


def _whitened(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    centred = documents - documents.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return Projection(documents.mean(axis=0, dtype=np.float64), vectors / np.sqrt(np.maximum(values, 1e-9)))


def _without_top(queries: Float32, documents: Float32, rng: np.random.Generator) -> Projection:
    """The mean and the ⌈d / 100⌉ first components of the documents are removed (Mu and Viswanath's all-but-the-top)."""
    pca = fit_pca(documents)
    top = pca.projection.components[:, : -(-documents.shape[1] // 100)]
    return Projection(pca.projection.mean, np.eye(documents.shape[1]) - top @ top.T)


_OTHERS: dict[str, _Fit] = {
    "query + document PCA, .9": _both,
    "random, .9": _random,
    "standardised": _standardised,
    "whitened": _whitened,
    "top components removed": _without_top,
}


def section(bench: Bench) -> str:
    """The section of the page."""
    second = second_encoder()
    asked = [(name, DEFAULT_ENCODER, "MiniLM") for name in bench.wanted(SETS)]
    asked += [(name, second, "sre") for name in bench.wanted(SECOND_SETS) if second]
    changes, curve, gates = [], [], []
    for name, encoder, title in asked:
        measured = _measure(bench.encoded(name, encoder), bench.seed)
        base = measured["none"]
        changes.append(
            [
                name,
                title,
                share(base.ndcg.mean(), 4),
                *(_percent(measured[key], base) for key in ("query PCA, .9", *_OTHERS)),
            ]
        )
        curve.append(
            [
                name,
                title,
                *(
                    _percent(measured[f"query PCA, {share(r, 1)}" if r < 1 else "query PCA, 1"], base)
                    for r in _RETENTIONS
                ),
            ]
        )
        gates.append([name, title, *_judged(bench.encoded(name, encoder), measured)])
    return f"""\
{_FOLDS}-fold cross-validation over all answerable queries: every query is answered by a projection that was fitted without it. NDCG@10
in percent of what it is without a projection, as the paper's Tables 1, 4 and 9 have it. What is fitted on documents has
all of them. d = 384 for both encoders.

### Change of NDCG@10 (%)

{table(["set", "encoder", "NDCG@10 without", "query PCA, .9", *_OTHERS], changes)}

### Query PCA by retention: change of NDCG@10 (%)

{table(["set", "encoder", *(share(r, 1) if r < 1 else "1" for r in _RETENTIONS)], curve)}

### What the gate says of query PCA

Retention .9 alone, margin .005, 95 %: accuracy@{_K} and NDCG@10 with the upper limit of the loss; the last columns are the
isotropy I_A and I_B of the documents before and after.

{table(["set", "encoder", "accuracy before → after", "loss ≤", "NDCG@10 before → after", "loss ≤", "p", "admitted", "I_A", "I_B"], gates)}
"""


def _measure(encoded: Encoded, seed: int) -> dict[str, Outcome]:
    trial = Trial(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, _K)
    rng = np.random.default_rng([seed, 4])
    names = [f"query PCA, {share(r, 1)}" if r < 1 else "query PCA, 1" for r in _RETENTIONS]
    found = {"none": trial.outcome()} | dict(zip(names, cross_validated(trial, _RETENTIONS, rng, _FOLDS), strict=True))
    return found | {name: _outcome(trial, fit, np.random.default_rng([seed, 4])) for name, fit in _OTHERS.items()}


def _outcome(trial: Trial, fit: _Fit, rng: np.random.Generator) -> Outcome:
    """Cross-validated like query PCA, on the same folds."""
    count = len(trial.queries)
    order, result = rng.permutation(count), Outcome(np.empty(count), np.empty(count))
    for number in range(_FOLDS):
        fold = np.sort(order[number::_FOLDS])
        rest = np.setdiff1d(np.arange(count), fold)
        projection = fit(trial.vectors[rest], trial.documents, rng)
        asked: list[LabelledQuery] = [trial.queries[position] for position in fold.tolist()]
        moved = Trial(asked, projection.apply(trial.vectors[fold]), projection.apply(trial.documents), trial.k)
        of_fold = moved.outcome()
        result.accuracy[fold], result.ndcg[fold] = of_fold.accuracy, of_fold.ndcg
    return result


def _percent(outcome: Outcome, base: Outcome) -> str:
    return f"{100 * (outcome.ndcg.mean() / base.ndcg.mean() - 1):+.1f}"


def _judged(encoded: Encoded, measured: dict[str, Outcome]) -> list[str]:
    candidate = Candidate("query PCA, .9", "projection", measured["query PCA, .9"])
    (record,) = judge(measured["none"], [candidate], clusters(encoded.queries), Gate())
    cells = []
    for each in (record.accuracy, record.ndcg):
        cells += [f"{share(each.baseline, 4)} → {share(each.candidate, 4)}", f"{each.loss.upper:+.4f}"]
    documents = encoded.vectors.documents
    pca = fit_pca(encoded.vectors.answerable)
    after = pca.projection.first(retained(0.9, documents.shape[1], pca.rank)).apply(documents)
    spreads = isotropy(documents), isotropy(after)
    isotropies = [" → ".join(share(getattr(each, name)) for each in spreads) for name in ("i_a", "i_b")]
    return [*cells, f"{record.p_adjusted:.3g}", "yes" if record.admitted else "no", *isotropies]
