"""What becomes of the 95 % statements when queries come in clusters: whole documents are drawn, not single queries."""

import numpy as np
from bench import Bench
from page import share, table, verdict
from trials import LOSSES, Positions, certified

from calibration.decide import decide
from calibration.evidence import Evidence
from calibration.metrics.judged import JudgedQueries
from calibration.query_set.clusters import Labels, clusters
from calibration.risk.rule import Rule
from calibration.scored import Scored
from retrieval.index.flat import FlatIndex
from retrieval.index.topk import TopK
from retrieval.policy import keep

HEADING = "Coverage when queries share documents"
SETS = ("squad_v2_dev", "squadshifts_new_wiki", "covidqa_chunks", "scifact/train", "mixed_large")
K = 5
_SHARE = 0.7  # of the queries that calibrate, about
_ALLOWED = 0.05


def section(bench: Bench) -> str:
    """The section of the page."""
    rows = [row for name in bench.wanted(SETS) for row in _rows(bench, name)]
    error = np.sqrt(_ALLOWED * (1 - _ALLOWED) / bench.splits)
    header = [
        "set",
        "clusters",
        "queries",
        "δ",
        "risk control above δ",
        "kept",
        "non-inferiority above δ",
        "kept",
        "target ≤ .05",
    ]
    return f"""\
The statements of risk control are of queries drawn one by one. Here whole clusters are drawn with replacement, each with all
of its queries (those that share a relevant document), until 70 % of the set's number calibrate, as when somebody labels a
document's questions together; the loss over the whole set is the truth. Policy similarity, K = {K}, {bench.splits:,} draws;
.05 is allowed, ± {share(error)}. Risk control at 95 % does not promise to hold here; non-inferiority, which counts the
queries of a document as fewer, should, and the last column says whether it does within two standard errors.

{table(header, rows)}
"""


def _rows(bench: Bench, name: str) -> list[list[object]]:
    encoded = bench.encoded(name)
    vectors = encoded.vectors.answerable
    judged = JudgedQueries.judge(encoded.queries, vectors, FlatIndex.build(encoded.vectors.documents), K)
    scored = Scored(judged, TopK(judged.top.scores[:0], judged.top.positions[:0]), None, None)
    labels = clusters(encoded.queries)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    rows: list[list[object]] = []
    for loss in LOSSES:
        rules = (
            certified("similarity", "high-probability", loss),
            Rule("non-inferiority", "similarity", max_loss=loss),
        )
        done = np.array(
            [
                [_outcome(rule, scored, *_draw(members, bench.seed, number)) for rule in rules]
                for number in range(bench.splits)
            ]
        )  # (draws, rules, 2)
        (above, kept), (other_above, other_kept) = (
            (float((done[:, at, 0] > loss + 1e-12).mean()), float(done[:, at, 1].mean())) for at in range(2)
        )
        reached = other_above <= _ALLOWED + 2 * np.sqrt(_ALLOWED * (1 - _ALLOWED) / bench.splits)
        cells = [share(each) for each in (above, kept, other_above, other_kept)]
        rows.append(
            [name, f"{len(members):,}", f"{len(labels):,}", share(loss, 2), *cells, verdict(reached=bool(reached))]
        )
    return rows


def _draw(members: list[Positions], seed: int, number: int) -> tuple[Positions, Labels]:
    """Positions of the queries, and which of the drawn clusters each is in."""
    rng = np.random.default_rng([seed, number])
    drawn = [members[at] for at in rng.integers(0, len(members), len(members)).tolist()]
    sizes = np.array([len(each) for each in drawn])
    enough = int(np.searchsorted(np.cumsum(sizes), _SHARE * sum(map(len, members)))) + 1
    return np.concatenate(drawn[:enough]), np.repeat(np.arange(len(sizes[:enough])), sizes[:enough])


def _outcome(rule: Rule, scored: Scored, calibration: Positions, labels: Labels) -> tuple[float, float]:
    """True loss and share kept."""
    rows = np.zeros((1, 1), dtype=np.int64)  # these rules look at no bootstrap
    drawn = scored.take(calibration)  # a cluster that was drawn twice is two
    tau = decide(rule, Evidence(drawn, np.arange(len(calibration)), rows, None, None, labels, 0)).tau
    kept = keep(scored.judged.top.scores, None if tau is None else np.float32(tau))
    return float(scored.judged.lost("accuracy", kept).mean()), float(kept.mean())
