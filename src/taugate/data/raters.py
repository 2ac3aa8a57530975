"""Which judgements by users count, and how much: outlying keys are left out, and rare judgements weigh more.

Users judge results that they are shown, and more often those at the top. So each judgement weighs the inverse of its
probability (Horvitz and Thompson, 1952; for position bias Joachims, Swaminathan and Schnabel, "Unbiased
Learning-to-Rank with Biased Feedback", WSDM 2017).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from taugate.drift.observations import query_key

# A thousand judgements give a loss of 5 % to within ±1.4 points (1.96 · √(.05 · .95 / 1000)). More judgements by one
# key would add its habits, and little precision.
MAX_BY_KEY = 1000
MIN_VOTES = 1
# With fewer judgements the share of a key is too uncertain, and with fewer keys there is nothing to compare it with.
MIN_JUDGEMENTS, MIN_KEYS = 20, 5
# Distance from the median in robust standard deviations (Iglewicz and Hoaglin, "How to Detect and Handle Outliers",
# 1993).
_OUTLYING = 3.5
_MAD = 1.4826  # turns the median deviation of a normal variable into its standard deviation

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Opinion:
    """A judgement of a result by a user."""

    at: float  # Unix time in seconds
    reply: str
    key: str | None  # name of the user's API key, or None
    query: int
    document: str
    relevant: bool  # whether the user finds the passage relevant

    @property
    def voter(self) -> Hashable:
        """The holder of one vote per result: the key or, without keys, the reply."""
        return self.key if self.key is not None else ("reply", self.reply)


def outlying_keys(votes: Sequence[Opinion], shown: Mapping[str, int]) -> set[str]:
    """Return the keys that call far more or fewer results relevant than others do, or judge far more of what they see.

    Keys with fewer than 20 judgements are never outlying, and no key is if fewer than 5 have as many. A share has to be
    further from the median than chance explains.
    """
    by_key: dict[str, list[Opinion]] = defaultdict(list)
    for vote in votes:
        if vote.key is not None:
            by_key[vote.key].append(vote)
    compared = {key: judgements for key, judgements in by_key.items() if len(judgements) >= MIN_JUDGEMENTS}
    relevant = {key: (sum(vote.relevant for vote in by_one), len(by_one)) for key, by_one in compared.items()}
    judged = {key: (min(len(by_one), shown[key]), shown[key]) for key, by_one in compared.items() if shown.get(key)}
    return _outliers(relevant, both_sides=True) | _outliers(judged, both_sides=False)


def limit_by_key(votes: Iterable[Opinion], max_by_key: int) -> list[Opinion]:
    """Take at most `max_by_key` judgements of each key, a reproducible sample; judgements without a key are kept."""
    by_key: dict[str, list[Opinion]] = defaultdict(list)
    taken = []
    for vote in votes:
        if vote.key is None:
            taken.append(vote)
        else:
            by_key[vote.key].append(vote)
    for key, by_one in by_key.items():
        in_order = sorted(by_one, key=lambda vote: query_key(f"{key}\n{vote.query}\n{vote.document}"))
        taken += in_order[:max_by_key]
    return taken


def majority(votes: Collection[Opinion]) -> bool | None:
    """Return the opinion of the majority on one result, None for a tie."""
    # Only the latest judgement of each voter counts.
    latest = {vote.voter: vote.relevant for vote in sorted(votes, key=lambda vote: vote.at)}
    relevant = sum(latest.values())
    return None if 2 * relevant == len(latest) else 2 * relevant > len(latest)


def _outliers(shares: Mapping[str, tuple[int, int]], *, both_sides: bool) -> set[str]:
    """Return the keys whose share is an outlier; `shares`: by key, a count and the total that it is a share of."""
    if len(shares) < MIN_KEYS:
        return set()
    share = {key: count / total for key, (count, total) in shares.items()}
    middle = median(share.values())
    deviation = _MAD * median(abs(value - middle) for value in share.values())
    outlying = set()
    for key, (_, total) in shares.items():
        chance = (max(middle * (1 - middle), 1 / total) / total) ** 0.5
        away = share[key] - middle
        if (abs(away) if both_sides else away) > _OUTLYING * (deviation**2 + chance**2) ** 0.5:
            outlying.add(key)
    return outlying


def judged_by_place(shown: Sequence[int], judged: Sequence[int]) -> Float64:
    """Estimate the probability that a user judges a result, by its place in the reply, (places,) float64."""
    # It never rises from one place to the next: users read from the top, so an increase is chance. Half a judgement is
    # added at each place, so that a rare place has neither 0 nor 1.
    seen = np.asarray(shown, dtype=np.float64)
    share = (np.asarray(judged, dtype=np.float64) + 0.5) / (seen + 1)
    decreasing: Float64 = isotonic_regression(share, weights=seen + 1, increasing=False).x
    return decreasing


def enough_votes(probabilities: Iterable[float], votes: int) -> float:
    """Return the probability that at least `votes` of several users judge a result."""
    below = np.zeros(votes)  # the probabilities of 0, 1, … votes so far
    below[0] = 1.0
    enough = 0.0  # added up, as 1 - sum(below) may round to 0
    for probability in probabilities:
        enough += float(below[-1]) * probability
        below[1:] = below[1:] * (1 - probability) + below[:-1] * probability
        below[0] *= 1 - probability
    return enough


def max_weight(weights: Collection[float]) -> float:
    """Return the limit of weights, √n times the mean of n weights, so that no single query decides."""
    # The rule is that of truncated importance sampling (Ionides, Journal of Computational and Graphical Statistics 17,
    # 2008): the error that it makes vanishes as the number of queries grows.
    return sum(weights) / math.sqrt(len(weights))
