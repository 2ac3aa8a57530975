"""The abstention policy of a release: a score that is chosen, then a threshold that is certified on other queries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.certify import Certifying, certify_both
from taugate.calibration.abstention.choose import Chosen, Corpus, Side, choose_score
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.scored import Answering
from taugate.calibration.settings.abstention_rule import AbstentionRule
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.release.abstention import AbstentionRecord, ScoreCandidate


@dataclass(frozen=True)
class Abstaining:
    """The score with the scores of all queries, and what the manifest says of the policy."""

    chosen: Chosen
    record: AbstentionRecord

    @property
    def rule(self) -> AnswerRule:
        """As it is served."""
        return AnswerRule(self.chosen.score, self.record.tau)

    @property
    def answering(self) -> Answering:
        """Who is answered, of the queries of both kinds."""
        return Answering(self.chosen.answerable, self.chosen.unanswerable, np.float32(self.record.tau))


def abstain(
    rule: AbstentionRule,
    answerable: Side,
    unanswerable: Side,
    corpus: Corpus,
    calibration: NDArray[np.int64],
    seed: int,
) -> Abstaining:
    """Choose and certify; calibration: positions of the answerable queries that may have a say."""
    chosen = choose_score(answerable, unanswerable, corpus, calibration, rule.most_refused, seed)
    return Abstaining(
        chosen,
        certify_both(
            rule,
            _certifying(chosen.answerable, answerable, chosen.certify_answerable),
            _certifying(chosen.unanswerable, unanswerable, chosen.certify_unanswerable),
            chosen.score.name,
            [
                ScoreCandidate(
                    name=each.name, auroc=each.auroc, answered=each.answered, standard_error=each.standard_error
                )
                for each in chosen.candidates
            ],
        ),
    )


def _certifying(scores: NDArray[np.float32], side: Side, rows: NDArray[np.int64]) -> Certifying:
    """Those that had no say in the score, by the clusters of all queries of their kind."""
    return Certifying(scores[rows], Units.of(side.labels).take(rows))
