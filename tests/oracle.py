"""The papers' procedure, transcribed line by line and slowly: a similarity matrix per bootstrap, nothing shared.

Thresholds paper §2.1 to §2.3, in the later version's words (thresholds_telecom §II-A to §II-C), with the order of
random draws of contract §3. Similarities are inner products of float32 embeddings, rounded once to float32.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Oracle:
    """Results that the papers report for one embedding model and one K."""

    accuracy: list[float]  # a_j
    gamma: list[float]  # Γ
    accuracy_at: dict[int, float]  # mean accuracy after substituting what is below τ(ψ)
    tau: float
    psi: int
    coe: list[float]
    roe: list[float]


def transcribe(
    questions: np.ndarray,
    documents: np.ndarray,
    correct: list[list[int]],
    *,
    k: int,
    m: int,
    l: int,  # noqa: E741
    seed: int,
    overlap_percentile: float = 5,
) -> Oracle:
    """Compute the results.

    Args:
        questions: E(Q), (q, d).
        documents: E(D), (N, d).
        correct: Positions of the correct documents of each question.
        k: Number of results K.
        m: Number of bootstrap samples.
        l: Questions in a sample.
        seed: Seed of the random draws.
        overlap_percentile: Percentile of the similarities that overlaps are counted above.
    """
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, len(questions), size=(m, l))
    random_documents = rng.integers(0, len(documents), size=len(questions))

    accuracies, gamma, tops, matrices = [], [], [], []
    for sample in samples:  # Q_j
        matrix = (questions[sample].astype(float) @ documents.astype(float).T).astype(np.float32)  # S^j, (l, N)
        top = np.argsort(-matrix, axis=1, kind="stable")[:, :k]  # t^K_q
        values = np.take_along_axis(matrix, top, axis=1)  # T^j, (l, K)
        hits = [any(document in correct[q] for document in row) for q, row in zip(sample, top.tolist(), strict=True)]
        accuracies.append(sum(hits) / l)  # a_j
        gamma.append(values.min())  # γ^j
        tops.append(top)
        matrices.append(values)
    lower = np.percentile(accuracies, 2.5)

    taus = np.percentile(gamma, np.arange(101))
    accuracy_at = {}
    for psi, tau in enumerate(taus):
        means = []
        for sample, top, values in zip(samples, tops, matrices, strict=True):
            kept = values >= np.float32(tau)  # what is below τ(ψ) is no longer a result
            hits = 0
            for q, row, keep in zip(sample, top.tolist(), kept, strict=True):
                hits += any(document in correct[q] for document, stays in zip(row, keep, strict=True) if stays)
            means.append(hits / l)
        accuracy_at[psi] = float(np.mean(means))
    psi = max((psi for psi, value in accuracy_at.items() if value >= lower - 1e-12), default=0)

    similarity = (questions.astype(float) @ documents.astype(float).T).astype(np.float32)
    s_corr = np.array([max(similarity[q, document] for document in relevant) for q, relevant in enumerate(correct)])
    s_rand = similarity[np.arange(len(questions)), random_documents]
    thetas = [np.percentile(values, overlap_percentile) for values in matrices]
    coe = [np.mean(s_corr > theta) for theta in thetas]
    roe = [np.mean(s_rand > theta) for theta in thetas]
    return Oracle(accuracies, gamma, accuracy_at, float(taus[psi]), psi, coe, roe)
