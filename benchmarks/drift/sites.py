"""Certify a cut on the queries of one site, and measure its loss and the alarm on the queries of another."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.drift.fleets import MOST
from benchmarks.drift.near import delays_beside
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.traffic import Pool, encoded, labelled, released
from benchmarks.markdown import share, table
from taugate.policy.arrays import Float32
from taugate.policy.policy import POLICIES, keep
from taugate.retrieval.reader import Release

HEADING = "Another site of the corpus"
_SITES = ("squad_v2_dev", "squadshifts_new_wiki", "squadshifts_reddit", "pubmedqa_labelled")
_SHARES = (1.0, 0.5)
_LOSS = 0.05
_OPTIONS = ("--policy", "similarity", "--max-loss", f"{_LOSS:g}")
_ALL = "all-sites"


@dataclass(frozen=True)
class _Site:
    """Queries of a site that no calibration used.

    Attributes:
        vectors: (n, d) float32.
        relevant: Ids of the relevant documents of each query.
    """

    vectors: Float32
    relevant: list[set[str]]


def section(plan: DriftPlan) -> str:
    """Calibrate on each site, and serve every other one's queries."""
    data, work = plan.work / "sites-data", plan.work / "sites"
    served = _write(plan, data)
    releases = {name: released(data, name, work, *_OPTIONS) for name in _SITES}
    releases["all sites together"] = released(data, _ALL, work, *_OPTIONS)
    releases["each site (`--strata metadata.site`)"] = released(
        data, _ALL, plan.work / "sites-strata", *_OPTIONS, "--strata", "metadata.site"
    )
    sites = {
        name: _Site(encoded([*queries], releases[name], work / f"{name}.npy"), [*queries.values()])
        for name, queries in served.items()
    }
    losses, alarms = [], []
    for certified, release in releases.items():
        threshold = release.retriever.policy.threshold
        row = [share(_lost(release, site)) for site in sites.values()]
        losses.append([certified, "none" if threshold is None else f"{threshold:.3f}", *row])
        if certified in sites:
            pools = {name: Pool.of(site.vectors, release) for name, site in sites.items()}
            for part in _SHARES:
                cells = (
                    "" if name == certified else delays_beside(plan, release, pools[certified], pool, part)
                    for name, pool in pools.items()
                )
                alarms.append([certified, f"{part:.0%}", *cells])
    return f"""\
Several sites share a corpus: here the documents of four sets are one corpus, and every search is in all of it. A cut is certified on
the questions of one site, those about half of its documents: at most {share(_LOSS, 2)} of them lose their answer (`--max-loss {_LOSS:g}
--policy similarity --refuse off --lexical off`). The questions about the other half are served.

The share of the questions that lose their answer to the cut, by the site that asks:

{table(["certified on", "τ", *_SITES], losses)}

The number of queries until the alarm, from when another site asks so many of them: median / 90th percentile of {plan.runs} runs. A run
gives up after {MOST:,}. Until the alarm, and until somebody acts, that site loses what the table above says.

{table(["certified on", "of another", *_SITES], alarms)}
"""


def _write(plan: DriftPlan, data: Path) -> dict[str, dict[str, set[str]]]:
    """Write the data sets; returns the served queries by site, each a text with the ids of its relevant documents."""
    documents: list[bytes] = []
    used: dict[str, dict[str, set[str]]] = {}
    served: dict[str, dict[str, set[str]]] = {}
    for number, name in enumerate(_SITES):
        for line in (plan.data / name / "corpus.jsonl").read_bytes().splitlines():
            record = orjson.loads(line)
            own = {"_id": f"{name}:{record['_id']}", "metadata": {"site": name}}
            documents.append(orjson.dumps(record | own))
        queries = {
            text: {f"{name}:{document}" for document in relevant}
            for text, relevant in labelled(plan.data, name)
            if relevant
        }
        about = sorted({min(relevant) for relevant in queries.values()})
        rows = np.random.default_rng([plan.seed, number]).permutation(len(about))[: len(about) // 2]
        half = {about[row] for row in rows.tolist()}
        used[name] = {text: relevant for text, relevant in queries.items() if min(relevant) in half}
        served[name] = {text: relevant for text, relevant in queries.items() if min(relevant) not in half}
    every = {text: relevant for queries in used.values() for text, relevant in queries.items()}
    for name, queries in (used | {_ALL: every}).items():
        (data / name / "qrels").mkdir(parents=True, exist_ok=True)
        (data / name / "corpus.jsonl").write_bytes(b"\n".join(documents) + b"\n")
        with (data / name / "queries.jsonl").open("wb") as lines:
            lines.writelines(orjson.dumps({"_id": f"q{row}", "text": text}) + b"\n" for row, text in enumerate(queries))
        with (data / name / "qrels" / "test.tsv").open("w", encoding="utf-8") as lines:
            lines.write("query-id\tcorpus-id\tscore\n")
            for row, relevant in enumerate(queries.values()):
                lines.writelines(f"q{row}\t{document}\t1\n" for document in sorted(relevant))
    return served


def _lost(release: Release, site: _Site) -> float:
    """Share of the queries with a relevant document among the top-K and none among those kept."""
    top = release.retriever.index.search(site.vectors, release.manifest.policy.k)
    decisions = POLICIES[release.manifest.policy.kind].decide(top.scores, None)  # by similarity, as _OPTIONS say
    kept = keep(decisions, release.retriever.policy.threshold)
    correct: NDArray[np.bool_] = np.array(
        [
            [release.documents[position].id in relevant for position in positions]
            for positions, relevant in zip(top.positions.tolist(), site.relevant, strict=True)
        ]
    )
    return float((correct.any(axis=1) & ~(correct & kept).any(axis=1)).mean())
