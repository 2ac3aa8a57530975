"""Adaptations of one data set under several seeds, and the table of what they gained."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import Target, share, table
from taugate.adaptation.job import Workplace, learn_and_judge
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.settings import AdaptationSettings
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord

# Rates, temperature and the rule for the exponent were chosen on these; no other set had a say in anything.
_CHOSEN_ON = frozenset({"covidqa_chunks", "squadshifts_reddit", "cosqa"})
STEPS = 64  # the most that a budget allows; a minute is enough for them on two free cores


@dataclass(frozen=True)
class AdaptPlan:
    """The data and the counts of one run.

    Attributes:
        data: The folder with the public data sets.
        splits: Seeds tried of each.
        seed: Of the first.
        minutes: Of the long budget.
        counted: Steps of each of its recipes in place of the minutes, 0 for the minutes.
        runs: Adaptations whose truth is known.
        questions: Documents that a language model is asked about.
        steps: Of each training of the paper's comparison.
        documents: Passages of its sets, 0 for all.
    """

    data: Path
    splits: int
    seed: int
    minutes: int
    counted: int
    runs: int
    questions: int
    steps: int
    documents: int


@dataclass(frozen=True)
class Trial:
    """One adaptation.

    Attributes:
        record: Of it.
        seconds: Of the processor that it took, encoding included.
        minutes: By the clock.
    """

    record: AdaptationRecord
    seconds: float
    minutes: float

    def gain(self, recipe: str) -> float | None:
        """Return the gain of a recipe in points of NDCG@10, of the average unseen query; None where it was not tried."""
        found = [each.ndcg for each in self.record.gate if each.candidate == recipe]
        return 100 * (found[0].candidate - found[0].baseline) if found else None


def trials(
    plan: AdaptPlan,
    name: str,
    *,
    crops: bool = False,
    encoder: str = DEFAULT_ENCODER,
    change: Callable[[Path, Path], None] | None = None,
    budget: str | None = None,
) -> list[Trial]:
    """Adapt to a data set once for each seed.

    Args:
        plan: Of the run.
        name: Of the data set, whose split test is divided by document.
        crops: Learn from crops in place of labels.
        encoder: The base.
        change: Writes a changed copy of the data set, from its folder to another.
        budget: For every recipe, as --budget takes it; None for linear maps alone, with STEPS.
    """
    base = OnnxEncoder.load(exported_encoder(encoder))
    found = []
    for seed in range(plan.seed, plan.seed + plan.splits):
        with tempfile.TemporaryDirectory(prefix="taugate-adapt-") as work:
            folder, spool = plan.data / name, Path(work, "spool")
            spool.mkdir()
            if change is not None:
                folder = Path(work, name)
                (folder / "qrels").mkdir(parents=True)
                change(plan.data / name, folder)
            dataset = read_dataset(folder, "test", spool)
            queries = AdaptationQueries.collect(dataset, None if crops else dataset, seed)
            settings = AdaptationSettings(seed=seed) if budget is None else AdaptationSettings(seed=seed, budget=budget)
            place = None if budget is None else Workplace(encoder, Path(work, "work"))
            steps = STEPS if budget is None else None
            processor, clock = time.process_time(), time.perf_counter()
            adapted = learn_and_judge(dataset, queries, base, settings, lambda _: None, Stopwatch(), steps, place)
            taken = time.process_time() - processor, (time.perf_counter() - clock) / 60
            found.append(Trial(adapted.record, *taken))
            gains = {each.candidate: points([found[-1].gain(each.candidate)]) for each in adapted.record.gate}
            print(name, seed, gains, adapted.record.admitted, f"{found[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def gain_target(name: str, found: Sequence[Trial], at_least: float) -> Target:
    """Compare the mean gain of the recipes that were chosen with a target.

    Args:
        name: Of the row.
        found: Its trials.
        at_least: Points of NDCG@10.
    """
    gains = [each.gain(each.record.recipe) or 0.0 for each in found]
    return Target(f"{name}, points of NDCG@10", statistics.mean(gains), at_least)


def gains_table(rows: Sequence[tuple[str, Sequence[Trial]]]) -> str:
    """Format the table of gains, a row for each data set with its trials."""
    header = [
        "data set",
        "chosen on",
        "unseen queries",
        "units",
        "base",
        "whitening",
        "whitening and adapter",
        "admitted",
        "CPU seconds",
    ]
    return table(header, [_row(name, found) for name, found in rows])


def _row(name: str, found: Sequence[Trial]) -> list[object]:
    gates = [trial.record.gate[0] for trial in found]
    units = [each.evidence.units for each in gates if each.evidence is not None]
    return [
        name,
        "yes" if name.split(",", maxsplit=1)[0] in _CHOSEN_ON else "**no**",
        f"{statistics.mean(trial.record.pairs.unseen for trial in found):,.0f}",
        f"{statistics.mean(units):,.0f}",
        share(statistics.mean(each.ndcg.baseline for each in gates)),
        points([trial.gain("whitening") for trial in found]),
        points([trial.gain("adapter") for trial in found]),
        f"{sum(trial.record.admitted for trial in found)} of {len(found)}",
        f"{statistics.mean(trial.seconds for trial in found):.0f}",
    ]


def chosen_on(name: str) -> str:
    """Say whether something was chosen on a data set.

    Args:
        name: Of the row, which begins with that of the set.
    """
    return "yes" if name.partition(",")[0] in _CHOSEN_ON else "**no**"


def points(gains: Sequence[float | None]) -> str:
    """Format the mean of gains in points, with the lowest and the highest; a dash where nothing was measured."""
    known = [gain for gain in gains if gain is not None]
    if not known:
        return "–"
    return f"{statistics.mean(known):+.1f} ({min(known):+.1f} to {max(known):+.1f})"
