"""A model whose embeddings are spoilt on purpose, and the command that adapts it."""

import re
from pathlib import Path

import numpy as np
import pytest
import zaragoza_construction_faq
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = sorted(
    {
        word
        for entry in zaragoza_construction_faq.load(lang="en")
        for field in ("q", "a")
        for word in re.findall(r"\w+", entry[field].lower())
    }
)


def adapt(data: Path, base: Path, target: Path, *more: str) -> list[str]:
    return ["adapt", str(data), "--encoder", str(base), "--to", str(target), *more]


@pytest.fixture(scope="session")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model: every word has a random direction, and four dimensions in which all differ drown the others."""
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    folder = tmp_path_factory.mktemp("models") / "spoilt"
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(["[UNK]", *WORDS])}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).standard_normal((len(WORDS) + 1, 64)).astype(np.float32)
    weights[:, :4] = 12 * weights[:, :4] + 4
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder
