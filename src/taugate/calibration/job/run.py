"""Calibrates on the run of another retriever: from its scores to a release without encoder and documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taugate.calibration.job.calibration import check_releases, current_manifest
from taugate.calibration.job.release_stages import decide_release, run_manifest, write_release
from taugate.calibration.job.stages import check_bootstraps, check_calibrating, sampling_units
from taugate.calibration.metrics.inputs import SearchedQueries, StudyInputs, grades_of
from taugate.calibration.progress import Job
from taugate.calibration.provisional import PROVISIONAL, AvailableEvidence
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.outcomes import Calibrated, golden_rows, write_study
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.study.study import Search, study
from taugate.data.runs.run import JudgedRun, Run
from taugate.errors import InputError
from taugate.evidence.abstention.choose import MIN_LABELLED
from taugate.evidence.measure import DrawnQueries
from taugate.evidence.ranking import JudgedQueries, ideal_dcg
from taugate.policy.abstention import AnswerScore
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import SCALES, Components, ScoreScale
from taugate.registry.history import calibration_lock
from taugate.release.layout import GOLDEN, REPORT
from taugate.release.manifest import RetrieverRecord, RunManifest
from taugate.retrieval import golden as golden_results
from taugate.retrieval.documents.store import Document
from taugate.retrieval.gate import ScoredResult
from taugate.retrieval.golden import GoldenResults
from taugate.retrieval.index.top_k import TopK
from taugate.storage.files import sha256_json

# Best scores that are equal say nothing about the query; if most are, no threshold on them can tell queries apart.
_MOST = 0.5


@dataclass(frozen=True)
class RunInputs(StudyInputs):
    """The inputs of a calibration on a run."""

    dataset: JudgedRun
    # Results of the same retriever for questions about other subjects; None if they were not sent
    off_topic: Run | None = None


@dataclass(frozen=True)
class SearchedRun(SearchedQueries):
    """The labelled queries of a run with their results."""

    dataset: JudgedRun
    component_scores: tuple[Components, Components]

    @property
    def components(self) -> tuple[Components, Components]:
        """Component scores of the results of the answerable and of the unanswerable queries; empty without any."""
        return self.component_scores

    @property
    def score_name(self) -> str:
        """What the retriever compares documents by."""
        return f"score{SCALES[self.dataset.run.scale].note}"

    @property
    def shares(self) -> bool:
        """Whether a share of the best score means something: not for distances and log-odds."""
        return SCALES[self.dataset.run.scale].zero

    def document(self, number: int) -> Document:
        """Return the document with a number: its id, as the run has no texts."""
        return Document(self.dataset.ids[number], "")


@dataclass(frozen=True)
class RunSearch(Search):
    """Looks results up in a run."""

    inputs: RunInputs  # the run, the division of its queries, and the settings

    @property
    def queries(self) -> SearchedRun:
        """The labelled queries with their results; raises InputError if no threshold can separate the scores."""
        return self._searched

    @cached_property
    def _searched(self) -> SearchedRun:
        run, k = self.inputs.dataset, self.inputs.settings.k
        results, unanswerable = run.results(run.answerable, k), run.results(run.unanswerable, k)
        judged = JudgedQueries(
            top=TopK(results.scores, results.documents),
            grades=grades_of(run.answerable, results.documents, None),
            ideal=np.array([ideal_dcg(query.gains, k) for query in run.answerable]),
            correct=_correct_scores(run),
        )
        searched = SearchedRun(
            run,
            judged,
            TopK(unanswerable.scores, unanswerable.documents),
            self.inputs.units,
            (results.components, unanswerable.components),
        )
        self._check_scores(searched)
        return searched

    @property
    def components(self) -> tuple[Components, Components]:
        """Component scores of the results; empty without any."""
        return self.queries.components

    def check_refusals(self, score: AnswerScore) -> None:
        """See `Search.check_refusals`."""
        if score.is_best_result and (reason := _equal_best(self.queries)):
            raise InputError(
                f"{self.inputs.dataset.run.path}: {reason}, and too few queries are judged to fit a model of the "
                f"component scores; label at least {MIN_LABELLED} with an answer and as many without, or leave "
                "out --max-answered"
            )

    def questions(self, parts: LabelledParts) -> RefusalQuestions | None:
        """Return those of the run of off-topic questions; None without one, or if best scores tell no queries apart."""
        off_topic = self.inputs.off_topic
        if off_topic is None or _equal_best(self.queries) is not None:
            return None
        return RefusalQuestions.of_run(self.queries, off_topic, parts)

    def _check_scores(self, searched: SearchedRun) -> None:
        """Raise InputError if all scores are equal, or if best scores cannot tell the queries that are to be refused.

        If nothing is to be refused, equal best scores are only worth a warning: a cut within the list may still work.
        """
        run, top = self.inputs.dataset, searched.judged.top
        if np.ptp(top.scores) == 0:
            raise InputError(
                f"{run.run.path}: every score is {top.scores[0, 0]:g}, so no threshold can separate documents; write "
                "the scores of the retriever"
            )
        reason = None if run.components else _equal_best(searched)
        if reason is None:
            return
        if self.inputs.settings.abstention is not None:
            remedy = 'leave out --max-answered, or add the component scores, as "scores" of every result'
            raise InputError(f"{run.run.path}: {reason}; {remedy}")
        self.inputs.job.report(f'warning: {reason}; send the component scores, as "scores" of every result')


def _equal_best(searched: SearchedRun) -> str | None:
    """Say that most best scores are equal; None if they are not."""
    best = np.concatenate([searched.judged.top.scores[:, 0], searched.unanswerable.scores[:, 0]])
    equal = int(np.unique(best, return_counts=True)[1].max())
    if equal <= _MOST * len(best):
        return None
    return f"{equal:,} of {len(best):,} best scores are equal: this fused rank cannot tell an unanswerable question"


def _correct_scores(run: JudgedRun) -> Float32:
    """Return S_corr, the highest score of a relevant document of each answerable query, (n,) float32.

    If the run does not list one, its score is unknown, and lower than those of the listed results. It gets a score
    below all scores of the run, so that COE is a lower limit.
    """
    listed = [run.run.queries[query.id] for query in run.answerable]
    lowest = np.nextafter(min(results.scores[-1] for results in listed), np.float32(-np.inf))
    correct = np.full(len(listed), lowest, dtype=np.float32)
    for row, (query, results) in enumerate(zip(run.answerable, listed, strict=True)):
        found = np.isin(results.documents, [*query.relevant])
        if found.any():
            correct[row] = results.scores[found.argmax()]
    return correct


class RunFiles(NamedTuple):
    """The files of a calibration on a run."""

    run: Path
    qrels: Path
    off_topic: Path | None = None  # run of questions about other subjects, by the same retriever; None without one


def calibrate_run(
    files: RunFiles, releases: Path, scale: ScoreScale, settings: CalibrationSettings, job: Job
) -> RunManifest:
    """Read a run and its qrels, choose a threshold and write a release into `releases`, without promoting it.

    Only one calibration at a time runs in a directory. After an error, no release has been written.

    Raises:
        InputError: If the run, the qrels or the settings cannot be used.
    """
    check_releases(releases, job)
    with calibration_lock(releases):
        SCALES[scale].check(settings.rule.policy, f"--scores {scale}")
        parent = current_manifest(releases)
        inputs = read_run(files, scale, settings, job)
        studied = study(inputs, RunSearch(inputs))
        decided = decide_release(inputs, studied)
        off_topic = None if inputs.off_topic is None else inputs.off_topic.sha256
        manifest = run_manifest(inputs, decided, _retriever(inputs.dataset, settings.k), off_topic)
        return write_release(releases, manifest, studied, partial(_write_files, inputs), parent, job)


def read_run(files: RunFiles, scale: ScoreScale, settings: CalibrationSettings, job: Job) -> RunInputs:
    """Read a run and its qrels, and the run of off-topic questions."""
    with job.stage("read"):
        run, left_out = JudgedRun.read(Run.read(files.run, scale), files.qrels, settings.k, settings.relevant_from)
        off_topic = None if files.off_topic is None else Run.read(files.off_topic, scale)
    for sentence in left_out:
        job.report(sentence)
    check_bootstraps(settings)
    check_calibrating(run, settings)
    units = sampling_units(run, settings, job)
    evidence = AvailableEvidence.count(run, settings.k)
    if evidence.because:  # reported before the work
        job.report(f"{PROVISIONAL} {evidence.because}")
    return RunInputs(run, DrawnQueries.draw(units, run.passages, settings), settings, job, off_topic)


def _write_files(inputs: RunInputs, calibrated: Calibrated, report: str, release: Path) -> None:
    """Write every file of the release except its manifest into an empty folder."""
    write_study(calibrated, release)
    run, rows = inputs.dataset, golden_rows(calibrated.parts["calibration"].members)
    golden = _golden(run.run, [run.answerable[row].id for row in rows.tolist()], inputs.settings.k)
    golden_results.write_golden_results(release / GOLDEN, golden + _unanswerable_golden(inputs, calibrated))
    (release / REPORT).write_text(report, encoding="utf-8")


def _unanswerable_golden(inputs: RunInputs, calibrated: Calibrated) -> list[GoldenResults]:
    """Return golden questions without an answer, of a kind of which it is promised how many get a result."""
    run, ids, asked = inputs.dataset, list[str](), inputs.off_topic
    refusal = calibrated.refusal
    if refusal is not None and refusal.certifying is not None and refusal.record.certified:
        certifying = refusal.certifying[1]
        asked, ids = run.run, [run.unanswerable[row].id for row in golden_rows(certifying).tolist()]
    elif refusal is not None and refusal.record.is_default and asked is not None:
        names = [name for name in asked.queries if name not in run.run.queries]
        ids = [names[row] for row in golden_rows(np.arange(len(names))).tolist()]
    return [] if asked is None else _golden(asked, ids, inputs.settings.k, unanswerable=True)


def _golden(run: Run, ids: Sequence[str], k: int, *, unanswerable: bool = False) -> list[GoldenResults]:
    """Return the first k results of some queries, as the retriever scored them."""
    sign, names, golden = SCALES[run.scale].sign, [*run.numbers], []
    for query in map(run.queries.__getitem__, ids):
        results = [
            ScoredResult(
                names[number],
                sign * float(query.scores[place]),
                {name: float(of[place]) for name, of in query.components.items() if not np.isnan(of[place])},
            )
            for place, number in enumerate(map(int, query.documents[:k]))
        ]
        golden.append(GoldenResults(query.id, query.text, results, unanswerable))
    return golden


def _retriever(run: JudgedRun, k: int) -> RetrieverRecord:
    scores = {"scores": run.run.scale, "components": run.components}
    return RetrieverRecord(
        name=run.name, **scores, depth=run.depth, judged=run.judged_share(k), sha256=sha256_json(scores)
    )
