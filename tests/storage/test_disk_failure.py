"""A full disk is recognised in the errors of every library."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from taugate.storage.files import disk_failure


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A file to which every write fails as on a full disk; a link, as a library may rename another file over it."""
    (tmp_path / "full").symlink_to("/dev/full")
    return tmp_path / "full"


def text(path: Path) -> None:
    path.write_text("text")


def tokenizer(path: Path) -> None:
    Tokenizer(models.WordLevel({"word": 0}, "word")).save(str(path))


@pytest.mark.parametrize("write", [text, tokenizer])
def test_system_message_is_extracted(write: Callable[[Path], object], full: Path) -> None:
    with pytest.raises(Exception, match="No space left") as raised:
        write(full)
    assert disk_failure(raised.value) == "No space left on device"


def test_safetensors_quotes_the_system(tmp_path: Path) -> None:
    with pytest.raises(SafetensorError) as raised:
        save_file({"weights": np.ones(1)}, tmp_path / "nowhere" / "weights")
    assert disk_failure(raised.value) == "No such file or directory"


def test_pytorch_only_counts_bytes(full: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.save(torch.ones(1 << 16), full)
    assert disk_failure(raised.value) == "a file cannot be written completely; the disk may be full"


def test_any_other_error_is_none() -> None:
    assert disk_failure(RuntimeError("shapes differ")) is None
    assert disk_failure(ValueError("")) is None
