"""The share of a text that a tokenizer does not read, for every kind of tokenizer."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from taugate.retrieval.encoder.encoder import UnreadCounter

WORD_PIECE = Tokenizer(models.WordPiece({"[UNK]": 0, "pump": 1, "##s": 2, "a": 3, "é": 4}, unk_token="[UNK]"))
WORD_PIECE.normalizer = normalizers.BertNormalizer(strip_accents=True)
WORD_PIECE.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
UNIGRAM = Tokenizer(models.Unigram([("x", -1.0), ("<unk>", 0.0), ("pump", -2.0), ("▁", -3.0), ("s", -3.0)], unk_id=1))
UNIGRAM.pre_tokenizer = pre_tokenizers.Metaspace()
CHARACTERS = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"))
BYTES = Tokenizer(
    models.BPE({each: place for place, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
)
BYTES.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES.decoder = decoders.ByteLevel()


@pytest.mark.parametrize(
    ("tokenizer", "text", "share"),
    [
        (WORD_PIECE, "pump pumps", 0.0),
        (WORD_PIECE, "pump ทีม", 2 / 6),  # a mark of ทีม does not count
        (WORD_PIECE, "pump pump🙂", 5 / 9),  # the whole word is one unknown token
        (WORD_PIECE, "p" * 101, 1.0),
        (WORD_PIECE, "\ue000", 1.0),  # which the normalizer leaves out
        (WORD_PIECE, "pump \u0301\u200b", 0.0),
        (WORD_PIECE, " ", 1.0),
        (UNIGRAM, "pumps x", 0.0),
        (UNIGRAM, "pump ทีม", 2 / 6),
        (CHARACTERS, "abba", 0.5),
        (BYTES, "ทีม 🙂 \ue000", 0.0),
    ],
)
def test_share_counts_unknown_characters(tokenizer: Tokenizer, text: str, share: float) -> None:
    assert UnreadCounter(tokenizer).share(text, tokenizer.encode(text)) == pytest.approx(share)


def test_share_excludes_prompt() -> None:
    counter, prompt = UnreadCounter(WORD_PIECE), "pump "
    frame = len(WORD_PIECE.encode(prompt).ids)
    for text, share in (("ทีม", 1.0), ("pump", 0.0), ("pump ท", 0.2), ("\ue000", 1.0)):
        encoding = WORD_PIECE.encode(prompt + text)
        assert counter.share(prompt + text, encoding, start=len(prompt), frame=frame) == pytest.approx(share)


def test_share_excludes_truncated_part() -> None:
    tokenizer = Tokenizer.from_str(WORD_PIECE.to_str())
    tokenizer.enable_truncation(2)
    encoding = tokenizer.encode("pump ทท pump pump pump")
    assert UnreadCounter(tokenizer).share("pump ทท pump pump pump", encoding) == pytest.approx(2 / 6)
