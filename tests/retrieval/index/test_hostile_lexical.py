"""A file with words that was changed is refused with one error, or gives results of the same shape."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import ReleaseError
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms

TEXTS = ["oil crisis in 1973", "oil price and oil embargo", "", "prime numbers in the price of numbers"]
Arrays = dict[str, np.ndarray]


def placed(name: str, place: int, value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[name].__setitem__(place, value)


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


def wrapping(arrays: Arrays) -> None:
    """Offsets whose differences are all positive in 64 bits, as the sums overflow."""
    arrays.update(vocabulary=np.arange(3, dtype=np.uint32), idf=np.ones(3, dtype=np.float32))
    arrays["offsets"] = np.array([0, (1 << 63) - 1, (1 << 64) - 2, len(arrays["documents"])], dtype=np.uint64)


CHANGES: dict[str, Callable[[Arrays], None]] = {
    "no statistics": lambda arrays: arrays.__delitem__("statistics"),
    "another array": lambda arrays: arrays.update(other=np.zeros(1)),
    "offsets beyond the end": placed("offsets", -1, 1 << 31),
    "offsets before the end": placed("offsets", -1, 1),
    "offsets not from 0": placed("offsets", 0, 1),
    "offsets falling": placed("offsets", 2, 0),
    "offsets beyond within": placed("offsets", 2, (1 << 32) - 1),
    "offsets wrapping": wrapping,
    "offsets signed": replaced("offsets", lambda array: array.astype(np.int64)),
    "offsets of one byte": replaced("offsets", lambda array: array.astype(np.uint8)),
    "offsets empty": replaced("offsets", lambda array: array[:0]),
    "document outside": placed("documents", 0, len(TEXTS)),
    "documents falling": replaced("documents", lambda array: array[::-1].copy()),
    "documents of four bytes": replaced("documents", lambda array: array.astype(np.uint32)),
    "documents fewer": replaced("documents", lambda array: array[:-1]),
    "documents none": replaced("documents", lambda array: array[:0]),
    "count 0": placed("counts", 0, 0),
    "counts of two bytes": replaced("counts", lambda array: array.astype(np.uint16)),
    "counts as a table": replaced("counts", lambda array: array[None]),
    "terms falling": replaced("vocabulary", lambda array: array[::-1].copy()),
    "term twice": replaced("vocabulary", lambda array: np.repeat(array[:1], len(array))),
    "terms as one number": replaced("vocabulary", lambda array: np.array(array[0], dtype=np.uint32)),
    "idf NaN": placed("idf", 0, np.nan),
    "idf infinite": placed("idf", 0, np.inf),
    "idf 0": placed("idf", 0, 0),
    "idf negative": placed("idf", 0, -1),
    "idf above that of an unseen term": placed("idf", 0, 50),
    "idf as whole numbers": replaced("idf", lambda array: np.ones(len(array), dtype=np.uint32)),
    "lengths fewer": replaced("lengths", lambda array: array[:-1]),
    "lengths signed": replaced("lengths", lambda array: array.astype(np.int64)),
    "k1 NaN": placed("statistics", 0, np.nan),
    "k1 negative": placed("statistics", 0, -0.1),
    "k1 infinite": placed("statistics", 0, np.inf),
    "b above 1": placed("statistics", 1, 1.1),
    "b NaN": placed("statistics", 1, np.nan),
    "mean length 0": placed("statistics", 2, 0),
    "mean length that overflows": placed("statistics", 2, 1e-309),
    "unseen idf NaN": placed("statistics", 3, np.nan),
    "unseen idf infinite": placed("statistics", 3, np.inf),
    "unseen idf that overflows": placed("statistics", 3, 1.7e308),
    "rule of a later version": placed("statistics", 4, 4),
    "rule NaN": placed("statistics", 4, np.nan),
    "statistics in float32": replaced("statistics", lambda array: array.astype(np.float32)),
    "statistics of three": replaced("statistics", lambda array: array[:3]),
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    LexicalIndex.of(TEXTS).save(tmp_path / "words")
    return tmp_path / "words"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_inconsistent_arrays_are_refused(stored: Path, change: Callable[[Arrays], None]) -> None:
    arrays = {name: array.copy() for name, array in load_file(stored).items()}
    change(arrays)
    save_file(arrays, stored)
    with pytest.raises(ReleaseError, match="words: does not hold the words of these documents; calibrate again"):
        LexicalIndex.load(stored, len(TEXTS))


def test_rewritten_arrays_are_accepted(stored: Path) -> None:
    """So that the refusals above are for the changes."""
    save_file(load_file(stored), stored)
    assert len(LexicalIndex.load(stored, len(TEXTS))) == len(TEXTS)


def test_any_changed_byte_is_refused_or_harmless(stored: Path) -> None:
    """Each byte of the file in turn; digests detect the changes that are harmless here."""
    content, refused = stored.read_bytes(), 0
    everywhere, query = np.arange(len(TEXTS)), query_terms("oil price in 1973 unseen")
    for place in range(len(content)):
        for value in (0, 255, content[place] ^ 1):
            stored.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
            try:
                index = LexicalIndex.load(stored, len(TEXTS))
            except ReleaseError:
                refused += 1
                continue
            shares = index.shares(query, everywhere)
            assert ((shares >= 0) & (shares <= 1)).all()
            assert len(index.term_scores(query).scores) == len(TEXTS)
            assert (index.reaching(query, 0.1).positions < len(TEXTS)).all()
    assert refused > len(content)


def test_truncated_file_is_refused(stored: Path) -> None:
    content = stored.read_bytes()
    for length in range(len(content)):
        stored.write_bytes(content[:length])
        with pytest.raises(ReleaseError):
            LexicalIndex.load(stored, len(TEXTS))
