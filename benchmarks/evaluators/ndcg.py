"""NDCG@10 by mteb and by Haystack, over HTTP, beside the figures of the release itself."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import environment
from benchmarks.evaluators import with_haystack, with_mteb
from benchmarks.evaluators.labelled import UNCUT, LabelledSet, ReleaseOutcomes, Scores, mean
from benchmarks.evaluators.search import HttpSearch, Run
from benchmarks.markdown import Target, table, targets
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate_client import TaugateClient

HEADING = "NDCG@10 on public data sets"
SETS = ("scifact", "squad_v2_dev")
_K, _ALLOWED = 10, 1e-6


@dataclass(frozen=True)
class EvaluatorsPlan:
    """data: the folder with the public data sets; sets: which of SETS, empty for all; work: an empty folder.

    queries: most of each set; seed: of the draw.
    """

    data: Path
    sets: tuple[str, ...]
    work: Path
    queries: int
    seed: int


@dataclass(frozen=True)
class Agreement:
    """Figures of one evaluator.

    Attributes:
        own: What the evaluator says.
        scores: Its queries'.
        wanted: Those of the release.
    """

    evaluator: str
    searched: str
    own: float
    scores: Scores
    wanted: Scores

    @property
    def difference(self) -> float:
        """Return by how much the mean over the evaluator's queries differs from that of the release."""
        return abs(mean(self.scores) - mean(self.wanted))

    @property
    def largest(self) -> float:
        """Return the largest difference of one query; a query that the evaluator leaves out has 0."""
        return max(abs(self.scores.get(query, 0.0) - wanted) for query, wanted in self.wanted.items())


def section(plan: EvaluatorsPlan) -> str:
    """Calibrate each set twice, serve both releases, and let both evaluators ask them."""
    rows, ties, wanted = [], [], []
    for name in plan.sets or SETS:
        data = LabelledSet.read(plan.data / name).part(plan.queries, plan.seed)
        data.write(plan.data / name, plan.work / name / "data")
        found, run = agreements(data, plan.work / name)
        rows += [
            [
                name, f"{len(data.queries):,}", each.searched, each.evaluator,
                f"{each.own:.10f}".rstrip("0"), f"{mean(each.wanted):.10f}", f"{each.difference:.0e}", f"{each.largest:.0e}",
            ]
            for each in found
        ]  # fmt: skip
        wanted += [
            Target(f"{name}, {each.searched}, {each.evaluator}", each.difference, at_most=_ALLOWED) for each in found
        ]
        ties.append([name, *_ties(run)])
    header = ["set", "queries", "searched", "evaluator", "its figure", "release's mean", "difference", "of a query"]
    return f"""\
{table(header, rows)}

{targets(wanted)}

**Ties.** pytrec_eval, which mteb computes with, sorts by score again and puts equal scores in descending order of their ids. Taugate puts
them in the order of the corpus. So a tie between a relevant and another document may move NDCG; *by rank* gives mteb scores that
fall from rank to rank, and leaves it nothing to break. Of the uncut results of each query:

{table(["set", "queries with equal scores among the results", "of these, ordered otherwise by id"], ties)}
"""


def agreements(data: LabelledSet, work: Path) -> tuple[list[Agreement], Run]:
    """Evaluate a data set.

    Returns:
        The figures, and the uncut results.
    """
    found: list[Agreement] = []
    with _served(data, work, "calibrated", []) as (outcomes, url), TaugateClient(url, timeout=60) as client:
        meta = with_mteb.model_meta()
        own, scores, run = with_mteb.ndcg(data, HttpSearch(client, UNCUT, meta), _K)
        found.append(Agreement("mteb", "uncut", own, scores, outcomes.uncut))
        own, scores, _ = with_mteb.ndcg(data, HttpSearch(client, UNCUT, meta, "rank"), _K)
        found.append(Agreement("mteb, by rank", "uncut", own, scores, outcomes.uncut))
        own, scores, _ = with_mteb.ndcg(data, HttpSearch(client, None, meta, "rank"), _K)
        found.append(Agreement("mteb, by rank", "cut at τ", own, scores, outcomes.kept))
        found.append(Agreement("Haystack", "cut at τ", *with_haystack.ndcg(data, url, _K), outcomes.kept))
    fixed = ["--policy", "similarity", "--tau", str(UNCUT)]
    with _served(data, work, "keeps all", fixed) as (outcomes, url):
        found.append(Agreement("Haystack", "uncut", *with_haystack.ndcg(data, url, _K), outcomes.uncut))
    return found, run


@contextmanager
def _served(data: LabelledSet, work: Path, name: str, options: list[str]) -> Iterator[tuple[ReleaseOutcomes, str]]:
    """Calibrate and serve; yields what the release says of each query, and the URL."""
    folder, releases = work / "data", work / name
    command = [sys.executable, "-m", "taugate", "calibrate", str(folder), "--releases", str(releases), *options]
    command += ["--refuse", "off"]  # outcomes are those of τ, so that ρ must refuse no query
    subprocess.run([*command, "--k", str(_K), "--holdout", "0", "--split", "test"], env=environment(), check=True)
    release = releases / (releases / "current").read_text(encoding="utf-8").strip()
    with Server(taugate(releases, "float32")) as server:
        yield ReleaseOutcomes.read(release, data.queries, _K), f"http://127.0.0.1:{server.port}"


def _ties(run: Run) -> list[str]:
    """Count the queries with equal scores, and those whose order pytrec_eval changes."""
    tied = [found for found in run.values() if len({*found.values()}) < len(found)]
    moved = [found for found in tied if [*found] != sorted(found, key=lambda name: (found[name], name), reverse=True)]
    return [f"{len(tied):,}", f"{len(moved):,}"]
