"""Check whether both limits on refusals hold on documents that had no say, and what the score gains.

A section of benchmarks/results/abstention.md (abstention_tables.py).
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.encoding import encoded_set
from benchmarks.evidence import plot
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict, with_error
from taugate.calibration.metrics.inputs import clusters
from taugate.evidence.abstention import certify
from taugate.evidence.abstention.certify import CertifyingScores, certify_both
from taugate.evidence.abstention.choose import EncodedCorpus, LabelledGroups, QueryGroup, choose_score, fit_score_model
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.rules import MAX_EMPTY, AbstentionRule
from taugate.policy.abstention import MODEL_SIGNALS
from taugate.policy.arrays import Float32
from taugate.release.refusal_records import RequestedLimits
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import DocumentWords, LexicalIndex

HEADING = "Both limits, on documents that had no say"
SETS = ("squad_v2_dev", "mixed_large")
K = 5
_SHARE = 0.5  # of the documents that a draw certifies on
_ALLOWED = 0.05
_MEANS = 100  # draws of a table of means
_DRAWN = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)  # γ
_FEWEST = 400  # queries of a world in which something can be certified
# Of one score or another some can be had and some cannot; the last leaves refusals open.
_ASKED = (AbstentionRule(0.9, MAX_EMPTY), AbstentionRule(0.9, 0.3), AbstentionRule(0.5))


@dataclass(frozen=True)
class World:
    """The queries on documents that had no say in any score: their clusters, (q,), numbered jointly, and scores.

    Attributes:
        has_answer: (q,) bool.
        scores: (q,) float32 of each score, by its name.
        chosen: The one that calibration chooses.
    """

    labels: NDArray[np.int64]
    has_answer: NDArray[np.bool_]
    scores: dict[str, Float32]
    chosen: str

    def one_of_each(self, rng: np.random.Generator) -> Self:
        """Take one query of each kind from every document that has both."""
        order = rng.permutation(len(self.labels))
        rows = []
        for kind in (True, False):
            mine = order[self.has_answer[order] == kind]
            rows.append(dict(zip(self.labels[mine].tolist(), mine.tolist(), strict=True)))
        both = sorted({*rows[0]} & {*rows[1]})
        taken = np.array([row[label] for row in rows for label in both])
        scores = {name: values[taken] for name, values in self.scores.items()}
        return replace(self, labels=self.labels[taken], has_answer=self.has_answer[taken], scores=scores)


def section(experiment: Experiment) -> str:
    """Measure both errors on unseen documents over random splits."""
    rows, gains, drawings = [], [], []
    for name in experiment.wanted(SETS):
        world = _world(experiment, name)
        rows += [_row(experiment, name, world, rule) for rule in _ASKED]
        alone = world.one_of_each(np.random.default_rng([experiment.seed, 6]))
        if len(alone.labels) >= _FEWEST:
            rows += [_row(experiment, f"{name}, one of each", alone, rule) for rule in _ASKED]
        gains += _gains(experiment, name, world)
        drawings.append(_drawing(name, world))
    error = np.sqrt(_ALLOWED * (1 - _ALLOWED) / experiment.splits)
    header = [
        "set",
        "β asked",
        "γ asked",
        "certified",
        "both hold, certified",
        "both hold",
        "… on the rest",
        "wanted ≥ .95",
    ]
    other = ["set", "score", "AUROC", f"β at γ = {share(MAX_EMPTY, 2)}", "true β there", "true γ there"]
    return f"""\
Do both certified limits hold together? Four tenths of the documents fit the model and choose the score, once
(`evidence/abstention/choose.py`). The other documents are the world. {experiment.splits:,} times, half as many documents are drawn from it with
replacement, each with all of its queries of both kinds, and certify. K = {K}.

* *Both hold* compares the certified limits with both errors in the whole world. It counts every draw, also those in which the limits
  asked for could not be certified and others were. {share(1 - _ALLOWED)} is promised, ± {share(error)}.
* *On the rest* is the same on the documents that were not drawn. These are a sample too, about as large: two limits that are exact for the
  world are missed there in about one draw of six (P(Z > 1.96 / √2) = .08 for each).
* *One of each* has one query of each kind for each document. The queries of a kind are then independent draws and the tests exact, but
  both kinds are about the same documents.

{table(header, rows)}

This is the smallest β that can be certified if {100 * MAX_EMPTY:g} % of the answerable queries may be refused: the mean ± standard deviation over
{experiment.part(_MEANS)} draws, with both true errors at that threshold. If queries share documents, the certified limits are much weaker than
the truth, as the test must allow for the largest documents being refused first. To certify more, label more documents with a query or
two each, not more queries on the same ones.

{table(other, gains)}

{chr(10).join(drawings)}
"""


def _drawing(name: str, world: World) -> str:
    """Compare the certified limits with the true errors of the whole world, by the share refused."""
    drawn = {"model, certified": "model", "best similarity, certified": "best_similarity"}
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for words, score in drawn.items():
        values = world.scores[score]
        with_answer, without = (
            CertifyingScores(values[mine], SamplingUnits.from_clusters(world.labels[mine]))
            for mine in (world.has_answer, ~world.has_answer)
        )
        errors = certify.AnsweringErrors.from_scores(with_answer, without, AbstentionRule(0.5).confidence_per_limit)
        taus = {empty: errors.refusing(empty).tau for empty in _DRAWN}
        known = {empty: tau for empty, tau in taus.items() if tau is not None}
        lines[words] = [100 * empty for empty in known], [errors.max_answered(tau) for tau in known.values()]
    scores = world.scores["model"]
    answerable = np.sort(scores[world.has_answer])
    found = [float(answerable[int(empty * len(answerable))]) for empty in _DRAWN]
    lines["model, true"] = (
        [100 * empty for empty in _DRAWN],
        [_errors(scores, world.has_answer, tau)[1] for tau in found],
    )
    title = f"{name}: unanswerable queries answered, by the share of answerable ones refused"
    return plot.lines(f"abstention-{name}", title, ("answerable queries refused, %", "β"), lines, 1.0)


def _row(experiment: Experiment, name: str, world: World, rule: AbstentionRule) -> list[str]:
    done = [_trial(world, world.chosen, rule, experiment.seed, number) for number in range(experiment.splits)]
    certified = np.array([trial.certified for trial in done])
    holds, on_the_rest = np.array([trial.holds for trial in done]).T
    among = share(float(holds[certified].mean())) if certified.any() else "–"
    reached = holds.mean() >= 1 - _ALLOWED - 2 * np.sqrt(_ALLOWED * (1 - _ALLOWED) / experiment.splits)
    empty = "–" if rule.max_empty is None else share(rule.max_empty, 2)
    shares = [share(float(each.mean())) for each in (holds, on_the_rest)]
    return [
        name,
        share(rule.max_answered, 2),
        empty,
        share(float(certified.mean())),
        among,
        *shares,
        verdict(reached=bool(reached)),
    ]


def _gains(experiment: Experiment, name: str, world: World) -> list[list[str]]:
    """β at the default γ: a limit on answers that nothing can reach leaves the threshold to γ."""
    rows = []
    for score, values in world.scores.items():
        rule = AbstentionRule(1e-6, MAX_EMPTY)
        done = [_trial(world, score, rule, experiment.seed, number) for number in range(experiment.part(_MEANS))]
        limits = np.array([trial.limits.answered.upper for trial in done])
        true = np.array([_errors(values, world.has_answer, trial.rho) for trial in done])
        rows.append(
            [
                name,
                score.replace("_", " ") + (", chosen" if score == world.chosen else ""),
                share(float(roc_auc_score(world.has_answer, values))),
                with_error(float(limits.mean()), float(limits.std())),
                share(float(true[:, 1].mean())),
                share(float(true[:, 0].mean())),
            ]
        )
    return rows


class _Trial(NamedTuple):
    """What one draw certified, and whether it holds on the whole population and on the other documents."""

    certified: bool
    rho: float
    limits: RequestedLimits
    holds: tuple[bool, bool]


def _trial(world: World, score: str, rule: AbstentionRule, seed: int, number: int) -> _Trial:
    """Certify both limits on one draw of documents, and check them on the whole population and on the other documents."""
    rng = np.random.default_rng([seed, number])
    names = np.unique(world.labels)
    drawn = rng.choice(names, round(_SHARE * len(names)), replace=True)
    order = np.argsort(world.labels, kind="stable")
    first = np.searchsorted(world.labels[order], drawn, side="left")
    sizes = np.searchsorted(world.labels[order], drawn, side="right") - first
    rows = order[np.repeat(first - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) + np.arange(sizes.sum())]
    labels = np.repeat(np.arange(len(drawn)), sizes)  # a document that was drawn twice is two
    values, has_answer = world.scores[score], world.has_answer
    sides = []
    for kind in (True, False):
        mine = has_answer[rows] == kind
        units = SamplingUnits.from_clusters(world.labels[has_answer == kind])
        sides.append(CertifyingScores(values[rows][mine], SamplingUnits(labels[mine], units.design_effect)))
    record = certify_both(rule, sides[0], sides[1], score, [])
    if record.limits is None or record.rho is None:
        raise AssertionError("limits were requested")
    limits = record.limits.refused.upper, record.limits.answered.upper
    rest = ~np.isin(world.labels, drawn)
    found = [
        all(
            error <= limit + 1e-12
            for error, limit in zip(_errors(values[of], has_answer[of], record.rho), limits, strict=True)
        )
        for of in (slice(None), rest)
    ]
    return _Trial(record.certified, record.rho, record.limits, (found[0], found[1]))


def _errors(scores: Float32, has_answer: NDArray[np.bool_], tau: float) -> tuple[float, float]:
    """Return the share of answerable queries refused and of unanswerable ones answered."""
    answered = scores >= np.float32(tau)
    return float((~answered[has_answer]).mean()), float(answered[~has_answer].mean())


def _world(experiment: Experiment, name: str) -> World:
    certify._REFUSED = ()  # type: ignore[assignment]  # the trade-off of every draw is most of the time, and is not looked at
    with tempfile.TemporaryDirectory() as spool:
        dataset, encoded = encoded_set(experiment.data / name, "test", Path(spool))
        index = FlatIndex.build(encoded.documents)
        labels, size = clusters(dataset.answerable + dataset.unanswerable), len(dataset.answerable)
        with_answer, without = (
            QueryGroup([query.text for query in queries], vectors, index.search(vectors, K), own)
            for queries, vectors, own in (
                (dataset.answerable, encoded.answerable, labels[:size]),
                (dataset.unanswerable, encoded.unanswerable, labels[size:]),
            )
        )
        words = LexicalIndex.of(document.encoded_text for document in dataset.documents)
        corpus = EncodedCorpus(encoded.documents, DocumentWords.of_documents(words, dataset.documents))
    groups = LabelledGroups(with_answer, without, corpus, np.arange(size), experiment.seed)
    chosen, certify_rows = choose_score(groups, MAX_EMPTY), groups.division.certify
    rest = np.concatenate([certify_rows[0], size + certify_rows[1]])
    has_answer = np.arange(len(labels)) < size
    learned = np.setdiff1d(np.arange(len(labels)), rest)
    signals = corpus.signals(K)
    values = np.concatenate(
        [signals.values(MODEL_SIGNALS, side.texts, side.vectors, side.top) for side in (with_answer, without)]
    )
    scores = {"best_similarity": values[:, 0]}
    scores["model"] = fit_score_model(values[learned], has_answer[learned]).log_odds(values)
    kept = {each: found[rest].astype(np.float32) for each, found in scores.items()}
    return World(labels[rest], has_answer[rest], kept, chosen.score.name)
