"""Adaptations of one data set under several seeds, and the table of what they gained."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from benchmarks.markdown import Target, share, table
from taugate.adaptation.job import learn_and_judge
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.settings import AdaptationSettings
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import CORPUS, QUERIES, read_dataset
from taugate.ingestion.dataset.judgements import HEADER, qrels_of
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord

STEPS = 64  # the most that a budget allows; a minute is enough for them on two free cores


@dataclass(frozen=True)
class AdaptPlan:
    """The data and the counts of one run.

    data: the folder with the public data sets; splits: seeds tried of each; seed: of the first.
    """

    data: Path
    splits: int
    seed: int


@dataclass(frozen=True)
class Trial:
    """One adaptation; record: of it; seconds: of the processor that it took, encoding of new texts included."""

    record: AdaptationRecord
    seconds: float

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
) -> list[Trial]:
    """Adapt to a data set once for each seed.

    plan: of the run; name: of the data set, whose split test is divided by document; crops: learn from crops in place
    of labels; encoder: the base; change: writes a changed copy of the data set, from its folder to another.
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
            settings, began = AdaptationSettings(seed=seed), time.process_time()
            adapted = learn_and_judge(dataset, queries, base, settings, lambda _: None, Stopwatch(), STEPS)
            found.append(Trial(adapted.record, time.process_time() - began))
            gains = [found[-1].gain(recipe) for recipe in ("whitening", "adapter")]
            print(name, seed, gains, adapted.record.admitted, f"{found[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def gain_target(name: str, found: Sequence[Trial], at_least: float) -> Target:
    """Compare the mean gain of the recipes that were chosen with a target.

    name: of the row; found: its trials; at_least: points of NDCG@10.
    """
    gains = [each.gain(each.record.recipe) or 0.0 for each in found]
    return Target(f"{name}, points of NDCG@10", statistics.mean(gains), at_least)


def by_paper(source: Path, target: Path) -> None:
    """Copy a corpus of chunks, and name the paper of each, which its id begins with, as its parent."""
    lines = (source / CORPUS).read_bytes().splitlines()
    records = [orjson.loads(line) for line in lines]
    written = (orjson.dumps(each | {"parent": each["_id"].split("_")[0]}) for each in records)
    (target / CORPUS).write_bytes(b"\n".join(written) + b"\n")
    for name in (QUERIES, qrels_of("test")):
        (target / name).write_bytes((source / name).read_bytes())


def shuffled_labels(source: Path, target: Path) -> None:
    """Copy a data set, and give the labels of each query to another one."""
    for name in (CORPUS, QUERIES):
        (target / name).write_bytes((source / name).read_bytes())
    rows = [line.split("\t") for line in (source / qrels_of("test")).read_text().splitlines()[1:]]
    asked = [*dict.fromkeys(row[0] for row in rows)]
    others = dict(zip(asked, np.random.default_rng(0).permutation(asked).tolist(), strict=True))
    lines = ["\t".join([others[query], *rest]) for query, *rest in rows]
    (target / qrels_of("test")).write_text("\n".join([HEADER, *lines]) + "\n")


def gains_table(rows: Sequence[tuple[str, Sequence[Trial]]]) -> str:
    """Format the table of gains, a row for each data set with its trials."""
    header = [
        "data set",
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
        f"{statistics.mean(trial.record.pairs.unseen for trial in found):,.0f}",
        f"{statistics.mean(units):,.0f}",
        share(statistics.mean(each.ndcg.baseline for each in gates)),
        _points([trial.gain("whitening") for trial in found]),
        _points([trial.gain("adapter") for trial in found]),
        f"{sum(trial.record.admitted for trial in found)} of {len(found)}",
        f"{statistics.mean(trial.seconds for trial in found):.0f}",
    ]


def _points(gains: Sequence[float | None]) -> str:
    known = [gain for gain in gains if gain is not None]
    if not known:
        return "–"
    return f"{statistics.mean(known):+.1f} ({min(known):+.1f} to {max(known):+.1f})"
