"""Chooses the lexical part of the score by which the base and the adapted encoders are compared.

Words and an adapted encoder improve partly the same queries, so an encoder that is better by the cosine may add nothing
to a score with a lexical part. Both encoders are therefore compared by the score that a calibration of the base would
use. Searches by the base alone choose the weight, so the choice favours the base and cannot make a recipe look better.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taugate.adaptation.decision import K, judge_adapted
from taugate.adaptation.recipes import EncodedPairs
from taugate.calibration.gate.baseline import LexicalPart, RankingOutcomes
from taugate.calibration.gate.lexical import GRID, PROVISIONAL_WEIGHT
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.settings.settings import LexicalChoice
from taugate.retrieval.index.lexical import LexicalIndex


def choose_lexical(pairs: EncodedPairs, choice: LexicalChoice, say: Callable[[str], None]) -> LexicalPart | None:
    """Return the lexical part of the score, None if the score is the cosine.

    `auto` takes the weight with the highest NDCG@10 of the unseen queries among those that the gate accepts. If these
    queries are generated, it takes the default weight, as a calibration does.

    Args:
        pairs: Queries and documents, encoded by the base encoder.
        choice: A weight, `off` or `auto`.
        say: Called with one line of progress.
    """
    if choice == "off":
        return None
    words = LexicalIndex.of(document.encoded_text for document in pairs.corpus)
    weight: float | None = PROVISIONAL_WEIGHT if choice == "auto" else choice
    if choice == "auto" and pairs.queries.evidence == "human":
        weight = _best_weight(pairs, words)
    if weight is None:
        say("encoders are compared by the cosine: no lexical weight is shown to help the base encoder")
        return None
    say(f"encoders are compared by the cosine + {weight:g} · lexical share")
    return LexicalPart(words, weight)


def _best_weight(pairs: EncodedPairs, words: LexicalIndex) -> float | None:
    """Return the best weight that the gate accepts for the base encoder, None if it accepts none."""

    def outcomes(lexical: LexicalPart | None) -> RankingOutcomes:
        return replace(pairs, lexical=lexical).search_unseen(None, K).outcomes()

    tried = {weight: outcomes(LexicalPart(words, weight)) for weight in GRID}
    units = SamplingUnits.from_clusters(clusters(pairs.queries.unseen))
    named = [(f"lexical share, weight {weight:g}", result) for weight, result in tried.items()]
    records = judge_adapted(outcomes(None), named, units)
    accepted = [weight for weight, record in zip(tried, records, strict=True) if record.admitted]
    return max(accepted, key=lambda weight: float(np.mean(tried[weight].ndcg)), default=None)
