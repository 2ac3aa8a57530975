"""Query logs as written by the service, with replies and judgements chosen by a test."""

from collections.abc import Sequence
from pathlib import Path

from taugate.drift.query_log import LoggedJudgement, LoggedQuery, ShownResult, line_bytes

RELEASE = "20260101T000000Z-0123456789ab"


class TrafficLog:
    """A log under construction; every reply and judgement is a second later than the previous one."""

    def __init__(self, collection: str = "faq") -> None:
        self.lines: list[bytes] = []
        self._collection = collection

    def asked(
        self,
        query: str,
        shown: Sequence[str],
        *,
        explored: dict[str, float] | None = None,
        ranks: Sequence[int] | None = None,
        **fields: object,
    ) -> str:
        """Log a reply to a query.

        Args:
            explored: Propensities by document.
            ranks: Of those shown. Returns its id.
        """
        identifier = f"{len(self.lines):032x}"
        propensities = explored or {}
        record = {
            "at": float(len(self.lines)),
            "query_id": identifier,
            "query": query,
            "key": None,
            "collection": self._collection,
            "release": RELEASE,
            "filter": None,
            "k": 3,
            "threshold": None,
            "group_by": None,
            "kept": len(shown),
            "topk": [0.9, 0.8, 0.7],
            "random": [0.1],
            "shown": [
                ShownResult(id=item, rank=rank, score=1 - rank / 10, propensity=propensities.get(item, 1.0))
                for rank, item in zip(ranks or range(1, len(shown) + 1), shown, strict=True)
            ],
        }
        self.lines.append(line_bytes(LoggedQuery(**record | fields)))  # type: ignore[arg-type]  # of the test's choice
        return identifier

    def judged(self, reply: str | None, document: str, relevant: bool = True, **fields: object) -> None:
        record = {
            "at": float(len(self.lines)),
            "query_id": reply,
            "query": None,
            "document_id": document,
            "relevant": relevant,
            "rank": None,
            "score": 0.9,
            "key": None,
            "collection": self._collection,
            "release": RELEASE,
        }
        self.lines.append(line_bytes(LoggedJudgement(**record | fields)))  # type: ignore[arg-type]  # as above

    def write(self, path: Path) -> Path:
        path.write_bytes(b"".join(self.lines))
        return path
