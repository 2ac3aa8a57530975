"""Judges the live queries that the service has drawn (`taugate judge --traffic`): each verdict goes into the log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from taugate.drift.drawn import DrawnLog, DrawnVerdict, append, drawn_log
from taugate.errors import InputError
from taugate_label.judging import Judging, read_passages
from taugate_label.sample import Round, SampledQuery, rounds_folder
from taugate_label.session import Journal, Session, all_questions, finished, now, open_journal

_FOLDER = "drawn"  # of the journals, beside those of the splits


@dataclass(frozen=True)
class DrawnJudging(Judging):
    """A judge who is judging drawn queries.

    Attributes:
        logs: Log of drawn queries that each query is from.
        sent: Ids of the queries whose verdicts were appended.
    """

    journal: Journal
    logs: dict[str, Path]
    sent: set[str]

    next_words: ClassVar = "See the bounds with"

    @property
    def has_judged(self) -> bool:
        """True: the bounds can be seen at any time."""
        return True

    def save(self) -> None:
        """Append the verdicts of finished queries to the log that each is from."""
        judgements = self.journal.judgements()
        for query in finished(self.session.sample, self.documents, self.journal):
            if query.id not in self.sent:
                questions = all_questions(query, self.documents)
                relevant = [question.document.id for question in questions if judgements[question.pair]]
                verdict = DrawnVerdict(at=now(), query_id=query.id, judge=self.journal.judge, relevant=relevant)
                append(self.logs[query.id], [verdict])
                self.sent.add(query.id)


def drawn_sample(query_logs: Sequence[Path], n: int | None) -> tuple[Round, dict[str, Path]]:
    """Return the drawn queries that wait for people, the oldest first, at most `n`, and the log of each.

    Raises:
        InputError: If none waits.
    """
    queries, logs = [], {}
    for log in map(drawn_log, query_logs):
        follower = DrawnLog(log, None)
        try:
            follower.follow()
        except OSError as error:
            raise InputError(f"{log}: cannot be read ({error.strerror}); check the path and its permissions") from error
        for query in follower.waiting(model=False, directed=follower.directed):
            logs[query.query_id] = log
            names = [result.id for result in query.results]
            queries.append(
                SampledQuery(
                    id=query.query_id, text=query.query, origin="traffic", new=True, stratum=0, results=names, others=[]
                )
            )
    queries = queries[:n]
    if not queries:
        raise InputError("no drawn query waits for a judge; the service draws some if TAUGATE_JUDGE_SHARE is above 0")
    sample = Round(
        number=1,
        n=len(queries),
        seed=0,
        release="",
        corpus="",
        population=len(queries),
        sizes=[len(queries)],
        earlier={},
        queries=queries,
    )
    return sample, logs


@contextmanager
def judging_drawn(data: Path, sample: Round, logs: dict[str, Path], judge: str) -> Iterator[DrawnJudging]:
    """Begin or continue judging drawn queries.

    Raises:
        InputError: If a result is not in the data set, or the judge is judging in another process.
    """
    documents = read_passages(data, sample)
    if missing := next((name for query in sample.queries for name in query.results if name not in documents), None):
        raise InputError(f"{data}: has no document {missing!r}; give the data set of the release that serves")
    with open_journal(rounds_folder(data, _FOLDER) / f"{judge}.jsonl") as journal:
        work = DrawnJudging(data, _FOLDER, Session(sample, documents, journal), documents, journal.journal, logs, set())
        work.save()
        yield work
