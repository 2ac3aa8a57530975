"""The search of another retriever, of which only a run is known: scores of results, without vectors or documents."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taugate.calibration.metrics.inputs import SearchedQueries, StudyInputs
from taugate.calibration.metrics.judging import grades_of
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.study.study import Search
from taugate.data.runs.judged_run import JudgedRun
from taugate.data.runs.run import Run
from taugate.errors import InputError
from taugate.evidence.abstention.choose import MIN_LABELLED
from taugate.evidence.ranking import JudgedQueries, ideal_dcg
from taugate.policy.abstention import AnswerScore
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import SCALES, Components
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import TopK

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
