"""The application of how-to/rag-application.md calls the model only if a passage is above the threshold."""

from pathlib import Path

import httpx
import pytest

from tests.docs.code_blocks import ROOT, PageRun, code_blocks
from tests.language_model import fake_model
from tests.service_process import ServiceProcess

PAGE = ROOT / "docs" / "how-to" / "rag-application.md"


def judged(service: ServiceProcess) -> float:
    lines = httpx.get(f"http://127.0.0.1:{service.port}/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith('taugate_feedback_total{outcome="relevant"')
    )


@pytest.mark.slow
def test_example_declines_answers_and_judges(releases: Path, tmp_path: Path) -> None:
    (program,) = [block for block in code_blocks(PAGE.read_text(encoding="utf-8")) if "MODEL_URL" in block.text]
    # With the encoder of the tests, every question of the page has results: a threshold of 2 stands for a high τ.
    with_options = program.text.replace("taugate.search(question)", "taugate.search(question, **options(question))")
    patched = with_options.replace(
        "def answer(",
        'def options(question):\n    return {"threshold": 2.0} if "pizza" in question else {}\n\n\ndef answer(',
    )
    assert patched != program.text
    with ServiceProcess(releases) as service, fake_model() as model:
        reader = PageRun(tmp_path, model.url)
        reader.port = service.ready().port
        before = judged(service)
        reader.run(type(program)(program.language, patched, program.line, left_out=False))
        assert reader.printed.startswith("I found nothing about that (all_below_threshold).\n")
        assert len(model.requests) == 1, "without passages the model is not called"
        (system, user) = model.requests[0]["messages"]
        assert "I don't know" in system["content"]
        assert user["content"].endswith("Question: Who is liable for hidden defects?")
        assert judged(service) == before + 1
        assert "Sources: ['" in reader.printed
