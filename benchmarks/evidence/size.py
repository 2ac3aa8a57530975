"""Count wrong statements if the true loss is exactly the margin: gate, promotion and certificate."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.evidence.plot import lines, ranked
from benchmarks.evidence.verdicts import (
    ALPHA,
    Test,
    binomial,
    can_be_shown,
    check,
    of_documents,
    of_queries,
    passed,
    tilted,
)
from benchmarks.evidence.worlds import AT_WORST, FALLS, FOUND, LARGEST, WITH_GAINS, Drawn, Fall, Structure, structures
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.calibration.risk.e_values import Statement

HEADING = "Size: a true loss exactly at the margin"
TRIALS = 1000
_CHUNK = 250
_BEFORE = 250  # trials of the release before
_CHECKED = 6  # trials of each structure and fall, 50 of a structure, that the product as a whole judges too
_CHECKED_AT = 0.02
_MARGINS = (0.005, 0.01, 0.02, 0.05)
_ALLOWED = ALPHA + 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / TRIALS))
_ANEW = ", drawn anew"


@dataclass(frozen=True)
class Said:
    """One statement, and the test behind it: with documents as the unit, with queries, and in the release before."""

    words: str
    statement: Statement
    by_document: Test
    by_query: Test
    before: Test
    falls: tuple[Fall, ...]

    def now(self, structure: Structure) -> Test:
        """The test that the product takes."""
        return self.by_document if structure.units.unit == "document" else self.by_query


_GATE = (*FALLS, *WITH_GAINS, LARGEST)
_SAID = (
    Said("gate and promotion, average document", "document", of_documents, tilted, tilted, _GATE),
    Said("gate and promotion, average query", "query", of_queries, tilted, tilted, (*_GATE, AT_WORST)),
    Said(
        "certificate of a cut, average query",
        "query",
        of_queries,
        binomial,
        binomial,
        (*FALLS, LARGEST, AT_WORST, FOUND),
    ),
)


@dataclass(frozen=True)
class SizeCell:
    """Shares of trials in which the loss was said to be below the margin."""

    now: float
    before: float

    def __str__(self) -> str:
        return f"{share(self.now)} ({share(self.before, 2)})"


Cells = dict[tuple[str, str, str], list[SizeCell]]  # by statement, structure and fall, one for each margin


def section(experiment: Experiment) -> str:
    """Simulate losses at the margin and count the statements that are wrong."""
    asked = structures(experiment)
    cells: Cells = defaultdict(list)
    for structure in asked:
        _measure(structure, cells, experiment.seed)
        print(f"size: {structure.name}", flush=True)
    given = [cell for (_, _, fall), each in cells.items() for cell in each if not fall.endswith(_ANEW)]
    anew = [cell for (_, _, fall), each in cells.items() for cell in each if fall.endswith(_ANEW)]
    worst = max(cell.now for cell in given)
    image = lines(
        "size",
        "Share of trials passed with a true loss at the margin",
        ("worlds, lowest to highest, percent", "passed"),
        {"now": ranked([cell.now for cell in given]), "before": ranked([cell.before for cell in given])},
        ALPHA,
    )
    tables = "".join(
        f"\n### {said.words[0].upper()}{said.words[1:]}\n\n{_table(asked, said, cells)}\n" for said in _SAID
    )
    return f"""\
Each simulated world loses exactly the margin, of the average document or of the average query, as the statement says. At most .05 of
its {TRIALS:,} trials may pass. A cell has the largest share over the margins {", ".join(share(each) for each in _MARGINS)}, as far as the data can show them at all; a dash
means that they can show none.

In brackets are the tests of the release before in the same worlds: exponential tilting of the losses by document in gate and promotion,
and the exact binomial test by query in the certificate ({_BEFORE} trials). If no document has two queries, as in pubmedqa_labelled, these tests
are still used, and each document is one query.

Losses fall on whole documents, on single queries, or in part on either. *Gains*: for two queries that are lost one is gained.
*Largest documents only*: the largest, which have four times the loss together; each is lost one time in four. *At worst*: as
the bound for queries has them at worst. *Half of the answers found*: the same, but only the answers that the search finds can be
lost, and which ones it finds is drawn in each trial. The statements hold for documents with so many queries each; *drawn anew* is
beyond them: the documents are drawn with replacement in each trial, so that the numbers of their queries are chance, too.

At most .05 + 2 standard errors = {share(_ALLOWED)} was wanted in every world. The largest share of the {len(given)} worlds is {share(worst)},
{verdict(reached=worst <= _ALLOWED)}; before it was {share(max(cell.before for cell in given))}, and above {share(_ALLOWED)} in {sum(cell.before > _ALLOWED for cell in given)} worlds. With documents drawn
anew it is {share(max(cell.now for cell in anew))}, before {share(max(cell.before for cell in anew))}.

{image}
{tables}"""


def _measure(structure: Structure, cells: Cells, seed: int) -> None:
    for margin in _MARGINS:
        shown = [said for said in _SAID if can_be_shown(structure, said.now(structure), margin)]
        for fall in (*_GATE, AT_WORST, FOUND):
            if structure.sizes.max() == 1 and fall.on == "all" and fall.whole:
                continue  # a document is a query: the same as single queries
            rng = np.random.default_rng([seed, zlib.crc32(f"{structure.name} {fall.name} {margin}".encode())])
            asked = [said for said in shown if fall in said.falls]
            for together in [asked] if fall.on == "all" else [[said] for said in asked]:  # or the truths differ
                for suffix, drawing in (("", fall.draw), (_ANEW, fall.draw_anew)):
                    if together and (not suffix or fall.on != "all"):
                        draw = partial(drawing, rng, structure, margin, together[0].statement)
                        found = _cells(draw, margin, together, structure)
                        for said, cell in zip(together, found, strict=True):
                            cells[said.words, structure.name, fall.name + suffix].append(cell)
                        if not suffix and margin == _CHECKED_AT and fall is not FOUND:
                            check(structure, draw(_CHECKED), margin, gains=fall.gains > 0)


def _cells(
    draw: Callable[[int], Drawn], margin: float, together: Sequence[Said], structure: Structure
) -> list[SizeCell]:
    """Compute all cells from the same trials."""
    passes: dict[Test, list[float]] = defaultdict(list)
    for first in range(0, TRIALS, _CHUNK):
        drawn = draw(_CHUNK)
        tests = {said.now(structure) for said in together}
        if first < _BEFORE:
            tests |= {said.before for said in together}
        for test in tests:
            passes[test].append(float(passed(test(drawn, margin)).mean()))
    shares = {test: float(np.mean(each)) for test, each in passes.items()}
    return [SizeCell(shares[said.now(structure)], shares[said.before]) for said in together]


def _table(asked: Sequence[Structure], said: Said, cells: Cells) -> str:
    names = list(dict.fromkeys(fall for words, _, fall in cells if words == said.words))
    rows = []
    for structure in asked:
        shown = [cells.get((said.words, structure.name, name)) for name in names]
        figures = [SizeCell(max(c.now for c in each), max(c.before for c in each)) if each else "–" for each in shown]
        rows.append([structure.name, structure.units.unit, *figures])
    return table(["documents", "unit", *names], rows)
