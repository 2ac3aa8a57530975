"""One calibration on random queries of a data set, by the product's own functions, and what it does to the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from searched import Searched

from calibration.decide import decide
from calibration.evidence import Evidence
from calibration.metrics.bootstrap import Draw, Split
from calibration.relevance.estimate import Estimated
from calibration.relevance.parts import Parts
from calibration.risk.certify import Limited, certify
from calibration.risk.rule import Rule
from calibration.risk.steps import loss_steps
from calibration.scored import Scored
from calibration.settings import CalibrationSettings
from retrieval.index.topk import TopK
from retrieval.policy import PolicyKind, keep
from retrieval.release.evidence import Statement

LOSSES = (0.01, 0.02, 0.05)
PAPERS = Rule("bootstrap", "similarity")
HOLDOUT = 0.3

Positions = NDArray[np.int64]
# Positions of the queries that calibrate and of those that judge, from n queries.
Drawing = Callable[[np.random.Generator, int], tuple[Positions, Positions]]


def certified(policy: str, guarantee: Statement, loss: float) -> Rule:
    """A rule of risk control."""
    return Rule("risk-control", policy, guarantee=guarantee, max_loss=loss)


def unseen(rng: np.random.Generator, queries: int) -> tuple[Positions, Positions]:
    """The product's split: 70 % calibrate, the others were never seen."""
    split = Split.of(rng, queries, HOLDOUT)
    return split.calibration, split.heldout


def population(rng: np.random.Generator, queries: int) -> tuple[Positions, Positions]:
    """The data set is the world: as many queries as above drawn from it with replacement, the truth is its whole."""
    return rng.integers(0, queries, size=queries - round(HOLDOUT * queries)), np.arange(queries)


def labelled(rng: np.random.Generator, queries: int, size: int) -> tuple[Positions, Positions]:
    """`size` labelled queries calibrate, all of the others judge."""
    order = rng.permutation(queries)
    return order[:size], order[size:]


@dataclass(frozen=True)
class Outcome:
    """What a rule did: share of results kept and queries lost among those that judge; whether there is a cut at all."""

    kept: float
    lost: float
    cut: bool


def trial(
    searched: Searched, number: int, rules: Sequence[Rule], drawing: Drawing, seed: int
) -> tuple[list[Outcome], int]:
    """Calibrate on the draw of this number by each of the rules, and judge. Returns how many queries judged, too."""
    rng = np.random.default_rng([seed, number])
    calibration, judges = drawing(rng, len(searched.queries))
    evidence = gather(searched, calibration, rng, number)
    kinds: dict[float, PolicyKind] = {}
    outcomes = []
    for rule in rules:
        kind, tau = _decide(rule, evidence, kinds)
        taken = evidence.scored.take(judges)
        kept = keep(taken.decisions(kind), None if tau is None else np.float32(tau))
        lost = float(taken.judged.lost("accuracy", kept).sum())
        outcomes.append(Outcome(float(kept.mean()), lost, tau is not None))
    return outcomes, len(judges)


def gather(searched: Searched, calibration: Positions, rng: np.random.Generator, number: int) -> Evidence:
    """What a decision rests on, as `calibration.study` gathers it."""
    draw = Draw.of(rng, len(calibration), len(searched.documents), CalibrationSettings())
    parts = Parts.of(calibration, number)
    estimated = searched.estimate(parts)
    scored = scored_queries(searched, estimated)
    return Evidence(scored, calibration, draw.rows, parts, estimated, searched.labels, number)


def scored_queries(searched: Searched, estimated: Estimated | None) -> Scored:
    """All queries with the model's relevance; no unanswerable ones, as no rule here looks at them."""
    nothing = TopK(np.empty((0, searched.k), np.float32), np.empty((0, searched.k), np.int64))
    if estimated is None:
        return Scored(searched.judged, nothing, None, None)
    return Scored(searched.judged, nothing, estimated.answerable, estimated.unanswerable)


def _decide(rule: Rule, evidence: Evidence, kinds: dict[float, PolicyKind]) -> tuple[PolicyKind, float | None]:
    """The product's decision. `auto` chooses the same policy whatever the guarantee, so it chooses once (`kinds`)."""
    if rule.policy != "auto" or rule.method != "risk-control":
        policy = decide(rule, evidence)
        return policy.kind, policy.tau
    if rule.max_loss not in kinds:
        kinds[rule.max_loss] = decide(replace(rule, guarantee="expected-loss"), evidence).kind
    kind = kinds[rule.max_loss]
    if kind == "none":  # the expected loss asks for fewer queries than the 95 % statement
        return "none", None
    queries = evidence.scored.take(evidence.parts.certify)
    steps = loss_steps(queries.judged, queries.decisions(kind), rule.metric)
    tau = certify([Limited(rule.metric, steps, rule.max_loss)], rule).tau
    return ("none" if tau is None else kind), tau
