"""What the adapter for evaluators of others hands on: their NDCG is that of the release, query by query."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytrec_eval

from benchmarks.evaluators import with_haystack
from benchmarks.evaluators.labelled import UNCUT, LabelledSet, ReleaseOutcomes, Scores, mean
from benchmarks.evaluators.search import HttpSearch, Run
from taugate.cli import main as cli
from taugate_client import TaugateClient
from tests.service_process import ServiceProcess

K = 10
CUT, KEEPS_ALL = "0.45", str(UNCUT)


class Served(NamedTuple):
    data: LabelledSet
    outcomes: ReleaseOutcomes
    url: str
    release: Path


@pytest.fixture(scope="module", params=[CUT, KEEPS_ALL], ids=["cut", "keeps all"])
def served(
    request: pytest.FixtureRequest, sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    releases = tmp_path_factory.mktemp("evaluated")
    command = ["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder), "--k", str(K)]
    assert cli.main([*command, "--holdout", "0", "--policy", "similarity", "--tau", request.param]) == 0
    data = LabelledSet.read(sample)
    release = releases / (releases / "current").read_text(encoding="utf-8").strip()
    with ServiceProcess(releases) as service:
        url = f"http://127.0.0.1:{service.ready().port}"
        yield Served(data, ReleaseOutcomes.read(release, data.queries, K), url, release)


def run(data: LabelledSet, url: str, threshold: float | None, order: str) -> Run:
    rows = [{"id": name, "text": text} for name, text in data.queries.items()]
    with TaugateClient(url) as client:
        return HttpSearch(client, threshold, None, order).search(rows, top_k=K)  # type: ignore[arg-type]


def evaluated(data: LabelledSet, found: Run) -> Scores:
    """What mteb computes: pytrec_eval leaves out no query."""
    scores = pytrec_eval.RelevanceEvaluator(data.qrels, {f"ndcg_cut.{K}"}).evaluate(found)
    return {query: each[f"ndcg_cut_{K}"] for query, each in scores.items()}


@pytest.mark.parametrize("order", ["score", "rank"])
def test_uncut_figures_are_those_of_the_release(served: Served, order: str) -> None:
    data, outcomes, url, _ = served
    found = run(data, url, UNCUT, order)
    assert all(len(results) == K for results in found.values())
    scores = evaluated(data, found)
    assert scores == pytest.approx(outcomes.uncut, abs=1e-9)
    assert mean(scores) == pytest.approx(mean(outcomes.uncut), abs=1e-12)


def test_cut_figures_are_those_of_the_release(served: Served) -> None:
    data, outcomes, url, _ = served
    assert evaluated(data, run(data, url, None, "rank")) == pytest.approx(outcomes.kept, abs=1e-9)
    figure, scores = with_haystack.ndcg(data, url, K)
    assert scores == pytest.approx(outcomes.kept, abs=1e-9)
    assert figure == pytest.approx(mean(outcomes.kept), abs=1e-12)
    assert (mean(outcomes.kept) < mean(outcomes.uncut)) == any(
        len(each) < K for each in run(data, url, None, "rank").values()
    )


def test_equal_scores_are_ordered_by_id_unless_ranks_are_given() -> None:
    """Two documents that score the same: ours keeps the order of the corpus, pytrec_eval the higher id first."""
    data = LabelledSet("tied", {}, {"q": "?"}, {"q": {"a": 1}})
    assert evaluated(data, {"q": {"a": 0.5, "b": 0.5}})["q"] < 1
    assert evaluated(data, {"q": {"a": 1.0, "b": 0.5}})["q"] == 1


def test_a_release_of_other_queries_is_refused(served: Served) -> None:
    few = dict([*served.data.queries.items()][:3])
    with pytest.raises(ValueError, match="--holdout 0"):
        ReleaseOutcomes.read(served.release, few, K)
