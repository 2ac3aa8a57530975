"""Which questions get passages at all: an upper bound of the wrong answers, whatever the language model."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import share, table
from benchmarks.rag.halves import Halves, Question
from benchmarks.rag.policies import POLICIES, Policy, served
from taugate_client import SearchRequest, SearchResponse, TaugateClient

HEADING = "Questions that get passages"
_BATCH = 32


@dataclass(frozen=True)
class RagPlan:
    """data: the folder with the public data sets; work: an empty folder.

    questions: of each kind, whose passages are counted; answers: of each kind, that the model answers; seed: of all.
    """

    data: Path
    work: Path
    questions: int
    answers: int
    seed: int


Found = dict[str, list[tuple[Question, SearchResponse]]]  # by kind of question


def section(plan: RagPlan) -> str:
    """Ask every policy every question, and count."""
    found = searched(plan, plan.questions)
    rows = [[policy.name, *_cells(found[policy.name])] for policy in POLICIES]
    header = [
        "what goes to the model", "unanswerable: passages", "off topic: passages", "answerable: passages",
        "answerable: the right one among them", "passages a question",
    ]  # fmt: skip
    asked = ", ".join(f"{len(each):,} {kind}" for kind, each in found[POLICIES[0].name].items())
    return f"""\
{asked} questions. Each cell is a share of them. A question that gets no passage is declined, and
cannot be answered wrongly. So the first two columns bound the wrong answers of any model to questions that the corpus does not answer; the
fourth bounds the right ones.

{table(header, rows)}

τ of the papers' rule declines questions about other subjects, and loses next to nothing. It cannot tell a question that looks answerable from
one that is. Refusals can, in part, and pay for it with questions that have an answer: *right one* says how many. A cut relative to the best
result, which `--max-loss` may choose, always keeps that result. It makes prompts shorter, and declines nothing.
"""


def searched(plan: RagPlan, most: int) -> dict[str, Found]:
    """Search for all questions with every policy, by its name.

    Args:
        most: Questions of each kind.
    """
    halves, data = Halves.of(plan.data, plan.seed), plan.work / "data"
    if not data.exists():
        halves.write(data)
    questions, found = halves.questions(most, plan.seed), {}
    for options, policies in itertools.groupby(POLICIES, key=lambda policy: policy.options):
        with served(options, data, plan.work) as client:
            for policy in policies:
                found[policy.name] = {kind: _search(client, policy, each) for kind, each in questions.items()}
    return found


def _search(
    client: TaugateClient, policy: Policy, questions: Sequence[Question]
) -> list[tuple[Question, SearchResponse]]:
    replies: list[SearchResponse] = []
    for start in range(0, len(questions), _BATCH):
        replies += client.search_batch(_request(each, policy) for each in questions[start : start + _BATCH])
    return [*zip(questions, replies, strict=True)]


def _request(question: Question, policy: Policy) -> SearchRequest:
    request: SearchRequest = {"query": question.text, "explore": False}
    return request if policy.threshold is None else {**request, "threshold": policy.threshold}


def _cells(found: Found) -> list[str]:
    given = {kind: [bool(reply.results) for _, reply in each] for kind, each in found.items()}
    right = [has_answer(question, reply) for question, reply in found["answerable"]]
    passages = [len(reply.results) for each in found.values() for _, reply in each]
    return [
        *(share(sum(given[kind]) / len(given[kind])) for kind in ("unanswerable", "off topic", "answerable")),
        share(sum(right) / len(right)),
        f"{sum(passages) / len(passages):.2f}",
    ]


def has_answer(question: Question, reply: SearchResponse) -> bool:
    """Tell whether the paragraph that answers a question is among the passages."""
    return any(each.id == question.relevant for each in reply.results)
