"""The comparison of the thresholds paper (Tables 2, 4 and 6): base, PT, FT, PT-FT and merged encoders on one domain."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.adapt.changed_sets import fewer_documents
from benchmarks.adapt.embedded import embed
from benchmarks.adapt.paper_variants import Variants
from benchmarks.adapt.trials import AdaptPlan
from benchmarks.markdown import table
from benchmarks.paper_figures import HEADER, PaperFigures
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.calibration.gate.baseline import SearchTrial
from taugate.calibration.metrics.clusters import Labels, clusters
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, read_dataset
from taugate.retrieval.release.evidence import Interval

HEADING = "The paper's comparison: pre-trained, fine-tuned, merged"
DOMAIN, GENERAL = "squadshifts_reddit", "squad_v2_dev"  # SQuAD is the paper's domain-agnostic set, too
_BOOTSTRAPS = 2000
_DRAWN = 100  # l, queries in each of the paper's bootstraps


@dataclass(frozen=True)
class Outcomes:
    """What one encoder finds.

    Attributes:
        figures: As the paper prints them.
        accuracy: (q,) float64, @5 and @10, by query.
        ndcg: (q,) float64, @5 and @10, by query.
    """

    figures: PaperFigures
    accuracy: NDArray[np.float64]
    ndcg: NDArray[np.float64]


@dataclass(frozen=True)
class JudgedSet:
    """The queries of one data set, with what each encoder finds for them.

    Attributes:
        labels: (q,) clusters that share documents.
    """

    labels: Labels
    found: dict[str, Outcomes]

    @classmethod
    def measure(cls, dataset: Dataset, queries: list[LabelledQuery], encoders: dict[str, str]) -> "JudgedSet":
        """Search the whole corpus with each encoder."""
        settings, parents = CalibrationSettings(holdout=0), dataset.documents.parents
        found = {}
        for name, encoder in encoders.items():
            documents = embed(encoder, [each.encoded_text for each in dataset.documents], "document")
            vectors = embed(encoder, [query.text for query in queries], "query")
            trial = SearchTrial.build(queries, vectors, documents, settings.k, parents).outcomes()
            figures = PaperFigures.of(queries, vectors, documents, settings, parents)
            found[name] = Outcomes(figures, trial.accuracy, trial.ndcg)
        return cls(clusters(queries), found)

    def difference(self, metric: str, better: str, worse: str) -> Interval:
        """Bootstrap the difference of two encoders in a mean, in points, by whole documents.

        Args:
            metric: Accuracy, ndcg, or width, that of the paper's 95 % interval of accuracy.
        """
        one, other = (self._resampled(metric, name) for name in (better, worse))
        return Interval.of_bootstraps(100 * (one - other))

    def _resampled(self, metric: str, name: str) -> NDArray[np.float64]:
        outcomes = self.found[name]
        per_query = outcomes.ndcg if metric == "ndcg" else outcomes.accuracy
        sizes, sums = np.bincount(self.labels), np.bincount(self.labels, per_query)
        rng = np.random.default_rng(0)  # the same documents for every encoder
        drawn = rng.integers(0, len(sizes), size=(_BOOTSTRAPS, len(sizes)))
        means: NDArray[np.float64] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
        return 2 * 1.96 * np.sqrt(means * (1 - means) / _DRAWN) if metric == "width" else means


# What the paper says: words, set, metric, and the two encoders, of which the first should have the higher value.
CLAIMS = (
    ("Fine-tuning raises accuracy", DOMAIN, "accuracy", "FT", "base"),
    ("Fine-tuning raises NDCG", DOMAIN, "ndcg", "FT", "base"),
    ("Pre-training alone lowers accuracy", DOMAIN, "accuracy", "base", "PT"),
    ("Pre-training alone lowers NDCG", DOMAIN, "ndcg", "base", "PT"),
    ("Fine-tuning narrows the interval", DOMAIN, "width", "base", "FT"),
    ("Pre-training before it narrows it further", DOMAIN, "width", "FT", "PT-FT"),
    ("Fine-tuning costs accuracy on general text", GENERAL, "accuracy", "base", "FT"),
    ("Pre-training and fine-tuning cost it too", GENERAL, "accuracy", "base", "PT-FT"),
    ("Merging restores it after fine-tuning", GENERAL, "accuracy", "FT, merged", "FT"),
    ("Merging restores it after both", GENERAL, "accuracy", "PT-FT, merged", "PT-FT"),
)


def section(plan: AdaptPlan) -> str:
    """Train the encoders, measure them on the domain and on general text, and judge what the paper says of them."""
    with tempfile.TemporaryDirectory(prefix="taugate-paper-") as work:
        domain, general = (_read(plan, name, Path(work)) for name in (DOMAIN, GENERAL))
        queries = AdaptationQueries.collect(domain, domain, plan.seed)
        encoders, seconds = Variants(domain, queries, plan.steps, plan.seed).make()
        sets = {
            DOMAIN: JudgedSet.measure(domain, queries.unseen, encoders),
            GENERAL: JudgedSet.measure(general, general.answerable, encoders),
        }
    tables = "\n\n".join(f"{_described(name, found)}\n\n{_table(found)}" for name, found in sets.items())
    return f"{_trained(plan, queries, seconds)}\n\n{tables}\n\n{_claims(sets)}"


def _read(plan: AdaptPlan, name: str, work: Path) -> Dataset:
    """Read a data set, or a sample of it where only some documents are asked for."""
    folder, spool = plan.data / name, work / f"{name}.spool"
    spool.mkdir()
    if plan.documents:
        folder = work / name
        (folder / "qrels").mkdir(parents=True)
        fewer_documents(plan.data / name, folder, plan.documents)
    return read_dataset(folder, "test", spool)


def _trained(plan: AdaptPlan, queries: AdaptationQueries, seconds: dict[str, float]) -> str:
    took = "; ".join(f"{name} {each / 60:.0f} minutes" for name, each in seconds.items()) or "made by an earlier run"
    return f"""\
Each training has {plan.steps} steps of 32: of sentences for PT, of triplets for FT. PT-FT has both. Products are computed in
bfloat16. It learns from {len(queries.train):,} queries and
{len(queries.parts.passages(0)):,} passages, and is judged by {len(queries.unseen):,} queries about other passages. Training: {took}, at a load average of {os.getloadavg()[2]:.0f}.
Merged encoders have the mean of their weights and the base's. Nothing here is chosen by a query.

{GENERAL} is general in its topics only. Its questions were written as those of {DOMAIN} were, by people who saw the passage, so what
fine-tuning learns of such questions helps on both. The [everyday questions](../adaptation.md#forgetting) are of another kind."""


def _described(name: str, found: JudgedSet) -> str:
    kind = "the domain, unseen queries" if name == DOMAIN else "general text"
    return (
        f"**{name}**, {kind}: {len(found.labels):,}, K = 5, 500 bootstraps of {_DRAWN} queries, with 95 % intervals; all but τ "
        "in percent."
    )


def _table(found: JudgedSet) -> str:
    header = ["encoder", *HEADER[:1], "NDCG@10, all queries", *HEADER[1:]]
    rows = []
    for name, each in found.found.items():
        first, *others = each.figures.row()
        rows.append([name, first, f"{100 * each.ndcg.mean():.1f}", *others])
    return table(header, rows)


def _claims(sets: dict[str, JudgedSet]) -> str:
    rows = []
    for words, name, metric, more, less in CLAIMS:
        found = sets[name].difference(metric, more, less)
        shown = f"{found.mean:+.1f} ({found.lower:+.1f} to {found.upper:+.1f})"
        rows.append([words, name, f"{more} − {less}", shown, verdict(found)])
    return f"""\
What the paper says of them, each as a difference in points that it wants above 0: of accuracy@5, of NDCG@10, or of the width of the interval
of accuracy. The 95 % intervals draw whole documents. The width is that of the mean of {_DRAWN} queries, 3.92·√(a(1 − a)/{_DRAWN}): a bootstrap of so
many queries has no other, so that a higher accuracy *a* above one half alone makes it narrower.

{table(["the paper", "set", "difference", "points", ""], rows)}"""


def verdict(found: Interval) -> str:
    """Say whether a difference that should be above 0 is.

    Args:
        found: With its 95 % interval.
    """
    if found.lower > 0:
        return "confirmed"
    return "**refuted**" if found.upper < 0 else "not shown"
