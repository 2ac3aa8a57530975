"""Two calibrations of texts that try to break the page: by the papers' rule, and by certified probabilities."""

from pathlib import Path

import pytest

from taugate.evidence.rules import ThresholdRule
from tests.calibration.report.studies import NASTY, Studied, sample_texts, studied, write


@pytest.fixture(scope="session")
def mixed(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with nasty texts, and with 60 queries whose document is not there."""
    documents, queries = sample_texts(sample)
    labelled = [(f"{text} {NASTY}", at) for at, text in enumerate(queries[:443])]
    unanswerable: list[tuple[str, int | None]] = [(text, None) for text in queries[443:]]
    nasty = [f"{NASTY} {text}" for text in documents[:443]]
    return write(tmp_path_factory.mktemp("mixed") / "<b>mixed", nasty, [*labelled, *unanswerable])


@pytest.fixture(scope="session")
def probability(mixed: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    rule = ThresholdRule.from_options(max_loss=[0.1], guarantee="expected-loss", policy="probability")
    return studied(mixed, encoder, tmp_path_factory.mktemp("probability") / "s", rule)


@pytest.fixture(scope="session")
def papers(mixed: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(mixed, encoder, tmp_path_factory.mktemp("papers") / "s")
