"""What a small model makes of the passages: questions answered that should have been declined, policy by policy."""

import os
import statistics
import time

from benchmarks.markdown import share, table
from benchmarks.rag.model import SmallModel, declines
from benchmarks.rag.passages import Found, RagPlan, has_answer, searched
from benchmarks.rag.policies import POLICIES
from taugate_client import SearchResponse

HEADING = "Wrong answers of a small model"
_SHOWN = 3  # of each kind


class _Answers:
    """Answers of the model, each asked for once: policies that let the same passages through share them."""

    def __init__(self) -> None:
        self._model = SmallModel()
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}
        self.seconds: list[float] = []

    def to(self, question: str, passages: tuple[str, ...]) -> str:
        """Answer from passages; "" where there are none, as then nobody asks the model."""
        if not passages:
            return ""
        key = (question, passages)
        if key not in self._known:
            began = time.perf_counter()
            self._known[key] = self._model.answer(question, passages)
            self.seconds.append(time.perf_counter() - began)
            print(f"answer {len(self.seconds)}, {self.seconds[-1]:.0f} s", flush=True)
        return self._known[key]


def section(plan: RagPlan) -> str:
    """Let the model answer a few questions of each kind, from what each policy lets through."""
    found, answers = searched(plan, plan.answers), _Answers()
    rows = [[policy.name, *_cells(found[policy.name], answers)] for policy in POLICIES]
    header = [
        "what goes to the model", "unanswerable: answered", "off topic: answered",
        "answerable: answered without the right passage", "answerable: answered with it", "answerable: declined",
    ]  # fmt: skip
    asked = ", ".join(f"{len(each):,} {kind}" for kind, each in found[POLICIES[0].name].items())
    return f"""\
{asked} questions, and the passages that each policy lets through. A question is *answered* where the model gets a passage and says
anything but that it does not know. An answer to a question that the corpus does not answer is wrong, whatever it says. So is one
from passages that do not hold the answer: if it is right, it is right by chance. Answers *with* the right passage were not judged: the data
set here has no texts of answers.

{table(header, rows)}

The model wrote {len(answers.seconds)} answers, in {statistics.median(answers.seconds):.0f} s at the median. The load average of the machine was {os.getloadavg()[2]:.0f} on {len(os.sched_getaffinity(0))} processors when this
was written.

### Some answers in full

The first {_SHOWN} questions of each kind, answered without τ. Nobody picked them.

{_shown(found[POLICIES[0].name], answers)}
"""


def _cells(found: Found, answers: _Answers) -> list[str]:
    cells = []
    for kind in ("unanswerable", "off topic"):
        said = [_said(each.text, reply, answers) for each, reply in found[kind]]
        cells.append(share(sum(not declines(each) for each in said) / len(said), 2))
    outcomes = [
        "declined" if declines(_said(each.text, reply, answers)) else ("with" if has_answer(each, reply) else "without")
        for each, reply in found["answerable"]
    ]
    cells += [share(outcomes.count(outcome) / len(outcomes), 2) for outcome in ("without", "with", "declined")]
    return cells


def _said(question: str, reply: SearchResponse, answers: _Answers) -> str:
    return answers.to(question, tuple(each.text or "" for each in reply.results))


def _shown(found: Found, answers: _Answers) -> str:
    lines = []
    for kind, asked in found.items():
        for question, reply in asked[:_SHOWN]:
            said = _said(question.text, reply, answers).replace("\n", " ").replace("`", "'")
            lines.append(f"- {kind}: `{question.text}` → `{said}`")
    return "\n".join(lines)
