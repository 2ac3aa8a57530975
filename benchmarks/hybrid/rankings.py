"""Accuracy, NDCG and separation of the score with a lexical share, beside other kinds of hybrid search."""

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.experiment import Experiment
from benchmarks.hybrid.fused import DENSE, LISTED, LISTS, RRF_K, SETS, WEIGHTS, FusedSet, fused_set, ranked_set
from benchmarks.markdown import share, table
from taugate.retrieval.index.lexical import LexicalIndex

HEADING = "What each list gives"
_COLUMNS: tuple[float | str, ...] = (*WEIGHTS, *LISTS)
_LUCENE = (1.2, 0.75)


def section(experiment: Experiment) -> str:
    """Rank all documents of each set by every kind of list."""
    accuracy, ndcg, changes, separation = [], [], [], []
    for name in experiment.wanted(SETS):
        read, (outcomes, units) = fused_set(experiment.data, name), ranked_set(experiment.data, name)
        other, row = read.ranked(str, *_LUCENE), [name, f"{len(units):,}"]
        accuracy.append(row + [share(outcomes[column].accuracy.mean()) for column in _COLUMNS])
        ndcg.append(row + [share(outcomes[column].ndcg.mean()) for column in _COLUMNS])
        shifts = [100 * (other[column].accuracy - outcomes[column].accuracy).mean() for column in _COLUMNS]
        changes.append(row + [f"{shift:+.1f}" for shift in shifts])
        if read.indexed.dataset.unanswerable:
            separation.append([name, *_separation(read)])
    header = ["set", "queries", *(f"w = {weight:g}" for weight in WEIGHTS), *LISTS]
    return f"""\
The score is cosine + w · share with k1 = .9 and b = .4. RRF (k = {RRF_K}) and min-max (.{DENSE * 10:.0f} of the dense list, the rest of BM25's, scaled to 0…1
in each list) fuse lists of {LISTED} documents. Their scores mean nothing outside of the list, so no threshold can be put on them. Accuracy@5:

{table(header, accuracy)}

NDCG@10:

{table(header, ndcg)}

Change of accuracy@5 in points if k1 = 1.2 and b = .75:

{table(header, changes)}

Does the best score of a query tell whether it has an answer? AUROC of answerable against unanswerable queries:

{table(["set", *header[2 : 2 + len(WEIGHTS)]], separation)}
"""


def _separation(read: FusedSet) -> list[str]:
    lexical = LexicalIndex.of(read.texts)
    sides = [
        np.concatenate([[some.fused(weight).max(axis=1) for weight in WEIGHTS] for some in scores], axis=1)
        for scores in (read.scores(lexical, answerable=answerable) for answerable in (True, False))
    ]
    labels = np.repeat([1, 0], [side.shape[1] for side in sides])
    return [share(roc_auc_score(labels, both)) for both in np.concatenate(sides, axis=1)]
