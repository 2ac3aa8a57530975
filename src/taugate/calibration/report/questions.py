"""The questions of a calibration as a table, with what both thresholds do to them."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from markupsafe import Markup

from taugate.calibration.report.tradeoff import shortened
from taugate.calibration.study.outcomes import Calibrated
from taugate.calibration.study.questions import calibration_questions
from taugate.retrieval.release.questions import CalibrationQuestion, Outcome

# More than anybody reads, few enough for a page that opens from a mail (60 kB); the playground lists all.
MAX_ROWS = 300
# In the order of the table: those that something is wrong with come first.
OUTCOMES: dict[Outcome, str] = {
    "lost": "lost",
    "refused": "refused",
    "answered": "answered",
    "missed": "not in the top K",
    "kept": "kept",
}


@dataclass(frozen=True)
class QuestionRow:
    """A question and what becomes of it.

    Attributes:
        text: Text, shortened.
        question: The question with its scores.
        outcome: What both thresholds do to it.
        order: Place of the outcome among the outcomes.
    """

    text: str
    question: CalibrationQuestion
    outcome: Outcome
    order: int


@dataclass(frozen=True)
class QuestionTable:
    """The table.

    Attributes:
        rows: At most MAX_ROWS rows; of more, those that are closest to another outcome.
        total: Number of questions.
    """

    rows: list[QuestionRow]
    total: int


def question_table(calibrated: Calibrated) -> QuestionTable:
    """List the questions, those that lose their answer first, then by their distance to another outcome."""
    rule, threshold = calibrated.answer_rule, calibrated.policy.tau
    rho = None if rule is None else rule.tau
    rows = []
    for question in calibration_questions(calibrated):
        outcome = question.outcome(threshold, rho)
        is_right = outcome == ("kept" if question.kind == "answerable" else "refused")
        order = len(OUTCOMES) if is_right else [*OUTCOMES].index(outcome)
        rows.append(QuestionRow(shortened(question.text), question, outcome, order))
    rows.sort(key=lambda row: (row.order, row.question.distance(threshold, rho)))
    return QuestionTable(rows[:MAX_ROWS], len(rows))


@cache
def sorting_script() -> tuple[Markup, str]:
    """Return the script that sorts the table, and its source for a content security policy."""
    script = files("taugate.calibration.report").joinpath("sorting.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(script), f"'sha256-{digest}'"  # noqa: S704 (a file of the package)
