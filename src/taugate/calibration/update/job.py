"""One update, from a newer corpus to a release; `update` shows the stages in order."""

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.corpus import query_texts
from taugate.calibration.encoding.encoder_options import announce
from taugate.calibration.encoding.rerankers import EarlierTokens, RequestedReranker
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines import JOB_ACCESS, connect_engine, documents_of
from taugate.calibration.job.release_stages import Calibration
from taugate.calibration.job.reranking import AcceptedSecondStage, known_pairs, study_first_stage, token_vectors_record
from taugate.calibration.job.stages import Accepted, Read, accept_search, check_fit, check_sizes, encode_data
from taugate.calibration.metrics.inputs import CalibrationInputs, units_of
from taugate.calibration.progress import Job
from taugate.calibration.provisional import PROVISIONAL
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import TESTED_AGAIN, CalibrationSettings, UpdateSettings, kept_settings
from taugate.calibration.study.decide import LabelledEvidence
from taugate.calibration.study.reranked import RerankedSearch
from taugate.calibration.study.study import Inherited
from taugate.calibration.update import corpus
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.errors import InputError
from taugate.evidence.measure import DrawnQueries
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.rules import CONFIDENCE, MAX_LOSS
from taugate.registry.history import calibration_lock, lock_for_reading
from taugate.release import promises
from taugate.release.evidence import Interval, Record
from taugate.release.outcome_records import PolicyRecord
from taugate.release.state import UpdateRecord, WithdrawnRecord
from taugate.retrieval.engines.corpus import collection_index
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.reader import Release, load
from taugate.retrieval.rerank.late_interaction import token_vectors_of


class CheckRecord(Record):
    """What the check of a current threshold on a newer corpus has shown."""

    release: str  # id of the release with the newer corpus and that threshold; empty if none was written
    changes: dict[str, int]
    sentence: str
    rule: str  # the loss that is allowed, as the history of promotions words it
    loss: Interval
    threshold_holds: bool
    withdrawn: list[WithdrawnRecord]  # promises that do not hold any more

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
        keep: Whether to write the release also if something does not hold, without what is withdrawn.

    Returns:
        None if nothing changed.
    """
    with (
        calibration_lock(current.parent),
        lock_for_reading(current),
        tempfile.TemporaryDirectory(prefix="taugate-") as spool,
    ):
        with job.stage("load"):
            release = load(current, trusted=promotion.trusted, engine=JOB_ACCESS)
            encoders = corpus.release_encoders(current, release)
        newer = read_newer(data, release, encoders, settings, Path(spool), job)
        if newer is None:
            return None
        read, changes = newer.read, newer.changes
        encoded = encode_data(
            read,
            lambda: corpus.encode_changes(read.inputs.dataset, changes, release, encoders, job),
            lambda _: ReusableVectors(changes.sources, _collection(release).vectors),
        )
        accepted = accept_search(
            read, encoded, lambda: corpus.accept_index(read.inputs, release, encoders, encoded.texts)
        )
        measured = Calibration.of(read, encoded, accept_same_reranker(newer, accepted))
        checked = check_promises(newer, measured)
        holds = checked.check.holds and not checked.withdrawn
        name = ""
        if holds or keep:
            forced = promotion.requested and promotion.force and not holds
            withdrawn = promises.all_withdrawn(release.manifest, checked.withdrawn)
            manifest = checked.calibration.manifest(checked.update_record(newer, forced=forced), withdrawn)
            name = checked.calibration.write(current.parent, manifest).release_id
        return checked.record(name, changes.counts)


@dataclass(frozen=True)
class NewerCorpus:
    """A newer corpus with its labelled queries, and the release whose threshold it may keep."""

    release: Release
    requested: UpdateSettings
    read: Read
    before: CorpusDigests
    changes: CorpusChanges


@dataclass(frozen=True)
class CheckedUpdate:
    """What a newer corpus does to the threshold and the promises of a release."""

    calibration: Calibration  # the newer corpus, measured with what is left of the promises
    check: corpus.ThresholdCheck
    withdrawn: list[WithdrawnRecord]  # promises that do not hold any more

    def record(self, release: str, changes: dict[str, int]) -> CheckRecord:
        """Describe the check; see CheckRecord."""
        check = self.check
        return CheckRecord(
            release=release,
            changes=changes,
            sentence=check.sentence,
            rule=f"{check.metric} at τ not lower by more than {check.margin:g} after an update",
            loss=check.loss,
            threshold_holds=check.holds,
            withdrawn=self.withdrawn,
        )

    def update_record(self, newer: NewerCorpus, *, forced: bool) -> UpdateRecord:
        """Describe the update in the manifest; `forced` if the release is promoted though something does not hold."""
        parent, check = newer.release.manifest, self.check
        before = parent.update
        return UpdateRecord(
            parent=parent.release_id,
            calibrated=parent.release_id if before is None else before.calibrated,
            documents=parent.certified_documents,
            updates=1 if before is None else before.updates + 1,
            **newer.changes.counts,
            queries=len(check.units),
            evidence=check.units.record,
            loss=check.loss,
            margin=check.margin,
            confidence=CONFIDENCE,
            holds=check.holds and not self.withdrawn,
            forced=forced,
        )


def read_newer(
    data: Path, release: Release, encoders: Encoders, requested: UpdateSettings, spool: Path, job: Job
) -> NewerCorpus | None:
    """Read the newer corpus from a folder, and compare it with that of the release; None if nothing changed."""
    parent = release.manifest
    settings, own, facts = kept_settings(parent, requested.embeddings), not parent.reads_texts, parent.data
    engine = connect_engine(settings.engine)
    if parent.state == "provisional" and (record := parent.calibration):
        job.report(f"{PROVISIONAL} {record.because(settings.k)}")
    with job.stage("read"):
        before = CorpusDigests.of(documents_of(release, job))
        if parent.labels is not None:
            dataset = read_people(data, parent.labels.splits, spool, job.report, before, own_vectors=own)
        else:
            lowest = facts.relevant_from
            dataset = read_dataset(data, facts.split, spool, before, own_vectors=own, relevant_from=lowest)
        if dataset.vectors is not None and (max_norm := parent.encoder.max_norm) is not None:
            dataset = replace(dataset, vectors=dataset.vectors.for_inner_product(max_norm))
        changes = CorpusChanges.between(before, CorpusDigests.of(dataset.documents))
    if changes.is_empty:
        return None
    _check_dataset(dataset, settings, job)
    units = units_of(dataset.answerable, None if parent.evidence is None else parent.evidence.drawn)
    fit = check_fit(
        dataset, encoders, None if parent.encoder_fit is None else parent.encoder_fit.trained_similarity, job
    )
    inputs = CalibrationInputs(dataset, DrawnQueries.draw(units, len(dataset.documents), settings), settings, job)
    new = np.flatnonzero(changes.sources == UNKNOWN).tolist()
    texts = (dataset.documents[position].encoded_text for position in new)
    announce(encoders.queries, texts, chain.from_iterable(query_texts(dataset).values()), job)
    candidates = 0 if parent.second_stage is None else parent.second_stage.candidates
    inherited = Inherited.everything(release)
    read = Read(inputs, encoders, fit, spool, engine, candidates, parent, inherited, parent.adaptation)
    return NewerCorpus(release, requested, read, before, changes)


def accept_same_reranker(newer: NewerCorpus, accepted: Accepted) -> Accepted:
    """Rank the candidates of the newer corpus by the release's reranker, and measure the first stage alone."""
    release, read = newer.release, newer.read
    record, second = release.manifest.second_stage, release.retriever.second
    if record is None or second is None:
        return accepted
    second.check()
    requested, tokens = RequestedReranker.of(second.reranker, record.model), token_vectors_of(second.reranker)
    earlier = None if tokens is None else EarlierTokens(tokens, newer.changes.sources)
    with read.job.stage("rerank"):
        reranker = requested.over(read.inputs.dataset.documents, read.spool, read.job, earlier)
        searching = RerankedSearch.score(accepted.first, requested, reranker, record.candidates)
    kept = kept_settings(release.manifest.first_stage, newer.requested.embeddings)
    inputs = replace(read.inputs, settings=kept)
    studied, alone = study_first_stage(inputs, accepted.first, Inherited.first_stage(release))
    record = record.model_copy(update={"first": alone, "token_vectors": token_vectors_record(reranker)})
    known = known_pairs(searching)
    return replace(accepted, second=AcceptedSecondStage(searching, record, requested.reranker.folder, studied, known))


def check_promises(newer: NewerCorpus, measured: Calibration) -> CheckedUpdate:
    """Check that the threshold of the release still holds, and ask every promise again, of both stages."""
    current, accepted, decided, inputs = newer.release.manifest, measured.accepted, measured.decided, newer.read.inputs
    with inputs.job.stage("check"):
        check = _check_thresholds(newer, measured)
    _warn(check, inputs.job)
    new = promises.StatedRecords(decided.policy, decided.refusal, current.strata)
    evidence = LabelledEvidence(measured.studied, accepted.searching.queries, inputs)
    left, withdrawn = promises.ask_promises(promises.stated(current, current.strata), evidence, new)
    second = accepted.second
    if second is not None and current.second_stage is not None:
        evidence = LabelledEvidence(second.first, accepted.first.queries, inputs)
        record, of_first = promises.ask_first_stage(current.second_stage, evidence, second.record)
        second = replace(second, record=record)
        withdrawn += of_first
    # The evidence for τ is still the parent's; an update adds none.
    calibration = current.calibration or decided.calibration
    if promises.all_withdrawn(current, withdrawn) or not check.holds:
        calibration = promises.inherited_calibration(current)
    decided = replace(decided, **vars(left), labels=current.labels, calibration=calibration)
    kept = (record for record in current.gate if record.kind not in TESTED_AGAIN)
    search = replace(accepted.search, gate=(*kept, *accepted.search.gate))
    accepted = replace(accepted, search=search, second=second)
    return CheckedUpdate(replace(measured, accepted=accepted, decided=decided), check, withdrawn)


def _check_thresholds(newer: NewerCorpus, measured: Calibration) -> corpus.ThresholdCheck:
    """Check the threshold; of two stages, return the check that is further from holding."""

    def check(
        before: corpus.ResultsBefore, search: LabelledSearch, scored: ScoredQueries, policy: PolicyRecord
    ) -> corpus.ThresholdCheck:
        return corpus.check_threshold(before, newer.before, search, scored, policy, newer.requested)

    release, accepted = newer.release, measured.accepted
    first, served = partial(corpus.first_stage_before, release), accepted.searching.queries
    scored, policy = measured.studied.scored, measured.decided.policy
    second, after = release.retriever.second, accepted.second
    if after is None or second is None:
        return check(first, served, scored, policy)
    before = corpus.SecondStageBefore(release, second, after.searching, newer.changes)
    alone = check(first, accepted.first.queries, after.first.scored, after.record.first.policy)
    alone = replace(alone, name="the first stage's own threshold")
    newer.read.job.report(alone.sentence)
    checks = (check(before, served, scored, policy), alone)
    return max(checks, key=lambda check: check.loss.upper - check.margin)


def _collection(release: Release) -> EngineIndex:
    index = collection_index(release.retriever.index)
    if index is None:
        raise TypeError(f"{type(release.retriever.index).__name__} is no collection of an engine")
    return index


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


def _warn(check: corpus.ThresholdCheck, job: Job) -> None:
    if check.widened:
        job.report(
            f"warning: the margin is {check.margin:g} instead of {MAX_LOSS:g}: {check.units.words} cannot show a "
            "smaller loss; label more, or set margin"
        )
    if check.unpaired:
        job.report(
            f"warning: {_queries_are(check.unpaired)} only about new documents and cannot be compared; to choose a "
            "threshold with them, run taugate calibrate"
        )
