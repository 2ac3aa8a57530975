"""The command that adapts a model whose embeddings are spoilt on purpose."""

from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.spoilt_model import write_spoilt_model


def adapt(data: Path, base: Path, target: Path, *more: str) -> list[str]:
    """Return the command; by the score with shared words, the base of these tests is better than adapted encoders."""
    by = () if "--lexical" in more else ("--lexical", "off")
    return ["adapt", str(data), "--encoder", str(base), "--to", str(target), *by, *more]


@pytest.fixture(scope="session")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model."""
    pytest.importorskip("torch")
    return write_spoilt_model(tmp_path_factory.mktemp("models") / "spoilt")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, sample: Path, spoilt: Path) -> Path:
    """The model after an adaptation to the sample."""
    target = tmp_path_factory.mktemp("adapted") / "encoder"
    assert cli.main(adapt(sample, spoilt, target, "--split", "test")) == 0
    return target
