"""A second stage over an engine decides like one in the process; servers are real."""

import json
from pathlib import Path

import numpy as np
import pytest

from engines_tests.calibration.comparing import close
from engines_tests.calibration.conftest import OPTIONS, changed
from taugate.registry.catalog import find
from taugate.release.engine import EngineKind
from taugate.retrieval.engines.corpus import EngineDocuments
from taugate.retrieval.explanation import explain_stages
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture
from tests.calibration.update.corpora import Updating, manifest_of, newer
from tests.fake_reranker import write_fake_reranker
from tests.fake_token_encoder import write_fake_token_encoder

pytestmark = pytest.mark.usefixtures("broad")
WRITERS = {"cross-encoder": write_fake_reranker, "late-interaction": write_fake_token_encoder}


@pytest.mark.parametrize("reranker", ["cross-encoder", pytest.param("late-interaction", marks=pytest.mark.slow)])
def test_second_stage_over_an_engine_matches_in_process(  # noqa: PLR0917 (the engine and five fixtures)
    reranker: str,
    data: tuple[Path, Path],
    kind: EngineKind,
    tmp_path: Path,
    run: Capture,
    update: Updating,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [json.loads(line)["text"] for line in (data[0] / "corpus.jsonl").read_text().splitlines()]
    model = WRITERS[reranker](tmp_path / "model", texts)
    later = newer(data[0], tmp_path / "later", changed)
    where = {"here": (), "there": ("--engine", kind)}
    for name, more in where.items():
        options = (*OPTIONS, "--rerank", str(model), "--rerank-candidates", "12", *more)
        code, manifest, said = run(data[0], tmp_path / name, data[1], *options)
        assert code == 0, said
        assert manifest["second_stage"]["kind"] == reranker
        code, _, said = update(later, tmp_path / name, "--margin", "0.2")
        assert code == 0, said
    here, there = (manifest_of(tmp_path / name) for name in where)
    assert there["index"]["depth"] == 12
    for name in ("policy", "metrics", "relevance", "calibration", "drift", "refusal", "second_stage"):
        assert close(there[name], here[name]), name
    assert there["update"]["holds"]

    one, other = (load(find(tmp_path / name)) for name in where)
    queries = [Query(text, 4) for text in (golden.text for golden in one.golden)]
    served = one.retriever.search(queries)
    with monkeypatch.context() as patch:
        patch.setattr(EngineDocuments, "at", None)  # candidates come with their texts
        served_there = other.retriever.search(queries)
    for answer, answer_there in zip(served, served_there, strict=True):
        assert (answer_there.stage, answer_there.threshold) == ("second", answer.threshold)
        assert answer_there.positions.tolist() == answer.positions.tolist()
        np.testing.assert_allclose(answer_there.scores, answer.scores, rtol=0, atol=1e-6)
    (deep,) = one.retriever.search([Query(queries[0].text, 12, min_results=12)])
    last = one.documents[int(deep.positions[-1])].id  # only the second stage's candidates reach down to it
    explained = [explain_stages(each.retriever, each.documents, queries[0], last) for each in (one, other)]
    assert explained[1].rank == 12
    assert close(*(each.model_dump() for each in explained))
    for each in (one, other):
        each.close()
