"""One update, from a newer corpus to a release; `update` shows the stages in order."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.comparison.publish import Promotion, Published, publish
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
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.ingestion.dataset.location import local_folder
from taugate.ingestion.dataset.people import read_people
from taugate.registry.catalog import find
from taugate.registry.lock import calibration_lock, lock_for_reading
from taugate.registry.promotion import SatisfiedRule
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.engines.hybrid import collection_index
from taugate.retrieval.release.changed_documents import UpdateRecord, WithdrawnRecord
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.asking import ask_first_stage, ask_promises, inherited_state, stated
from taugate.retrieval.release.promises.promise import StatedRecords
from taugate.retrieval.release.reader import load
from taugate.retrieval.rerank.late_interaction import LateInteraction


@dataclass(frozen=True)
class Updated:
    """The outcome of an update.

    Attributes:
        manifest: Manifest of the new release, or of the current one if nothing changed.
        parent: Id of the release that was current.
        changes: Changes of the corpus.
        check: Whether τ still holds, None if nothing changed.
        withdrawn: Promises that do not hold any more.
        published: How publishing the new release ended.
    """

    manifest: Manifest
    parent: str
    changes: CorpusChanges
    check: ThresholdCheck | None = None
    withdrawn: Sequence[WithdrawnRecord] = ()
    published: Published = field(default_factory=Published)

    @property
    def holds(self) -> bool:
        """Whether τ still holds, and every promise."""
        return (self.check is None or self.check.holds) and not self.withdrawn


def update(
    data: str,
    releases: Path,
    settings: UpdateSettings,
    promotion: Promotion,
    job: Job,
) -> Updated:
    """Write a release of a newer corpus with the encoder and the threshold of the current release.

    It becomes current if τ is shown to hold. A directory has one calibration or update at a time.

    Args:
        data: A folder or a URL with the newer corpus and its labelled queries.
        releases: The directory of releases.
        settings: Settings of the check.
        promotion: The requested promotion.
        job: Reports progress and warnings, and times the stages.

    Raises:
        InputError: If the data cannot be used; nothing has been written.
        EncoderError: If the encoder cannot be loaded; nothing has been written.
        EngineUnavailable: If the engine does not respond, before or after the release has been written.
        RerankerUnavailable: If the reranker of a second stage gives no scores, or others than at the calibration.
        ReleaseError: If a release cannot be read or promoted, before or after the new one has been written.
    """
    find(releases)  # before the lock would create the directory
    with calibration_lock(releases):
        folder = find(releases)
        with lock_for_reading(folder), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
            updating = Update(folder, settings, promotion, Path(spool), job)
            if updating.read(data).changes.is_empty:
                return Updated(updating.current, folder.name, updating.changes)
            manifest = updating.encode().gate().rerank().study().decide().write()
            updated = Updated(manifest, folder.name, updating.changes, updating.check, updating.withdrawn)
            with job.stage("promote"):
                return replace(updated, published=_publish(folder, updated, updating.check, promotion, job))


class Update(CalibrationStages):
    """An update of the current release, with its encoder, settings and threshold, to a newer corpus.

    The constructor opens the release; it raises InputError if no update of it can be promoted.

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
            _check_promotable(release.manifest, promotion)
            self.encoders = release_encoders(folder, release)
        super().__init__(folder.parent, kept_settings(release.manifest, requested), spool, job)
        self.release, self.requested, self.promotion = release, requested, promotion
        self.current = self.parent = release.manifest
        self.inherited, self.adaptation = Inherited.everything(release), release.manifest.adaptation
        if self.current.second_stage is not None:
            self.candidates = self.current.second_stage.candidates

    def read(self, data: str) -> Self:
        """Read the newer corpus from a folder or a URL, and compare it with that of the release.

        Raises:
            InputError: If the data cannot be used.
            EngineUnavailable: If the engine does not respond.
            ReleaseError: If the documents of the release cannot be read.
        """
        parent, job, split = self.current, self.job, self.requested.split or self.current.data.split
        own = not parent.reads_texts
        if parent.state == "provisional" and (record := parent.calibration):
            job.report(f"{PROVISIONAL} {record.because(self.settings.k)}")
        labels = () if parent.labels is None else (split, *parent.labels.splits[1:])
        splits, optional = labels or (split,), (GENERATED, *labels[1:]) if labels else ()
        with job.stage("read"), local_folder(data, *splits, optional=optional, own_vectors=own) as source:
            self.before = CorpusDigests.of(documents_of(self.release, job))
            if labels:
                dataset = read_people(source, labels, self.spool, job.report, self.before, own_vectors=own)
            else:
                lowest = parent.data.relevant_from
                dataset = read_dataset(source, split, self.spool, self.before, own_vectors=own, relevant_from=lowest)
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
        inputs = replace(self.inputs, settings=kept_settings(self.current.first_stage, self.requested))
        studied, alone = study_first_stage(inputs, self.first_search, Inherited.first_stage(self.release))
        record = record.model_copy(update={"first": alone, "token_vectors": token_vectors_record(reranker)})
        self.second = AcceptedSecondStage(searching, record, requested.reranker.folder, studied, known_pairs(searching))
        self.searching, self.records["second_stage"] = searching, record
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
        self._ask()
        self.records |= {
            "gate": [*kept, *self.accepted.gate],
            "labels": self.current.labels,
            "update": _record(self.current, self.changes, self.check, self.withdrawn, self.promotion),
        }
        return self

    def _ask(self) -> None:
        """Ask the promises of the release, and withdraw those that do not hold from the records."""
        current, records = self.current, self.records
        new = StatedRecords(records["policy"], records["abstention"], records["refusal"], current.strata)
        left, withdrawn = ask_promises(
            stated(current, current.strata), LabelledEvidence(self.studied, self.searching.queries, self.inputs), new
        )
        if self.second is not None and current.second_stage is not None:
            evidence = LabelledEvidence(self.second.first, self.first_search.queries, self.inputs)
            records["second_stage"], of_first = ask_first_stage(current.second_stage, evidence, self.second.record)
            withdrawn += of_first
        # The evidence for τ is still the parent's; an update adds none.
        kept = {} if current.calibration is None else {"calibration": current.calibration}
        records |= vars(left) | kept | inherited_state(current, withdrawn)
        self.withdrawn = withdrawn

    def _check(self) -> ThresholdCheck:
        """Check the threshold; of two stages, return the check that is further from holding."""

        def check(
            before: ResultsBefore, search: LabelledSearch, scored: ScoredQueries, policy: PolicyRecord
        ) -> ThresholdCheck:
            return check_threshold(before, self.before, search, scored, policy, self.requested)

        first = partial(first_stage_before, self.release)
        served, scored, policy = self.searching.queries, self.studied.scored, self.records["policy"]
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


def _check_promotable(manifest: Manifest, promotion: Promotion) -> None:
    """Raise InputError if no update of this release can be promoted without --force."""
    if not promotion.requested or promotion.force:
        return
    because = manifest.calibration and manifest.calibration.chance_warning(manifest.policy.k)
    if manifest.policy.tau is None:
        because = "its policy is none, so there is no threshold to keep"
    if because:
        raise InputError(f"{manifest.release_id}: {because}; run taugate calibrate, or give --force or --no-promote")


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


def _record(
    parent: Manifest,
    changes: CorpusChanges,
    check: ThresholdCheck,
    withdrawn: Sequence[WithdrawnRecord],
    promotion: Promotion,
) -> UpdateRecord:
    before, holds = parent.update, check.holds and not withdrawn
    return UpdateRecord(
        parent=parent.release_id,
        calibrated=parent.release_id if before is None else before.calibrated,
        documents=parent.certified_documents,
        updates=1 if before is None else before.updates + 1,
        added=changes.added,
        changed=changes.changed,
        removed=changes.removed,
        queries=len(check.units),
        evidence=check.units.record,
        loss=check.loss,
        margin=check.margin,
        confidence=CONFIDENCE,
        holds=holds,
        forced=promotion.requested and promotion.force and not holds,
    )


def _publish(parent: Path, updated: Updated, check: ThresholdCheck, promotion: Promotion, job: Job) -> Published:
    """Sign the release, and promote it if that is requested and τ and every promise hold, or --force is given."""
    against = check.sentence
    if check.holds and updated.withdrawn:
        names = ", ".join(record.promise for record in updated.withdrawn)
        against = f"not everything that was promised holds for these documents; withdrawn: {names}"
    refused = None if updated.holds or promotion.force else Published.refused(against)
    shown = f"{check.metric} at τ not lower by more than {check.margin:g} after an update"
    satisfied = SatisfiedRule(shown, parent.name) if updated.holds else None
    release = parent.parent / updated.manifest.release_id
    return publish(release, promotion, refused, satisfied, report=job.report)
