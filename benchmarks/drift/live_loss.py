"""Worlds whose loss is known: whether the bounds of live loss hold at all times, and how soon they show a loss.

Every world is a stream of queries with known labels, drawn by the sampler of the service. Run
`python -m benchmarks.drift.live_loss`; with a number, with as many streams a world instead of 1,000.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from taugate.drift.live_loss import Labels, LiveLoss, Prediction, by_model, judged_draw
from taugate.drift.sequences import Draw, Sampler, ShareBounds

DELTA = 0.05
_RIGHT = 0.85  # sensitivity and specificity of the model that judges
_EVERY = 8  # judgements between two looks at the bounds
_DELAYED = 40  # judgements that wait, to be given in any order


class LiveQuery(NamedTuple):
    """A query with its true labels."""

    cluster: int
    labels: Labels
    prediction: Prediction


@dataclass(frozen=True)
class World:
    """A simulated world: how queries arrive, and how they are judged.

    Attributes:
        loss: True share of lost answers among answerable queries.
        wrong: True share of wrongly answered queries.
        burst: Mean length of bursts: queries for one document, with one fate.
        season: How far the loss swings about its mean, as a share of it.
        informed: How much predictions tell: 0 are those of a coin, 1 nearly certain.
        late: Whether judgements are given in any order.
        model: Whether a model judges every draw, and directs which of them people judge.
        known: Labels of the calibration that the model has judged.
        people: Whether people judge.
        share: Share of queries that are drawn.
    """

    name: str
    loss: float = DELTA
    wrong: float = 0.04
    burst: int = 1
    season: float = 0.0
    informed: float = 0.3
    late: bool = False
    model: bool = False
    known: int = 0
    people: bool = True
    share: float = 0.1


def queries(world: World, rng: np.random.Generator) -> Iterator[LiveQuery]:
    """Yield queries without end."""
    number = 0
    while True:
        swing = 1 + world.season * np.sin(2 * np.pi * number / 5000)
        cluster, answerable = int(rng.integers(1 << 40)), rng.random() >= world.wrong
        lost = bool(answerable and rng.random() < world.loss * swing)
        labels = Labels(lost, bool(answerable), not answerable)
        high = lost if rng.random() < world.informed else rng.random() < 0.3
        guess = world.loss * (2.5 if high else 0.36)
        prediction = Prediction(float(guess), 0.95, 0.2 if labels.wrong and rng.random() < world.informed else 0.04)
        for _ in range(int(rng.geometric(1 / world.burst))):
            yield LiveQuery(cluster, labels, prediction)
            number += 1


def judge_by_model(labels: Labels, rng: np.random.Generator) -> Labels:
    """Return labels of which each is wrong with a probability of .15."""
    return Labels(*(bool(label) ^ bool(rng.random() >= _RIGHT) for label in labels))


class Stream:
    """A stream of queries in one world, with the bounds computed from its judgements."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, np.random.default_rng(seed)
        self.loss = LiveLoss(DELTA, model=world.model)
        self._queries = queries(world, self.rng)
        self._sampler, self._second = Sampler(world.share), Sampler(0.3)
        self._waiting: list[tuple[Draw, Labels, Labels | None]] = []
        self.served = 0
        for _ in range(world.known):
            labels = next(self._queries).labels
            draw = Draw(int(self.rng.integers(1 << 40)), 1.0, (), ())
            self.loss.measure(draw, labels, judge_by_model(labels, self.rng))

    def judged(self) -> Iterator[None]:
        """Serve queries; yields after every judgement that counts."""
        for query in self._queries:
            self.served += 1
            drawn = self._draw(query)
            if drawn is None:
                continue
            if self.world.late:
                self._waiting.append(drawn)
                if len(self._waiting) < _DELAYED:
                    continue
                drawn = self._waiting.pop(int(self.rng.integers(len(self._waiting))))
            draw, labels, other = drawn
            self.loss.add(judged_draw(draw, labels, model=False, other=other))
            yield

    def _draw(self, query: LiveQuery) -> tuple[Draw, Labels, Labels | None] | None:
        propensity = self._sampler.propensity(query.prediction.interest)
        draw = self._sampler.offer(query.cluster, query.prediction.outcomes, propensity, self.rng.random())
        if draw is None or not self.world.model:
            return None if draw is None else (draw, query.labels, None)
        said = judge_by_model(query.labels, self.rng)
        self.loss.add(judged_draw(draw, said, model=True))
        if not self.world.people:
            return None
        prediction = by_model(said, DELTA)
        second = self._second.propensity(prediction.interest)
        drawn = self._second.offer(query.cluster, prediction.outcomes, second, self.rng.random(), draw.scale)
        return None if drawn is None else (drawn, query.labels, said)


def _holds(interval: ShareBounds, truth: float) -> bool:
    return interval.lower <= truth <= interval.upper


def covered(world: World, seed: int, judgements: int = 400) -> Sequence[bool]:
    """Return whether the bounds of one stream hold at all times: of loss and wrong answers, since the start and recent.

    Without people's judgements, as many queries as they would have judged are judged by the model.
    """
    stream, held = Stream(world, seed), [True] * 4
    for number, _ in enumerate(stream.judged(), 1):
        if number % _EVERY == 0:
            loss = stream.loss
            bounds = [
                figure(recent=recent) for figure in (loss.loss, loss.wrongly_answered) for recent in (False, True)
            ]
            truth = (world.loss, world.loss, world.wrong, world.wrong)
            held = [was and _holds(*pair) for was, pair in zip(held, zip(bounds, truth, strict=True), strict=True)]
        if number >= judgements:
            break
    return held


def judgements_until_shown(world: World, seed: int, most: int = 800) -> int:
    """Return the number of human judgements until the lower bound exceeds δ."""
    stream = Stream(world, seed)
    for number, _ in enumerate(stream.judged(), 1):
        if (number % _EVERY == 0 and stream.loss.lower >= DELTA) or number >= most:
            return number
    return most


def pages(world: World, seed: int, queries_served: int = 30_000) -> bool:
    """Return whether a stream raises the page although its loss is within δ."""
    stream = Stream(world, seed)
    for number, _ in enumerate(stream.judged(), 1):
        if number % _EVERY == 0 and stream.loss.lower >= DELTA:
            return True
        if stream.served >= queries_served:
            break
    return False


COVERAGE = (
    World("independent"),
    World("bursts of 10", burst=10),
    World("late", late=True),
    World("rare losses, late, bursts", loss=0.01, burst=5, late=True),
    World("a model that is wrong in .15", model=True, share=0.3),
    World("such a model, bursts, late", model=True, share=0.3, burst=5, late=True, known=200),
)
HARMLESS = (
    World("bursts of 50", burst=50, share=0.02),
    World("seasons", loss=0.035, season=0.4, share=0.02),
    World("other topics, at δ", informed=0.0, share=0.02),
)
HARMFUL = (
    World("people", loss=2 * DELTA, wrong=0.0),
    World("people, a model directs", loss=2 * DELTA, wrong=0.0, model=True, share=0.3),
)


def main(streams: int) -> None:
    """Print one line a world."""
    for world in HARMFUL:
        _say("judgements until a loss of 2 δ is shown, median", world, streams // 10, judgements_until_shown, np.median)
    for world in HARMLESS:
        _say("share of false pages", world, streams // 5, pages, np.mean)
    for world in COVERAGE:
        _say("least coverage of four bounds, at all times", world, streams, covered, _least)


def _least(held: Sequence[Sequence[bool]]) -> float:
    return float(np.mean(held, axis=0).min())


def _say(
    title: str, world: World, streams: int, figure: Callable[[World, int], Any], total: Callable[[Any], Any]
) -> None:
    value = total([figure(world, seed) for seed in range(streams)])
    sys.stdout.write(f"{title}; {world.name}; {streams} streams: {value:.3f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
