"""Near misses: what is changed, that no document holds the new question, and that a seed gives equal ones."""

from pathlib import Path

import orjson
import pytest

from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.near_misses import NearMiss, generate_near_misses, make_near_misses, near_misses
from taugate.data.generation.term_index import TermIndex, asks_amount, index_terms, opposite, stem
from taugate.data.queries import NEAR_MISS_KINDS
from taugate.errors import InputError

ENGLISH = [
    ("Who designed the bridge of Arlen in the valley?", "Otto Brandt designed the Arlen bridge, which opened in 1871."),
    ("Who designed the harbour of Bermont by the sea?", "Lena Koch designed Bermont harbour; it was finished in 1902."),
    ("Who painted the ceiling of Castrop on his own?", "In 1633 Jan Maas painted the ceiling of Castrop palace."),
    ("What is the highest tower in Dunmore?", "The highest tower in Dunmore is the Wool Tower, 70 metres tall."),
    ("How many mills did Esker have in 1633?", "Esker had nine mills in 1633, and the Tully family owned all."),
    ("Which storm of 1702 hit Farrow?", "A storm hit Farrow in 1702."),
]
SPANISH = [
    ("¿Quién diseñó el puente de Arlena sobre el río?", "Otón Brando diseñó el puente de Arlena, abierto en 1871."),
    ("¿Quién diseñó el puerto de Bermonte junto al mar?", "Lena Coca diseñó el puerto de Bermonte en 1902."),
    ("¿Cuál es la mayor torre en Dunmora?", "La mayor torre en Dunmora es la Torre de la Lana."),
    ("¿Quién pintó el techo de Castropo en la plaza?", "Juan Mas pintó el techo del palacio de Castropo."),
    ("¿Cuántos molinos tenía la villa en 1633?", "La villa tenía nueve molinos en 1633."),
]
# Names are of one kind if the same words stand around them, and if a document mentions both.
USES = (
    "Visitors of Arlen, visitors of Bermont, visitors of Castrop, and visitors. " * 5,
    "Visitors of Arlena, visitors of Bermonte, visitors of Castropo, and visitors. " * 5,
)


def data_set(folder: Path, pairs: list[tuple[str, str]], more: tuple[str, ...] = ()) -> Dataset:
    (folder / "qrels").mkdir(parents=True)
    (folder / "spool").mkdir()
    # Many documents with frequent words and nothing else make all other words rare. Some stand between the answers, as
    # neighbours in the corpus count as passages of one text.
    filler = "filler text of the in de el la en"
    texts = [*more, *([filler] * 5), *USES, *([filler] * 200)]
    documents = [{"_id": f"x{row}", "text": text} for row, text in enumerate(texts)]
    for row, (_, answer) in enumerate(pairs):
        documents += [{"_id": f"d{row}", "text": answer}, *({"_id": f"f{row}{i}", "text": filler} for i in range(5))]
    queries = [{"_id": f"q{row}", "text": query} for row, (query, _) in enumerate(pairs)]
    (folder / "corpus.jsonl").write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in documents))
    (folder / "queries.jsonl").write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in queries))
    rows = [f"q{row}\td{row}\t1\n" for row in range(len(pairs))]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return read_dataset(folder, "test", folder / "spool")


def by_kind(made: list[NearMiss], kind: str) -> dict[int, str]:
    return {near_miss.source: near_miss.text for near_miss in made if near_miss.kind == kind}


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return data_set(tmp_path_factory.mktemp("english"), ENGLISH)


def test_every_kind_changes_one_part(english: Dataset) -> None:
    made = near_misses(english, 0)
    assert {near_miss.kind for near_miss in made} == set(NEAR_MISS_KINDS)
    assert by_kind(made, "opposite") == {3: "What is the lowest tower in Dunmore?"}
    assert by_kind(made, "name")[0] in {
        "Who designed the bridge of Bermont in the valley?",
        "Who designed the bridge of Castrop in the valley?",
    }
    years = by_kind(made, "year")
    year = years[4].removeprefix("How many mills did Esker have in ").removesuffix("?")
    assert 1593 <= int(year) <= 1673
    assert int(year) != 1633


def test_year_of_an_event_is_not_changed(english: Dataset) -> None:
    assert 5 not in by_kind(near_misses(english, 0), "year")


def test_spanish_queries_are_changed(tmp_path: Path) -> None:
    made = near_misses(data_set(tmp_path / "spanish", SPANISH), 0)
    assert by_kind(made, "opposite") == {2: "¿Cuál es la menor torre en Dunmora?"}
    assert by_kind(made, "name")[0] == "¿Quién diseñó el puente de Castropo sobre el río?"
    assert by_kind(made, "year")[4].startswith("¿Cuántos molinos tenía la villa en ")


def test_equal_seeds_give_equal_near_misses(english: Dataset) -> None:
    assert near_misses(english, 3) == near_misses(english, 3)
    assert any(near_misses(english, 3) != near_misses(english, seed) for seed in range(4, 8))


def test_name_that_a_document_joins_with_the_rest_is_not_used(tmp_path: Path) -> None:
    joined = ("The bridge near Bermont is old.", "A bridge stands in Castrop.")
    assert 0 not in by_kind(near_misses(data_set(tmp_path / "joined", ENGLISH, joined), 0), "name")


def test_name_that_neighbouring_documents_join_with_the_rest_is_not_used(tmp_path: Path) -> None:
    split = ("About a bridge.", "It is near Bermont and Castrop.")
    assert 0 not in by_kind(near_misses(data_set(tmp_path / "split", ENGLISH, split), 0), "name")


@pytest.mark.parametrize(
    "place", ["of Arlen of the Ford", "of Arlen, Ford", "of Arlen Ford", "of May", "of ARLEN", "of 2-Arlen"]
)
def test_part_of_a_name_month_and_abbreviation_are_not_changed(tmp_path: Path, place: str) -> None:
    pairs = [(ENGLISH[0][0].replace("of Arlen", place), ENGLISH[0][1] + " May, Ford."), *ENGLISH[1:]]
    assert 0 not in by_kind(near_misses(data_set(tmp_path / "parts", pairs), 0), "name")


def test_name_that_no_document_mentions_with_the_own_one_is_not_used(tmp_path: Path) -> None:
    apart = ("Visitors of Grell, visitors of Grell, and visitors. " * 5,)
    pairs = [*ENGLISH[:1], ("Who owned the harbour of Grell by the sea?", "Lena owned Grell harbour.")]
    assert by_kind(near_misses(data_set(tmp_path / "apart", pairs, apart), 0), "name") == {}
    met = ("Arlen is larger than Grell.", *apart)
    assert 0 in by_kind(near_misses(data_set(tmp_path / "met", pairs, met), 0), "name")


def test_name_of_another_kind_is_not_used(tmp_path: Path) -> None:
    pairs = [*ENGLISH[:1], ("Who saw the swift Esker by the sea?", "He saw Esker.")]
    other = ("Swift Esker runs, swift Esker walks, and swift Esker stays in Arlen. " * 20,)
    assert 0 not in by_kind(near_misses(data_set(tmp_path / "other", pairs, other), 0), "name")


def test_queries_of_the_data_set_are_not_repeated(tmp_path: Path) -> None:
    pairs = [*ENGLISH, ("What is the lowest tower in  Dunmore?", "It has one floor.")]
    assert by_kind(near_misses(data_set(tmp_path / "data", pairs), 0), "opposite") == {}


def test_number_of_each_kind_is_limited(english: Dataset) -> None:
    made = make_near_misses(english, 0, max_per_kind=1)
    assert [near_miss.kind for near_miss in made] == list(NEAR_MISS_KINDS)


def test_only_names_of_claims_are_changed(tmp_path: Path) -> None:
    claims = [
        (query.replace("Who ", "People ").replace("What is", "Here is").rstrip("?"), text)
        for query, text in ENGLISH[:4]
    ]
    assert {near_miss.kind for near_miss in near_misses(data_set(tmp_path / "claims", claims), 0)} <= {"name"}


def test_crops_are_not_changed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert near_misses(data_set(data, ENGLISH), 0)
    queries = (data / "queries.jsonl").read_text()
    (data / "queries.jsonl").write_text(queries.replace('"}', '","origin":"crop"}'))
    assert near_misses(reread(data), 0) == []


def test_language_without_spaces_gives_no_error(tmp_path: Path) -> None:
    pairs = [("桥是谁设计的？", "桥是奥托设计的。"), ("1871年谁来了？", "1871年奥托来了。")]
    assert near_misses(data_set(tmp_path / "chinese", pairs), 0) == []


def written(data: Path) -> list[dict[str, object]]:
    lines = (data / "queries.jsonl").read_bytes().splitlines()
    return [record for line in lines if (record := orjson.loads(line)).get("origin") == "near_miss"]


def reread(data: Path) -> Dataset:
    spool = data / f"spool-{len(list(data.iterdir()))}"
    spool.mkdir()
    return read_dataset(data, "test", spool)


def test_near_misses_are_written_and_can_be_corrected(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = near_misses(data_set(data, ENGLISH), 0)
    before = (data / "queries.jsonl").read_text()
    assert len(generate_near_misses(data, "test", 1000, 0)) == len(made)
    assert (data / "queries.jsonl").read_text().startswith(before)
    assert [path.name for path in (data / "qrels").iterdir()] == ["test.tsv"]
    assert written(data)[-1] == {
        "_id": "opposite:q3",
        "text": "What is the lowest tower in Dunmore?",
        "origin": "near_miss",
        "kind": "opposite",
        "source": "q3",
        "answerable": False,
    }
    dataset = reread(data)
    assert (dataset.unanswerable, near_misses(dataset, 5)) == ([], made)

    lines = (data / "queries.jsonl").read_text().splitlines(keepends=True)
    (data / "queries.jsonl").write_text("".join(lines[:-1]))
    assert near_misses(reread(data), 5) == made[:-1]

    generate_near_misses(data, "test", 1000, 0)
    assert len(written(data)) == len(made)


def test_near_misses_of_other_queries_are_made_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = near_misses(data_set(data, ENGLISH), 0)
    foreign = {"_id": "n", "text": "Who?", "origin": "near_miss", "kind": "name", "source": "gone", "answerable": False}
    with (data / "queries.jsonl").open("ab") as queries:
        queries.write(orjson.dumps(foreign) + b"\n")
    assert near_misses(reread(data), 0) == made


def test_queries_that_cannot_be_changed_are_reported(tmp_path: Path) -> None:
    data_set(tmp_path / "data", [("who?", "somebody")])
    with pytest.raises(InputError, match="no query of split test can be changed so that surely no document answers it"):
        generate_near_misses(tmp_path / "data", "test", 1000, 0)
    assert written(tmp_path / "data") == []


def test_terms_are_stems_and_numbers() -> None:
    found = index_terms("The Normans' 1871 castle-keep 城堡")
    assert [(term.text, term.key, term.is_year) for term in found] == [
        ("The", "the", False),
        ("Normans", "norman", False),
        ("1871", "1871", True),
        ("castle", "castle", False),
        ("keep", "keep", False),
    ]
    assert stem("international") == stem("internal")


def test_index_separates_rare_and_common_terms(tmp_path: Path) -> None:
    dataset = data_set(tmp_path / "data", ENGLISH, ("Otto was here", "A storm hit Otto"))
    index = TermIndex.build(dataset.documents, {"otto", "text", "absent", "storm"}, {1})
    assert (index.rare(["otto", "text", "absent", "otto"]), index.common) == (["otto"], {"text"})
    assert index.holding_all(["otto", "storm"]) == {1}
    assert index.holding_any(["otto", "storm", "text"]) == {
        0,
        1,
        209,
        209 + 5 * 6,
    }  # the first and the last answer, too
    assert "storm" in index.keys[1]


def test_names_are_alike_if_the_words_around_are(tmp_path: Path) -> None:
    uses = ("the Swift runs, the Swift walks, and the Swift stays. " * 2,)
    index = TermIndex.build(
        data_set(tmp_path / "data", ENGLISH, uses).documents, {"arlen", "bermon", "swift", "dunmor"}, set()
    )
    assert index.alikeness(("arlen",), ("bermon",)) > 0.7
    assert index.alikeness(("arlen",), ("swift",)) == 0
    assert index.alikeness(("arlen",), ("dunmor",)) == 0  # used too seldom


def test_closed_classes_depend_on_the_language() -> None:
    assert opposite("highest", "English") == "lowest"
    assert opposite("lowest", "English") == "highest"
    assert opposite("highest", "German") is None
    assert asks_amount("In 1900, how many came?", "English")
    assert asks_amount("¿Cuántas vinieron?", "Spanish")
    assert not asks_amount("Who knows somehow many?", "English")
    assert not asks_amount("How many came?", None)
