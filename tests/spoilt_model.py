"""A model of sentence-transformers whose embeddings are spoilt on purpose."""

import re
from pathlib import Path

import numpy as np
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


def write_spoilt_model(folder: Path) -> Path:
    """Write a static model.

    Every word has a random direction, and four dimensions in which all differ drown the others.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(["[UNK]", *WORDS])}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).standard_normal((len(WORDS) + 1, 64)).astype(np.float32)
    weights[:, :4] = 12 * weights[:, :4] + 4
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder
