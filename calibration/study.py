"""Everything a calibration finds out about a data set, from its vectors to the rule in force; nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.certify import Abstaining, abstain, of_labelled, of_off_topic
from taugate.calibration.abstention.choose import Corpus, Side
from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.metrics.bootstrap import Draw, Parts, Split
from taugate.calibration.metrics.clusters import Labels, Units, clusters
from taugate.calibration.metrics.isotropy import Isotropy, isotropy
from taugate.calibration.metrics.measure import measure
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.scored import Scored
from taugate.calibration.progress import Stopwatch
from taugate.calibration.query_set.measure import measure_query_set
from taugate.calibration.relevance.estimate import Estimated, Evidence, estimate, relevance_record
from taugate.calibration.risk import words
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.contenders import contender
from taugate.calibration.threshold.decide import alternatives, decide
from taugate.calibration.threshold.strata import Strata, StrataStudy
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.build import AnyIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.evidence import Alternative, RelevanceRecord, StrataRecord
from taugate.retrieval.release.manifest import MetricsRecord, PolicyRecord
from taugate.retrieval.release.records import NoAnswerRecord, QuerySetRecord
from taugate.retrieval.vectors.similarity import Float32

# Equal vectors have similarities that differ by some units in the last place of float32, 6e-8 each near 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Part:
    """Some of the answerable queries, by position, with the random choices made for them.

    random_scores: S_rand, (q,) float32.
    """

    members: NDArray[np.int64]
    draw: Draw
    random_scores: Float32


@dataclass(frozen=True)
class Findings:
    """What was found.

    parts: "calibration" and, with a holdout, "heldout"; roles: which of the former fit, help to choose, certify;
    units: what counts as one draw; strata: None where none were asked for; abstention: None where no query is refused
    as a whole; no_answer: how many queries without an answer get one.
    """

    index: AnyIndex
    scored: Scored
    parts: dict[str, Part]
    roles: Parts | None
    estimated: Estimated | None
    policy: PolicyRecord
    metrics: dict[str, MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None
    isotropy: Isotropy
    query_set: QuerySetRecord
    units: Units
    strata: StrataRecord | None
    abstention: Abstaining | None
    no_answer: NoAnswerRecord

    @property
    def threshold(self) -> np.float32 | None:
        """τ as it is compared."""
        return None if self.policy.tau is None else np.float32(self.policy.tau)


def study(
    dataset: Dataset, encoded: EncodedDataset, index: AnyIndex, settings: CalibrationSettings, watch: Stopwatch
) -> Findings:
    """Search, split, fit, decide, measure. Raises InputError where the data cannot bear what is asked."""
    units = Units.of(clusters(dataset.answerable))
    with watch.stage("search"):
        judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, settings.k)
        unanswerable = index.search(encoded.unanswerable, settings.k)
        parts = _parts(units, encoded.answerable, index, settings)
        _check_scores(judged, parts)
    calibration = parts["calibration"]
    members = calibration.members
    with watch.stage("model"):
        roles = Parts.asked(members, units, settings.seed)
        no_answer = (unanswerable, encoded.unanswerable)
        estimated = (
            estimate(judged, encoded.answerable, no_answer, roles, encoded.documents, encoded.lengths)
            if roles
            else None
        )
        relevance = (estimated.answerable, estimated.unanswerable) if estimated else (None, None)
    labels = clusters(dataset.answerable + dataset.unanswerable)
    with watch.stage("abstention"):
        abstention = _abstain(dataset, encoded, (judged.top, unanswerable), labels, members, settings)
        answering = None if abstention is None else abstention.answering
        scored = Scored(judged, unanswerable, relevance[0], relevance[1], answering)
    with watch.stage("query set"):
        random_scores = np.concatenate([part.random_scores for part in parts.values()])
        worth = measure_query_set(dataset.answerable, judged, random_scores, encoded.documents, settings.seed)
        spread = isotropy(encoded.documents)
    with watch.stage("threshold"):
        evidence = Evidence(scored, members, calibration.draw.rows, roles, estimated, units, settings.seed)
        policy, strata = decide(settings.rule, evidence), None
        if settings.rule.strata is not None and policy.tau is not None:
            taken = contender(settings.rule, policy.kind, evidence)
            rule = next(taken.rule.split_by_loss())
            asked = StrataStudy(dataset, encoded.answerable, index, evidence, taken.queries, policy.kind, rule)
            strata = asked.certify(Strata.of(dataset, settings.rule.strata))
            policy = asked.lowered(policy, strata)
        if abstention is not None and policy.certificates and policy.tau is not None:
            policy = policy.model_copy(update={"guarantee": f"{policy.guarantee} {words.WITHOUT_REFUSALS}"})
        others = alternatives(settings.rule, evidence, _last(parts, roles))
        metrics = {name: _measure(part, scored, policy, settings) for name, part in parts.items()}
    heldout = parts["heldout"].members if "heldout" in parts else None
    reliability = relevance_record(evidence, heldout)
    if len(unanswerable):
        still_answered = of_labelled(scored, policy, Units.of(labels[len(judged) :]), abstention)
    else:
        model, off_topic = None if estimated is None else estimated.relevance, encoded.off_topic
        still_answered = of_off_topic(index.search(off_topic, settings.k), off_topic, model, policy)
    return Findings(
        index=index,
        scored=scored,
        parts=parts,
        roles=roles,
        estimated=estimated,
        policy=policy,
        metrics=metrics,
        alternatives=others,
        relevance=reliability,
        isotropy=spread,
        query_set=worth,
        units=units,
        strata=strata,
        abstention=abstention,
        no_answer=still_answered,
    )


def _abstain(
    dataset: Dataset,
    encoded: EncodedDataset,
    found: tuple[TopK, TopK],
    labels: Labels,
    calibration: NDArray[np.int64],
    settings: CalibrationSettings,
) -> Abstaining | None:
    """The abstention policy, if one is asked for; found: of answerable and unanswerable queries; labels: of both."""
    if settings.abstention is None:
        return None
    answerable = len(dataset.answerable)
    return abstain(
        settings.abstention,
        Side([query.text for query in dataset.answerable], encoded.answerable, found[0], labels[:answerable]),
        Side([query.text for query in dataset.unanswerable], encoded.unanswerable, found[1], labels[answerable:]),
        Corpus(encoded.documents, [document.encoded_text for document in dataset.documents]),
        calibration,
        settings.seed,
    )


def _last(parts: Mapping[str, Part], roles: Parts | None) -> NDArray[np.int64]:
    """The queries that had the least say: held-out ones, else those that the model was not fitted on."""
    if "heldout" in parts:
        return parts["heldout"].members
    return parts["calibration"].members if roles is None else roles.rest


def _check_scores(judged: JudgedQueries, parts: Mapping[str, Part]) -> None:
    scores = np.concatenate([judged.top.scores.ravel(), *(part.random_scores for part in parts.values())])
    if np.ptp(scores) <= _ROUNDING:
        raise InputError(
            f"every similarity is {scores[0]:.6g}: no threshold can tell documents apart; the encoder gives all "
            "texts the same vector, or all texts are the same"
        )


def _parts(units: Units, vectors: Float32, index: AnyIndex, settings: CalibrationSettings) -> dict[str, Part]:
    """Split the queries and draw for each part, as docs/calibration.md has it; the held-out part is drawn last."""
    rng = np.random.default_rng(settings.seed)
    split = Split.asked(rng, units, settings)
    parts = {}
    for name, members in (("calibration", split.calibration), ("heldout", split.heldout)):
        if len(members):
            draw = Draw.of(rng, units.take(members), len(index), settings)
            random_scores = index.score(vectors[members], draw.random_documents[:, None])[:, 0]
            parts[name] = Part(members, draw, random_scores)
    return parts


def _measure(part: Part, scored: Scored, policy: PolicyRecord, settings: CalibrationSettings) -> MetricsRecord:
    tau = None if policy.tau is None else np.float32(policy.tau)
    queries = scored.take(part.members)
    return measure(queries, part.random_scores, part.draw, policy.kind, tau, settings.overlap_percentile)
