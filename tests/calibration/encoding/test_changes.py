"""The difference between two corpora equals what comparing their documents one by one says."""

from collections import Counter

import numpy as np
import pytest

from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, CorpusDigests, ReusableVectors
from taugate.retrieval.documents.store import Document


def drawn(seed: int) -> list[Document]:
    """Some passages with few texts and ids, so that two corpora share many; chunks among them."""
    rng = np.random.default_rng(seed)
    passages = []
    for number in rng.permutation(40)[: rng.integers(1, 40)].tolist():
        metadata = {"year": int(rng.integers(2))}
        parent = f"p{number // 4}" if number % 3 == 0 else None
        passages.append(Document(f"d{number}", f"text {rng.integers(12)}", None, metadata, parent))
    return passages


@pytest.mark.parametrize("seed", range(60))
def test_changes_match_pairwise_comparison(seed: int) -> None:
    old, new = drawn(seed), drawn(seed // 2 + 1000) if seed % 3 else drawn(seed)
    found = CorpusChanges.between(CorpusDigests.of(old), CorpusDigests.of(new))
    before, after = {each.id: each for each in old}, {each.id: each for each in new}
    stay = [each.id for each in old if each.id in after]
    assert found.added == len({*after} - {*before})
    assert found.removed == len({*before} - {*after})
    assert found.changed == sum(before[name] != after[name] for name in stay)
    assert found.reordered == (stay != [each.id for each in new if each.id in before])
    assert found.is_empty == (old == new)
    texts, later = [each.text for each in old], [each.text for each in new]
    assert found.sources.tolist() == [texts.index(each) if each in texts else UNKNOWN for each in later]
    surplus = Counter(later)
    surplus.subtract(Counter(texts))
    assert found.extra_copies == {later.index(text): count for text, count in surplus.items() if count > 0}
    assert found.missing_copies == {texts.index(text): -count for text, count in surplus.items() if count < 0}


@pytest.mark.parametrize("seed", range(20))
def test_positions_by_passage_and_document_id(seed: int) -> None:
    passages = drawn(seed)
    digests = CorpusDigests.of(iter(passages))
    asked = [f"d{number}" for number in range(41)] + [f"p{number}" for number in range(11)]
    expected = {
        name: [place for place, each in enumerate(passages) if name in {each.id, each.parent}] for name in asked
    }
    assert digests.positions(asked) == {name: places for name, places in expected.items() if places}
    assert {name for name in asked if name in digests} == {name for name, places in expected.items() if places}
    assert digests.positions([]) == {}
    assert len(digests) == len(passages)


def test_reusable_vectors_come_from_sources() -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    known = ReusableVectors(np.array([UNKNOWN, 4, 4, UNKNOWN, UNKNOWN, 0]), vectors)
    assert len(known) == 3
    rows = known.rows(1, 3)
    assert rows is not None
    assert rows.places.tolist() == [0, 1]
    assert rows.vectors.tobytes() == vectors[[4, 4]].tobytes()
    assert known.rows(3, 2) is None
