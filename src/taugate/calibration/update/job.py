"""One update, from a newer corpus to a release; `update` shows the stages in order."""

import tempfile
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.encoding.changes import UNKNOWN, CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.corpus import EncodedDataset, query_texts
from taugate.calibration.encoding.outgoing import announce
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.encoding.token_vectors import EarlierTokens
from taugate.calibration.engines.stored import JOB_ACCESS, documents_of
from taugate.calibration.gate.accepted import AcceptedSearch
from taugate.calibration.job.reading import check_sizes
from taugate.calibration.job.reranking import (
    AcceptedSecondStage,
    known_pairs,
    study_first_stage,
    token_vectors_record,
)
from taugate.calibration.job.stages import CalibrationStages
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.progress import Job
from taugate.calibration.provisional.words import PROVISIONAL
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.settings.rules import CONFIDENCE, MAX_LOSS
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.settings.update import TESTED_AGAIN, UpdateSettings, kept_settings
from taugate.calibration.study.asked_again import LabelledEvidence
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.reranked import RerankedSearch
from taugate.calibration.update.acceptance import accept_index, release_encoders
from taugate.calibration.update.before import SecondStageBefore, first_stage_before
from taugate.calibration.update.check import ResultsBefore, ThresholdCheck, check_threshold
from taugate.calibration.update.vectors import encode_changes
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.people import read_people
from taugate.registry.lock import calibration_lock, lock_for_reading
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.engines.hybrid import collection_index
from taugate.retrieval.release.changed_documents import UpdateRecord, WithdrawnRecord
from taugate.retrieval.release.evidence import Interval, Record
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.asking import (
    all_withdrawn,
    ask_first_stage,
    ask_promises,
    inherited_calibration,
    stated,
)
from taugate.retrieval.release.promises.promise import StatedRecords
from taugate.retrieval.release.reader import load
from taugate.retrieval.rerank.late_interaction import LateInteraction


class CheckRecord(Record):
    """What the check of a current threshold on a newer corpus has shown.

    Attributes:
        release: Id of the release with the newer corpus and that threshold; empty if none was written.
        changes: Documents added, changed and removed.
        sentence: Whether τ still holds, with the figures.
        rule: The loss that is allowed, as the history of promotions words it.
        loss: Loss of accuracy or NDCG at τ.
        threshold_holds: Whether τ still holds.
        withdrawn: Promises that do not hold any more.
    """

    release: str
    changes: dict[str, int]
    sentence: str
    rule: str
    loss: Interval
    threshold_holds: bool
    withdrawn: list[WithdrawnRecord]

    @property
    def holds(self) -> bool:
        """Whether τ still holds, and every promise."""
        return self.threshold_holds and not self.withdrawn

    @property
    def finding(self) -> str:
        """What was found, as a clause."""
        if self.holds or not self.threshold_holds:
            return self.sentence
        withdrawn = ", ".join(f"{record.promise} ({record.reason})" for record in self.withdrawn)
        return f"not everything that was promised holds for these documents; withdrawn: {withdrawn}"


def update(
    data: Path, current: Path, settings: UpdateSettings, promotion: Promotion, job: Job, *, keep: bool
) -> CheckRecord | None:
    """Check whether the threshold and the promises of a release hold for a newer corpus, and write its release if so.

    The release keeps the encoder and the threshold. A directory has one calibration or update at a time.

    Args:
        data: A folder with the newer corpus and its labelled queries.
        current: Folder of the current release.
        settings: Settings of the check.
        promotion: The requested promotion.
        job: Reports progress and warnings, and times the stages.
        keep: Whether to write the release also if something does not hold, without what is withdrawn.

    Returns:
        None if nothing changed.

    Raises:
        InputError: If the data cannot be used; nothing has been written.
        EncoderError: If the encoder cannot be loaded; nothing has been written.
        EngineUnavailable: If the engine does not respond.
        RerankerUnavailable: If the reranker of a second stage gives no scores, or others than at the calibration.
        ReleaseError: If the release cannot be read.
    """
    with (
        calibration_lock(current.parent),
        lock_for_reading(current),
        tempfile.TemporaryDirectory(prefix="taugate-") as spool,
    ):
        updating = Update(current, settings, promotion, Path(spool), job)
        if updating.read(data).changes.is_empty:
            return None
        return updating.encode().gate().rerank().study().decide().conclude(keep=keep)


class Update(CalibrationStages):
    """An update of the current release, with its encoder, settings and threshold, to a newer corpus.

    The constructor opens the release.

    Args:
        folder: Folder of the release.
        requested: Settings of the update.
        promotion: The requested promotion.
        spool: Empty folder for the texts of the newer corpus.
        job: Reports progress and warnings, and times the stages.

    Attributes:
        current: Manifest of the release.
        changes: Changes of the corpus; set by reading.
        check: Whether τ still holds; set by deciding.
        withdrawn: Promises that do not hold any more; set by deciding.
    """

    changes: CorpusChanges
    check: ThresholdCheck
    withdrawn: list[WithdrawnRecord]

    def __init__(self, folder: Path, requested: UpdateSettings, promotion: Promotion, spool: Path, job: Job) -> None:
        with job.stage("load"):
            release = load(folder, trusted=promotion.trusted, engine=JOB_ACCESS)
            self.encoders = release_encoders(folder, release)
        super().__init__(folder.parent, kept_settings(release.manifest, requested.embeddings), spool, job)
        self.release, self.requested, self.promotion = release, requested, promotion
        self.current = self.parent = release.manifest
        self.inherited, self.adaptation = Inherited.everything(release), release.manifest.adaptation
        if self.current.second_stage is not None:
            self.candidates = self.current.second_stage.candidates

    def read(self, data: Path) -> Self:
        """Read the newer corpus from a folder, and compare it with that of the release.

        Raises:
            InputError: If the data cannot be used.
            EngineUnavailable: If the engine does not respond.
            ReleaseError: If the documents of the release cannot be read.
        """
        parent, job = self.current, self.job
        own, facts = not parent.reads_texts, parent.data
        if parent.state == "provisional" and (record := parent.calibration):
            job.report(f"{PROVISIONAL} {record.because(self.settings.k)}")
        with job.stage("read"):
            self.before = before = CorpusDigests.of(documents_of(self.release, job))
            if parent.labels is not None:
                dataset = read_people(data, parent.labels.splits, self.spool, job.report, before, own_vectors=own)
            else:
                lowest = facts.relevant_from
                dataset = read_dataset(data, facts.split, self.spool, before, own_vectors=own, relevant_from=lowest)
            if dataset.vectors is not None and (max_norm := parent.encoder.max_norm) is not None:
                dataset = replace(dataset, vectors=dataset.vectors.for_inner_product(max_norm))
            self.changes = CorpusChanges.between(self.before, CorpusDigests.of(dataset.documents))
        if self.changes.is_empty:
            return self
        _check_dataset(dataset, self.settings, job)
        units = SamplingUnits.of_queries(dataset.answerable, None if parent.evidence is None else parent.evidence.drawn)
        self._begin(dataset, units, None if parent.encoder_fit is None else parent.encoder_fit.trained_similarity)
        new = np.flatnonzero(self.changes.sources == UNKNOWN).tolist()
        texts = (dataset.documents[position].encoded_text for position in new)
        announce(self.encoders.queries, texts, chain.from_iterable(query_texts(dataset).values()), job)
        return self

    def rerank(self) -> Self:
        """Rank the candidates of the newer corpus by the release's reranker, and measure the first stage alone.

        Raises:
            RerankerUnavailable: If the reranker gives no scores, or others than at the calibration.
        """
        record, second = self.current.second_stage, self.release.retriever.second
        if record is None or second is None:
            return self
        second.check()
        requested, earlier = RequestedReranker.of(second.reranker, record.model), None
        if isinstance(second.reranker, LateInteraction):
            earlier = EarlierTokens(second.reranker.vectors, self.changes.sources)
        with self.job.stage("rerank"):
            reranker = requested.over(self.inputs.dataset.documents, self.spool, self.job, earlier)
            searching = RerankedSearch.score(self.first_search, requested, reranker, record.candidates)
        inputs = replace(self.inputs, settings=kept_settings(self.current.first_stage, self.requested.embeddings))
        studied, alone = study_first_stage(inputs, self.first_search, Inherited.first_stage(self.release))
        record = record.model_copy(update={"first": alone, "token_vectors": token_vectors_record(reranker)})
        self.second = AcceptedSecondStage(searching, record, requested.reranker.folder, studied, known_pairs(searching))
        self.searching = searching
        return self

    def decide(self) -> Self:
        """Measure the threshold of the release, check that it still holds, and ask every promise again, of both stages.

        Raises:
            InputError: If no query can be answered by both corpora.
        """
        super().decide()
        with self.job.stage("check"):
            self.check = self._check()
        _warn(self.check, self.job)
        kept = (record for record in self.current.gate if record.kind not in TESTED_AGAIN)
        self.accepted = replace(self.accepted, gate=(*kept, *self.accepted.gate))
        self._ask()
        return self

    def _manifest(self) -> partial[Manifest]:
        withdrawn = all_withdrawn(self.current, self.withdrawn)
        return partial(super()._manifest(), update=self._record(), withdrawn=withdrawn or None)

    def conclude(self, *, keep: bool) -> CheckRecord:
        """Write the release if everything holds, or to `keep` it nevertheless; returns what was decided."""
        check, holds = self.check, self.check.holds and not self.withdrawn
        return CheckRecord(
            release=self.write().release_id if holds or keep else "",
            changes=self.changes.counts,
            sentence=check.sentence,
            rule=f"{check.metric} at τ not lower by more than {check.margin:g} after an update",
            loss=check.loss,
            threshold_holds=check.holds,
            withdrawn=self.withdrawn,
        )

    def _ask(self) -> None:
        """Ask the promises of the release, and withdraw those that do not hold from the records."""
        current, decided = self.current, self.decided
        new = StatedRecords(decided.policy, decided.refusal, current.strata)
        left, withdrawn = ask_promises(
            stated(current, current.strata), LabelledEvidence(self.studied, self.searching.queries, self.inputs), new
        )
        if self.second is not None and current.second_stage is not None:
            evidence = LabelledEvidence(self.second.first, self.first_search.queries, self.inputs)
            second, of_first = ask_first_stage(current.second_stage, evidence, self.second.record)
            self.second = replace(self.second, record=second)
            withdrawn += of_first
        # The evidence for τ is still the parent's; an update adds none.
        calibration = current.calibration or decided.calibration
        if all_withdrawn(current, withdrawn) or not self.check.holds:
            calibration = inherited_calibration(current)
        self.decided = replace(decided, **vars(left), labels=current.labels, calibration=calibration)
        self.withdrawn = withdrawn

    def _record(self) -> UpdateRecord:
        parent, changes, check, promotion = self.current, self.changes, self.check, self.promotion
        before, holds = parent.update, check.holds and not self.withdrawn
        return UpdateRecord(
            parent=parent.release_id,
            calibrated=parent.release_id if before is None else before.calibrated,
            documents=parent.certified_documents,
            updates=1 if before is None else before.updates + 1,
            **changes.counts,
            queries=len(check.units),
            evidence=check.units.record,
            loss=check.loss,
            margin=check.margin,
            confidence=CONFIDENCE,
            holds=holds,
            forced=promotion.requested and promotion.force and not holds,
        )

    def _check(self) -> ThresholdCheck:
        """Check the threshold; of two stages, return the check that is further from holding."""

        def check(
            before: ResultsBefore, search: LabelledSearch, scored: ScoredQueries, policy: PolicyRecord
        ) -> ThresholdCheck:
            return check_threshold(before, self.before, search, scored, policy, self.requested)

        first = partial(first_stage_before, self.release)
        served, scored, policy = self.searching.queries, self.studied.scored, self.decided.policy
        second = self.release.retriever.second
        if self.second is None or second is None:
            return check(first, served, scored, policy)
        before = SecondStageBefore(self.release, second, self.second.searching, self.changes)
        alone = check(first, self.first_search.queries, self.second.first.scored, self.second.record.first.policy)
        alone = replace(alone, name="the first stage's own threshold")
        self.job.report(alone.sentence)
        checks = (check(before, served, scored, policy), alone)
        return max(checks, key=lambda one: one.loss.upper - one.margin)

    def _encode_in_memory(self) -> EncodedDataset:
        return encode_changes(self.inputs.dataset, self.changes, self.release, self.encoders, self.job)

    def _accept_in_memory(self) -> AcceptedSearch:
        return accept_index(self.inputs, self.release, self.encoders, self.encoded)

    def _reusable_vectors(self, kind: EngineKind) -> ReusableVectors:
        index = collection_index(self.release.retriever.index)
        if index is None:
            raise TypeError(f"{type(self.release.retriever.index).__name__} is no collection of an engine")
        return ReusableVectors(self.changes.sources, index.vectors)


def _check_dataset(dataset: Dataset, calibration: CalibrationSettings, job: Job) -> None:
    """Raise InputError if the corpus has become too small; report how many queries have lost their answers."""
    if calibration.k > len(dataset.documents):
        raise InputError(
            f"{dataset.name}: has {len(dataset.documents)} documents, fewer than K = {calibration.k} of the current "
            "release; run taugate calibrate with a smaller --k"
        )
    for note in dataset.notes:
        job.report(note)
    check_sizes(dataset, calibration)
    if dataset.orphaned:
        job.report(f"warning: {_queries_are(dataset.orphaned)} left out: every document that answered them was removed")


def _queries_are(count: int) -> str:
    return f"{count:,} {'query is' if count == 1 else 'queries are'}"


def _warn(check: ThresholdCheck, job: Job) -> None:
    if check.widened:
        job.report(
            f"warning: the margin is {check.margin:g} instead of {MAX_LOSS:g}: {check.units.words} cannot show a "
            "smaller loss; label more, or set --margin"
        )
    if check.unpaired:
        job.report(
            f"warning: {_queries_are(check.unpaired)} only about new documents and cannot be compared; to choose a "
            "threshold with them, run taugate calibrate"
        )
