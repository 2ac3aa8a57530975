"""Measures several encoders on one data set, each by the calibration of its release, and says which one to choose.

Simultaneous confidence intervals of the differences between several encoders on the same queries. Whole documents are
drawn with replacement, with all their queries and for all encoders at once (`cluster_bootstrap`). The intervals are
those of the largest of the standardized differences ("max-t": Romano and Wolf, JASA 100, 2005). They hold jointly, also
for an encoder that is the best on these queries by luck, because every pair is among them. Bonferroni counts pairs as
if they had nothing in common; its intervals are about 3 % wider for four encoders (150 documents with 1 to 4 queries).

A bootstrap of queries that two encoders answer alike says that there is no difference at all. So no interval is
narrower than what the queries can exclude if nothing changes (`min_detectable_loss`).

The rule is the recommendation of the thresholds paper (§5.1): accuracies come with intervals, a threshold drops what it
can without a loss, COE and ROE describe how an encoder will do on unseen queries, and isotropy says nothing. The paper
compares intervals of single encoders; those of differences are narrower, because the queries are the same.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.comparison.measures import (
    EncoderMeasures,
    ParaphrasedQueries,
    encode_with,
    general_set,
    measure_encoder,
)
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.job.calibration import CalibrationRequest, run_stages
from taugate.calibration.job.release_stages import Calibration
from taugate.calibration.progress import Job, percent
from taugate.calibration.settings import CalibrationSettings
from taugate.evidence.acceptance import RankingOutcomes
from taugate.evidence.clusters import PerQuery, SamplingUnits
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.policy.arrays import dense_of, require_in_memory
from taugate.policy.names import Metric
from taugate.release.encoder import FILES, Role
from taugate.release.evidence import Interval, IsotropyRecord
from taugate.release.measures import ForgettingRecord
from taugate.release.names import METHODS
from taugate.release.outcome_records import MetricsRecord
from taugate.retrieval.encoder.encoder import ExportedEncoder

BOOTSTRAPS = 5000  # the 95th percentile of the largest difference is then known to about one part in a hundred
_AT_ONCE = 250  # bootstraps whose draws are in memory together
_STREAM = 7  # random stream of the seed

CONFIDENCE = 0.95
_FASTER = 1.2  # as in acceptance/cheaper_search.py: more than the noise of timings on a busy machine

MIN_ENCODERS = 3  # two points always correlate perfectly

_PAIRS = (
    ("accuracy", "COE"),
    ("accuracy", "ROE"),
    ("accuracy", "τ"),
    ("τ", "ROE"),
    ("accuracy", "I_A"),
    ("accuracy", "I_B"),
    ("accuracy", "Δ, relative"),
    ("accuracy", "familiarity"),
    ("accuracy", "β"),
    ("accuracy", "everyday NDCG@10"),
)


def simultaneous_intervals(
    differences: Sequence[PerQuery], units: SamplingUnits, confidence: float, seed: int, bootstraps: int = BOOTSTRAPS
) -> list[Interval]:
    """Return intervals of the mean differences that all hold together with the confidence.

    Args:
        differences: p differences, (q,) float64 of −1…1 each, of the same queries.
    """
    clusters = np.unique(units.clusters, return_inverse=True)[1]
    sizes = np.bincount(clusters).astype(np.float64)
    sums = np.column_stack([np.bincount(clusters, difference) for difference in differences])
    means = sums.sum(axis=0) / sizes.sum()
    rng = np.random.default_rng([seed, _STREAM])
    drawn_means = []
    for begin in range(0, bootstraps, _AT_ONCE):
        drawn = min(_AT_ONCE, bootstraps - begin)
        times = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=drawn).astype(np.float64)
        drawn_means.append(times @ sums / (times @ sizes)[:, None])
    deviations = np.concatenate(drawn_means) - means
    errors = deviations.std(axis=0)
    varies = errors > 0
    largest = np.abs(deviations[:, varies] / errors[varies]).max(axis=1, initial=0.0)
    narrowest = min_detectable_loss(units, 1 - (1 - confidence) / (2 * len(differences)))
    widths = np.maximum(float(np.quantile(largest, confidence)) * errors, narrowest)
    return [
        Interval(mean=float(mean), lower=max(-1.0, float(mean - width)), upper=min(1.0, float(mean + width)))
        for mean, width in zip(means, widths, strict=True)
    ]


@dataclass(frozen=True)
class EncoderCost:
    """What an encoder costs on this machine."""

    milliseconds: float | None  # median time to encode one query; None for vectors that come with the data set
    documents_per_second: float | None  # documents encoded in a batch; None for vectors
    bytes: int
    vector_bytes: int  # size of the documents' vectors, which are in memory beside it


@dataclass(frozen=True, eq=False)
class MeasuredEncoder:
    """An encoder, measured by a calibration that wrote no release."""

    name: str
    k: int
    accuracy: PerQuery  # (q,) 1 for each answerable query with a relevant document in its top-K, else 0
    ndcg: PerQuery  # (q,) NDCG@K of each answerable query
    metrics: MetricsRecord  # metrics of the held-out queries, or of the calibration queries without a holdout
    certified: bool
    lexical: float | None  # weight of the lexical part of the score; None without one
    cost: EncoderCost
    isotropy: IsotropyRecord
    # τ(ψ) of the papers' rule, whether or not that is the policy; None if there is none
    papers_tau: float | None = None
    measures: EncoderMeasures | None = None  # the papers' measures; None if they were not requested
    everyday: RankingOutcomes | None = None  # results of the general set; None without measures of texts

    def mean(self, metric: Metric) -> float:
        """Return the mean of a metric over all answerable queries."""
        return float(getattr(self, metric).mean())

    @property
    def kept(self) -> float | None:
        """Share of results that the threshold keeps on unseen queries; None if no threshold was certified."""
        return self.metrics.kept_fraction if self.certified else None


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two encoders, `first` − `second`, with simultaneous intervals."""

    first: str
    second: str
    accuracy: Interval
    ndcg: Interval
    # What `first` forgot or knows beyond `second`, on everyday questions; None without measures of texts
    everyday: ForgettingRecord | None = None


@dataclass(frozen=True)
class EncoderComparison:
    """The comparison of several encoders."""

    encoders: list[MeasuredEncoder]  # the encoders, the best first
    differences: list[PairedDifference]  # differences of all pairs; the better one is first
    metric: Metric
    margin: float  # loss of the metric that a cheaper encoder may have
    choice: str
    sentence: str

    @classmethod
    def of(
        cls, encoders: Sequence[MeasuredEncoder], units: SamplingUnits, metric: Metric, margin: float, seed: int
    ) -> "EncoderComparison":
        """Compare encoders that were measured on the same queries."""
        other: Metric = "ndcg" if metric == "accuracy" else "accuracy"
        ranked = sorted(encoders, key=lambda encoder: (-encoder.mean(metric), -encoder.mean(other)))
        pairs = [*combinations(ranked, 2)]
        values = [getattr(first, name) - getattr(second, name) for name in (metric, other) for first, second in pairs]
        intervals = simultaneous_intervals(values, units, CONFIDENCE, seed)
        decisive, further = intervals[: len(pairs)], intervals[len(pairs) :]
        differences = [
            PairedDifference(
                first.name, second.name, **{metric: deciding, other: also}, everyday=_everyday(first, second)
            )
            for (first, second), deciding, also in zip(pairs, decisive, further, strict=True)
        ]
        behind = decisive[: len(ranked) - 1]  # of the best one and each of the others
        choice, sentence = _choose(ranked, behind, metric, margin, units)
        return cls(ranked, differences, metric, margin, choice.name, sentence)


def _choose(
    ranked: Sequence[MeasuredEncoder], behind: Sequence[Interval], metric: Metric, margin: float, units: SamplingUnits
) -> tuple[MeasuredEncoder, str]:
    """Return the cheapest encoder that is shown to be nearly as good as the best, or the best, and say why.

    Args:
        ranked: The encoders, the best first.
        behind: For each but the first, how much the best is better.
    """
    best, others = ranked[0], ranked[1:]
    name = f"{'NDCG' if metric == 'ndcg' else metric}@{best.k}"
    near = [encoder for encoder, interval in zip(others, behind, strict=True) if interval.upper <= margin]
    # Clearly faster than the best; what vectors cost, only their user knows.
    faster = (encoder for encoder in near if _FASTER * _milliseconds(encoder) <= _milliseconds(best) < math.inf)
    cheaper = min(faster, key=_milliseconds, default=None)
    if cheaper is not None:
        interval = behind[others.index(cheaper)]
        share = percent(_milliseconds(cheaper) / _milliseconds(best), 0)
        return cheaper, (
            f"Choose {cheaper.name}: its {name} is at most {_points(interval.upper)} points below that of {best.name}, "
            f"the best, and a query takes {share} of the time to encode ({percent(CONFIDENCE, 0)} confidence for all "
            f"differences together; a loss of {_points(margin)} points is allowed)."
        )
    if min(interval.lower for interval in behind) > 0:
        least = min(behind, key=lambda interval: interval.lower)
        return best, (
            f"Choose {best.name}: its {name} is higher than that of every other encoder, by {_points(least.lower)} "
            f"points or more ({percent(CONFIDENCE, 0)} confidence for all differences together)."
        )
    tied = {encoder.name: interval for encoder, interval in zip(others, behind, strict=True) if interval.lower <= 0}
    most = max(interval.upper for interval in tied.values())
    if most <= margin:
        return best, (
            f"Choose {best.name}: its {name} is the best, that of {_listed([*tied])} is at most {_points(most)} points "
            "below it, and none of these is clearly faster."
        )
    drawn = "documents with labelled queries" if units.unit == "document" else "labelled queries"
    return best, (
        f"Choose {best.name}, which has the best {name}, or label more queries: {units.count:,} {drawn} do not "
        f"show that it is better than {_listed([*tied])}, which may be up to {_points(most)} points worse."
    )


def _everyday(first: MeasuredEncoder, second: MeasuredEncoder) -> ForgettingRecord | None:
    after, before = first.everyday, second.everyday
    return None if after is None or before is None else general_set().compare(before, after)


def _milliseconds(encoder: MeasuredEncoder) -> float:
    return math.inf if encoder.cost.milliseconds is None else encoder.cost.milliseconds


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def correlations(encoders: Sequence[MeasuredEncoder]) -> dict[str, float | None]:
    """Correlate the measures of three or more encoders (thresholds paper §4, Table 3).

    A pair of measures is left out unless three encoders have both; its correlation is None if one of them is constant.
    """
    rows = [_row(encoder) for encoder in encoders]
    correlated = {}
    for x, y in _PAIRS:
        values = np.array([(row[x], row[y]) for row in rows if {x, y} <= row.keys()])
        if len(values) >= MIN_ENCODERS:
            constant = (np.ptp(values, axis=0) == 0).any()
            correlated[f"{x} and {y}"] = None if constant else float(np.corrcoef(values.T)[0, 1])
    return correlated


def _row(encoder: MeasuredEncoder) -> dict[str, float]:
    """Return the measures that an encoder has."""
    metrics, isotropy, measures = encoder.metrics, encoder.isotropy, encoder.measures
    row: dict[str, float | None] = {
        "accuracy": metrics.accuracy.mean,
        "COE": metrics.coe.mean,
        "ROE": None if metrics.roe is None else metrics.roe.mean,
        "τ": encoder.papers_tau,
        "I_A": isotropy.i_a,
        "I_B": isotropy.i_b,
    }
    if measures is not None:
        row |= {"Δ, relative": measures.relative_separation, "familiarity": measures.familiarity}
        row |= {"β": measures.decay, "everyday NDCG@10": measures.everyday}
    return {name: value for name, value in row.items() if value is not None}


# Queries timed one by one, and documents in a batch: some seconds for a large encoder. The shortest of a few times is
# that of a machine with nothing else to do.
_LONE, _BATCH, _TIMES = 32, 64, 3


def compare_encoders(
    data: str,
    encoders: Mapping[str, RequestedEncoder],
    settings: CalibrationSettings,
    margin: float,
    job: Job,
    *,
    measures: bool = False,
) -> EncoderComparison:
    """Measure encoders, and compare them.

    Args:
        encoders: Two or more encoders by the names that tell them apart.
        measures: Whether the papers' measures are taken as well, which takes some seconds an encoder.

    Raises:
        InputError: If the data set or the settings cannot be used.
        EncoderError: If an encoder cannot be loaded or exported.
    """
    measured, units = [], None
    for name, requested in encoders.items():
        job.describe("export", f"Prepared the encoder {name}")
        with tempfile.TemporaryDirectory(prefix="taugate-") as folder:
            spool = Path(folder) / "spool"
            spool.mkdir()
            request = CalibrationRequest.check(data, Path(folder) / "releases", requested, settings, job)
            calibration = run_stages(request, spool, job)
            measured.append(_measured(name, calibration, _measures(calibration) if measures else (None, None)))
            units = calibration.read.inputs.units
    if units is None:
        raise AssertionError("there is no encoder to compare")
    return EncoderComparison.of(measured, units, settings.rule.metric, margin, settings.seed)


def _measures(calibration: Calibration) -> tuple[EncoderMeasures, RankingOutcomes | None]:
    inputs, encoders, encoded = calibration.read.inputs, calibration.read.encoders, calibration.encoded.texts
    dataset, job, settings = inputs.dataset, inputs.job, inputs.settings
    vectors, documents = dense_of(encoded.answerable), require_in_memory(encoded.documents)
    trial = SearchTrial.build(dataset.answerable, vectors, documents, settings.k, dataset.parents)
    encode = None if dataset.vectors is not None else encode_with(encoders.queries, job, encoders.documents)
    with job.task("taking the papers' measures"):
        paraphrased = ParaphrasedQueries.write(dataset.answerable, settings.seed)
        return measure_encoder(trial, paraphrased, encode, settings.seed)


def _measured(
    name: str, calibration: Calibration, measures: tuple[EncoderMeasures | None, RankingOutcomes | None]
) -> MeasuredEncoder:
    inputs, decided, lexical = calibration.read.inputs, calibration.decided, calibration.accepted.search.lexical_part
    judged, dataset = calibration.studied.scored.judged, inputs.dataset
    queries = [query.text for query in dataset.answerable[:_LONE]]
    texts = [dataset.documents[row].encoded_text for row in range(min(_BATCH, len(dataset.documents)))]
    vectors = len(dataset.documents) * calibration.encoded.texts.documents.shape[1] * 4
    encoder, reads_texts = calibration.read.encoders.queries, dataset.vectors is None
    with inputs.job.task("timing the encoder"):
        cost = _cost(encoder, queries, texts, vectors) if reads_texts else EncoderCost(None, None, 0, vectors)
    manifest, policy = calibration.manifest(), decided.policy
    thresholds = {rule.method: rule.tau for rule in decided.alternatives} | {policy.method: policy.tau}
    return MeasuredEncoder(
        name=name,
        k=inputs.settings.k,
        accuracy=judged.accuracy(),
        ndcg=judged.ndcg(),
        metrics=decided.metrics.get("heldout", decided.metrics["calibration"]),
        certified=decided.policy.tau is not None,
        lexical=None if lexical is None else lexical.weight,
        cost=cost,
        isotropy=manifest.isotropy,
        papers_tau=next((tau for method, tau in thresholds.items() if METHODS[method].of_papers), None),
        measures=measures[0],
        everyday=measures[1],
    )


def _cost(encoder: ExportedEncoder, queries: Sequence[str], texts: Sequence[str], vectors: int) -> EncoderCost:
    times = _TIMES if encoder.config.endpoint is None else 1  # an endpoint may cost money
    encoder.encode(queries[:1], "query")  # the first call prepares the graph
    alone = [min(_seconds(encoder, [query], "query") for _ in range(times)) for query in queries]
    rate = len(texts) / min(_seconds(encoder, texts, "document") for _ in range(times))
    size = sum((encoder.folder / name).stat().st_size for name in FILES if (encoder.folder / name).is_file())
    return EncoderCost(1000 * statistics.median(alone), rate, size, vectors)


def _seconds(encoder: ExportedEncoder, texts: Sequence[str], role: Role) -> float:
    began = time.perf_counter()
    encoder.encode(texts, role)
    return time.perf_counter() - began
