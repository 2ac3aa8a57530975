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
    compared_queries,
    of_documents,
    of_queries,
    passed,
    tilted,
)
from benchmarks.evidence.worlds import AT_WORST, FALLS, FOUND, LARGEST, WITH_GAINS, Drawn, Fall, Structure, structures
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.evidence.risk.losses import Statement

HEADING = "Size: a true loss exactly at the margin"
TRIALS = 500
_CHUNK = 250
_CHECKED = 6  # trials of each structure and fall, 50 of a structure, that the product as a whole judges too
_CHECKED_AT = 0.02
_MARGINS = (0.005, 0.01, 0.02, 0.05)
_ALLOWED = ALPHA + 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / TRIALS))
_ANEW = ", drawn anew"


@dataclass(frozen=True)
class Said:
    """One statement, and the test behind it: with documents as the unit, and with queries."""

    words: str
    statement: Statement
    by_document: Test
    by_query: Test
    falls: tuple[Fall, ...]
    capped: bool = False

    def now(self, structure: Structure) -> Test:
        """The test that the product takes."""
        return self.by_document if structure.units.unit == "document" else self.by_query

    def of(self, structure: Structure) -> Structure:
        """Documents with only the queries that the statement counts."""
        return structure.counted if self.capped else structure


_GATE = (*FALLS, *WITH_GAINS, LARGEST)
_SAID = (
    Said("gate and promotion, average document", "document", of_documents, tilted, _GATE),
    Said("gate and promotion, average query", "query", compared_queries, tilted, (*_GATE, AT_WORST)),
    Said(
        "certificate of a cut, average query",
        "query",
        of_queries,
        binomial,
        (*FALLS, LARGEST, AT_WORST, FOUND),
        capped=True,
    ),
)


Cells = dict[tuple[str, str, str], list[float]]  # by statement, structure and fall, one for each margin


def section(experiment: Experiment) -> str:
    """Simulate losses at the margin and count the statements that are wrong."""
    asked = structures(experiment)
    cells: Cells = defaultdict(list)
    for structure in asked:
        _measure(structure, cells, experiment.seed)
        print(f"size: {structure.name}", flush=True)
    given = [cell for (_, _, fall), each in cells.items() for cell in each if not fall.endswith(_ANEW)]
    anew = [cell for (_, _, fall), each in cells.items() for cell in each if fall.endswith(_ANEW)]
    worst = max(given)
    image = lines(
        "size",
        "Share of trials passed with a true loss at the margin",
        ("worlds, lowest to highest, percent", "passed"),
        {"sizes as labelled": ranked(given), "documents drawn anew": ranked(anew)},
        ALPHA,
    )
    tables = "".join(
        f"\n### {said.words[0].upper()}{said.words[1:]}\n\n{_table(asked, said, cells)}\n" for said in _SAID
    )
    return f"""\
Each simulated world loses exactly the margin, of the average document or of the average query, as the statement says. At most .05 of
its {TRIALS:,} trials may pass. A cell has the largest share over the margins {", ".join(share(each) for each in _MARGINS)}, as far as the data can show them at all; a dash
means that they can show none.

If no document has two queries, as in pubmedqa_labelled, each document is one query, and the tests are those by query: exponential
tilting in gate and promotion, and the exact binomial test in the certificate. An update and the two limits of abstention use the tests
of the gate and of the certificate. Taking the tests by query for documents that share queries passes up to .47 of such worlds
([research](../decisions.md#evidence-by-document)).

Losses fall on whole documents, on single queries, or in part on either. *Gains*: for two queries that are lost one is gained.
*Largest documents only*: the largest, which have four times the loss together; each is lost one time in four. *At worst*: as
the bound for queries has them at worst. *Half of the answers found*: the same, but only the answers that the search finds can be
lost, and which ones it finds is drawn in each trial. *Drawn anew*: the documents are drawn with replacement in each trial, so that the
numbers of their queries are chance, too. A certificate counts a document for a limited number of queries, and so do its worlds.

At most .05 + 2 standard errors = {share(_ALLOWED)} was wanted in every world. The largest share of the {len(given)} worlds is {share(worst)},
{verdict(reached=worst <= _ALLOWED)}; with documents drawn anew it is {share(max(anew))}, {verdict(reached=max(anew) <= _ALLOWED)}. Shares near 0 have a reason: the e-value
allows for the worst way in which the loss may fall on documents, and no world but the worst one is near its bound.

{image}
{tables}"""


def _measure(structure: Structure, cells: Cells, seed: int) -> None:
    for margin in _MARGINS:
        shown = [said for said in _SAID if can_be_shown(said.of(structure), said.now(structure), margin)]
        for fall in (*_GATE, AT_WORST, FOUND):
            if structure.sizes.max() == 1 and fall.on == "all" and fall.whole:
                continue  # a document is a query: the same as single queries
            rng = np.random.default_rng([seed, zlib.crc32(f"{structure.name} {fall.name} {margin}".encode())])
            asked = [said for said in shown if fall in said.falls]
            gates, cuts = ([said for said in asked if said.capped is capped] for capped in (False, True))
            for together in [gates, cuts] if fall.on == "all" else [[said] for said in asked]:  # or the truths differ
                for suffix, drawing in (("", fall.draw), (_ANEW, fall.draw_anew)):
                    if together and (not suffix or fall.on != "all"):
                        counted = together[0].of(structure)
                        draw = partial(drawing, rng, counted, margin, together[0].statement)
                        found = _cells(draw, margin, together, counted)
                        for said, cell in zip(together, found, strict=True):
                            cells[said.words, structure.name, fall.name + suffix].append(cell)
                        if not suffix and margin == _CHECKED_AT and fall is not FOUND:
                            check(counted, draw(_CHECKED), margin, gains=fall.gains > 0)


def _cells(draw: Callable[[int], Drawn], margin: float, together: Sequence[Said], structure: Structure) -> list[float]:
    """Compute the shares of trials in which the loss was said to be below the margin, all from the same trials."""
    passes: dict[Test, list[float]] = defaultdict(list)
    for _ in range(0, TRIALS, _CHUNK):
        drawn = draw(_CHUNK)
        for test in {said.now(structure) for said in together}:
            passes[test].append(float(passed(test(drawn, margin)).mean()))
    return [float(np.mean(passes[said.now(structure)])) for said in together]


def _table(asked: Sequence[Structure], said: Said, cells: Cells) -> str:
    names = list(dict.fromkeys(fall for words, _, fall in cells if words == said.words))
    rows = []
    for structure in asked:
        shown = [cells.get((said.words, structure.name, name)) for name in names]
        figures = [share(max(each)) if each else "–" for each in shown]
        rows.append([structure.name, structure.units.unit, *figures])
    return table(["documents", "unit", *names], rows)
