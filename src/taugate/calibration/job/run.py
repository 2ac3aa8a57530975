"""One calibration on a run of another retriever, from its scores to a release without encoder and documents."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taugate.calibration.job.calibration import check_releases, current_manifest
from taugate.calibration.job.reading import check_bootstraps, check_calibrating, sampling_units
from taugate.calibration.job.release_stages import decide_release, run_manifest, write_release
from taugate.calibration.progress import Job
from taugate.calibration.provisional import PROVISIONAL, AvailableEvidence
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.outcomes import Calibrated, drift_reference, evidence_of, golden_rows, query_outcomes
from taugate.calibration.study.run import RunInputs, RunSearch
from taugate.calibration.study.study import study
from taugate.data.runs.judged_run import JudgedRun
from taugate.data.runs.run import Run
from taugate.evidence.measure import DrawnQueries
from taugate.policy.score_relevance import SCALES, ScoreScale
from taugate.registry.history import calibration_lock
from taugate.release.layout import EVIDENCE, GOLDEN, OUTCOMES, REFERENCE, REPORT
from taugate.release.manifest import RetrieverRecord, RunManifest
from taugate.retrieval import golden_results
from taugate.retrieval.folders import ModelsFolder
from taugate.retrieval.gate import ScoredResult
from taugate.retrieval.golden_results import GoldenResults
from taugate.storage.files import sha256_json


class RunFiles(NamedTuple):
    """The files of a calibration on a run.

    Attributes:
        run: The run.
        qrels: Its qrels.
        off_topic: Run of questions about other subjects, by the same retriever; None without one.
    """

    run: Path
    qrels: Path
    off_topic: Path | None = None


def calibrate_run(
    files: RunFiles, releases: Path, scale: ScoreScale, settings: CalibrationSettings, job: Job
) -> RunManifest:
    """Read a run and its qrels, choose a threshold and write a release into `releases`, without promoting it.

    Only one calibration at a time runs in a directory. After an error, no release has been written.

    Args:
        files: The run with its qrels.
        releases: The directory of releases.
        scale: What the scores are.
        settings: All other settings.
        job: Reports progress and warnings, and times the stages.

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
        manifest = run_manifest(inputs, decided, _retriever(inputs.dataset, settings.k))
        return write_release(releases, manifest, studied, partial(_write_files, inputs), parent, job)


def read_run(files: RunFiles, scale: ScoreScale, settings: CalibrationSettings, job: Job) -> RunInputs:
    """Read a run and its qrels, and the run of off-topic questions.

    Raises:
        InputError: If they cannot be read, or do not fit the settings.
    """
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
    drift_reference(calibrated, calibrated.policy).save(release / REFERENCE)
    query_outcomes(calibrated, calibrated.policy).save(release / OUTCOMES)
    evidence_of(calibrated).save(release / EVIDENCE)
    ModelsFolder(release).write(
        None if calibrated.estimated is None else calibrated.estimated.relevance,
        None if calibrated.answer_rule is None else calibrated.answer_rule.score,
    )
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
