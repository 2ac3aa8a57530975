"""A small transformer with random weights, whose tokens are the words of the sample."""

import re
from pathlib import Path

import zaragoza_construction_faq


def words() -> list[str]:
    entries = zaragoza_construction_faq.load(lang="en")
    return sorted(
        {word for entry in entries for field in ("q", "a") for word in re.findall(r"\w+", entry[field].lower())}
    )


def write_small_bert(folder: Path, layers: int = 3, spread: float = 0.3) -> Path:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast  # type: ignore[attr-defined]

    parts = folder / "parts"
    parts.mkdir(parents=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (parts / "vocab.txt").write_text("\n".join([*special, *words()]))
    tokenizer = BertTokenizerFast(str(parts / "vocab.txt"), model_max_length=48)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
        initializer_range=spread,
    )
    BertModel(config).save_pretrained(parts)
    tokenizer.save_pretrained(parts)
    modules = [Transformer(str(parts), max_seq_length=48), Pooling(32), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return folder / "model"
