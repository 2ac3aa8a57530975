"""A collection that is not ready is refused with the first problem."""

import pytest

from taugate.errors import ReleaseError
from taugate.release.engine import EngineRecord
from taugate.retrieval.engines.engine import CollectionState, Positions, Rows, open_verified
from tests.retrieval.engines.corpus import D, corpus, soon

ROWS = corpus(9)
RECORD = EngineRecord(kind="milvus", rows=9, dimension=D, shards=("a",), sample="b")


class Fake:
    """An engine whose one collection is in some state, and its own collection."""

    kind = "milvus"

    def __init__(self, state: CollectionState) -> None:
        self._state = state

    def collection(self, name: str, breadth: int, deadline: float) -> "Fake":
        assert (name, breadth) == (RECORD.collection, RECORD.breadth)
        return self

    def state(self, deadline: float) -> CollectionState:
        return self._state

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        return Rows(ROWS.vectors[positions], [ROWS.documents[at] for at in positions.tolist()])


WRONG = [
    (CollectionState(7, 8, built=False, pending=9, loaded=False), f"holds vectors of dimension 7, .* makes {D}"),
    (CollectionState(D, 8, built=False, pending=9, loaded=False), "has no finished index"),
    (CollectionState(D, 8, built=True, pending=3, loaded=False), "3 rows are still being added to its index"),
    (CollectionState(D, 8, built=True, pending=0, loaded=False), "is not loaded on every replica"),
    (CollectionState(D, 8, built=True, pending=0, loaded=True), "holds 8 rows, not 9"),
    (CollectionState(D, 9, built=True, pending=0, loaded=True), "vectors or documents differ"),
]


@pytest.mark.parametrize(("state", "message"), WRONG)
def test_unready_state_has_own_message(state: CollectionState, message: str) -> None:
    with pytest.raises(ReleaseError, match=f"^{RECORD.collection}: {message}"):
        open_verified(Fake(state), RECORD, D, soon())  # type: ignore[arg-type]
