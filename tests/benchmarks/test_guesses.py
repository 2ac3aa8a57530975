from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.guesses.autocut import autocut
from benchmarks.guesses.outcomes import MAX_LOSS, SetOutcome
from benchmarks.guesses.rules import CERTIFIED, GUESSES
from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.retrieval.release.verify import verify

ROOT = Path(__file__).resolve().parents[2]


def published_autocut(values: list[np.float32], jumps: int) -> int:
    """How many results are left, by the published definition: one list, one step at a time."""
    count = len(values)
    if count <= 1:
        return count
    step = np.float32(1) / np.float32(count - 1)
    above_line = []
    for place, value in enumerate(values):
        with np.errstate(invalid="ignore"):
            stretched = (value - values[0]) / (values[-1] - values[0])
        above_line.append(stretched - np.float32(place) * step)
    found = 0
    for place in range(1, count):
        here, before = above_line[place], above_line[place - 1]
        if place == count - 1:  # the last has no next one: it is compared with the two before it
            jumped = here > before and here > above_line[place - 2]
        else:
            jumped = here > before and here > above_line[place + 1]
        found += jumped
        if jumped and found >= jumps:
            return place
    return count


# Hundredths make many equal scores, and many equal steps.
_SCORES = st.lists(st.integers(-100, 100).map(lambda whole: np.float32(whole / 100)), min_size=1, max_size=12)


@given(scores=_SCORES, jumps=st.integers(1, 4))
def test_autocut_is_the_published_one(scores: list[np.float32], jumps: int) -> None:
    ordered = sorted(scores, reverse=True)
    kept = autocut(np.array([ordered], dtype=np.float32), jumps)[0]
    left = published_autocut(ordered, jumps)
    assert kept.tolist() == [place < left for place in range(len(ordered))]


def test_autocut_by_hand() -> None:
    # Stretched: 0, .1, .8, .9, 1. Less the line 0, .25, .5, .75, 1: 0, −.15, .3, .15, 0. The one jump is at place 2.
    scores = np.array([[0.9, 0.85, 0.5, 0.45, 0.4]], dtype=np.float32)
    assert autocut(scores).tolist() == [[True, True, False, False, False]]
    assert autocut(scores, jumps=2).all()
    assert autocut(1 - scores).tolist() == autocut(scores).tolist()  # distances are cut alike
    assert autocut(np.full((1, 5), 0.5, dtype=np.float32)).all()


def test_the_certified_row_is_what_calibrate_writes(sample: Path, encoder: Path, tmp_path: Path) -> None:
    data, name = sample.parent, sample.name
    outcome = SetOutcome.measure(data, name, ("fake", str(encoder)), 0)
    command = ["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder)]
    assert cli.main([*command, "--max-loss", str(MAX_LOSS)]) == 0
    manifest = verify(tmp_path / str(current_id(tmp_path)))
    heldout, certified = manifest.metrics["heldout"], outcome.rules[CERTIFIED]
    assert outcome.policy == manifest.policy
    assert certified.kept.mean == pytest.approx(heldout.kept_fraction)
    everything, strict = (outcome.rules[GUESSES[place].name] for place in (0, 4))
    assert everything.kept.mean == 1
    assert everything.lost.mean == 0
    assert everything.wrong.mean == pytest.approx(1 - outcome.accuracy)
    assert strict.kept.mean < certified.kept.mean
    assert strict.lost.mean > certified.lost.mean
    assert strict.wrong.mean <= everything.wrong.mean


def test_the_table_in_the_readme_is_that_of_the_page() -> None:
    page, readme = (
        (ROOT / name).read_text(encoding="utf-8").splitlines() for name in ("docs/benchmarks/guesses.md", "README.md")
    )
    shown = [line for line in readme if line.startswith("| ") and "certified: `--max-loss" in line]
    assert len(shown) == 1
    start = readme.index(shown[0]) - len(GUESSES) - 2
    table = readme[start : start + len(GUESSES) + 3]
    at = page.index(shown[0]) - len(GUESSES) - 2
    assert table == page[at : at + len(GUESSES) + 3]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table[2:-1]] == [each.name for each in GUESSES]
