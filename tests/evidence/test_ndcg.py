"""NDCG and accuracy agree with trec_eval, graded judgements and several relevant documents included."""

import numpy as np
import pytest
import pytrec_eval

from taugate.evidence.ranking import accuracy, ideal_dcg, ndcg


@pytest.mark.parametrize("k", [1, 5, 10])
def test_ndcg_equals_trec_eval(k: int) -> None:
    rng = np.random.default_rng(k)
    queries, documents = 200, 30
    qrels, run, grades, ideal = {}, {}, [], []
    for query in range(queries):
        relevant = {f"d{d}": int(grade) for d, grade in enumerate(rng.integers(-6, 4, documents)) if grade > 0}
        relevant = relevant or {"d0": 1}
        ranking = [f"d{d}" for d in rng.permutation(documents)[:k]]
        qrels[f"q{query}"] = relevant
        run[f"q{query}"] = {name: float(k - rank) for rank, name in enumerate(ranking)}
        grades.append([relevant.get(name, 0) for name in ranking])
        ideal.append(ideal_dcg(relevant.values(), k))
    evaluated = pytrec_eval.RelevanceEvaluator(qrels, {f"ndcg_cut.{k}", f"success.{k}"}).evaluate(run)
    kept = np.ones((queries, k), dtype=bool)
    expected = [evaluated[f"q{query}"] for query in range(queries)]
    np.testing.assert_allclose(
        ndcg(np.array(grades), kept, np.array(ideal)), [item[f"ndcg_cut_{k}"] for item in expected], atol=1e-12
    )
    np.testing.assert_array_equal(accuracy(np.array(grades), kept), [item[f"success_{k}"] for item in expected])


def test_dropped_results_gain_nothing() -> None:
    grades, ideal = np.array([[1, 0, 2]]), np.array([ideal_dcg([1, 2], 3)])
    full = ndcg(grades, np.array([[True, True, True]]), ideal)
    cut = ndcg(grades, np.array([[True, True, False]]), ideal)
    assert full[0] == pytest.approx((1 + 2 / 2) / (2 + 1 / np.log2(3)))
    assert cut[0] == pytest.approx(1 / (2 + 1 / np.log2(3)))
    assert accuracy(grades, np.zeros((1, 3), dtype=bool))[0] == 0
