"""The sample is random within strata, its weights add up, and estimates are unbiased, also if it is cut short."""

import errno
from pathlib import Path

import numpy as np
import pytest

from label_tests.rounds import judged, passages, round_of, sampled
from taugate.data.lines import LineError
from taugate.errors import InputError
from taugate.retrieval.documents.store import Document
from taugate_label.page import segments
from taugate_label.sample import ABOVE, BELOW, NEAR, outcome_deviations, strata_of, stratum_order, weights
from taugate_label.session import Entry, Journal, open_journal, pair_of
from taugate_label.verdicts import Verdicts
from tests.storage.test_odd_volumes import remove_locks

DECISIONS = np.array([[0.9, 0.2], [0.52, 0.1], [0.3, 0.2], [0.8, 0.49], [0.1, 0.05], [0.95, 0.9]], dtype=np.float32)


def test_near_stratum_is_closest_third() -> None:
    assert strata_of(DECISIONS, 0.5).tolist() == [ABOVE, NEAR, BELOW, NEAR, BELOW, ABOVE]


def test_strata_without_threshold_are_thirds() -> None:
    assert strata_of(DECISIONS, None).tolist() == [2, 1, 0, 1, 0, 2]


def test_deviations_follow_the_relevance_model() -> None:
    relevance = np.array([[0.99, 0.0], [0.5, 0.0], [0.01, 0.0]])
    decisions = np.array([[0.9, 0.1], [0.5, 0.1], [0.1, 0.05]], dtype=np.float32)
    strata = np.array([ABOVE, NEAR, BELOW])
    results = outcome_deviations(strata, decisions, 0.5, relevance)
    # A hit has the probability p, and τ loses only the query whose best result it drops.
    assert results == pytest.approx([np.sqrt(2 * 0.0099), np.sqrt(0.25), np.sqrt(0.0099)])
    assert outcome_deviations(strata, decisions, 0.5, None).tolist() == [1, 1, 1]


def test_shorter_sample_is_a_prefix() -> None:
    sizes, spread = [10, 200, 90], np.array([0.1, 0.7, 0.3])
    longest = stratum_order(sizes, spread, 300)
    assert sorted(longest) == [0] * 10 + [1] * 200 + [2] * 90
    for limit in (1, 2, 3, 7, 50):
        assert stratum_order(sizes, spread, limit) == longest[:limit]
    assert sorted(longest[:6]) == [0, 0, 1, 1, 2, 2]


def test_deviating_strata_sampled_more_within_limits() -> None:
    sizes = [100, 100, 100]
    counts = np.bincount(stratum_order(sizes, np.array([0.01, 0.6, 0.1]), 60))
    assert counts[1] > counts[2] > counts[0]
    assert max(weights(sizes, counts.tolist())) <= 2.2 * 300 / 60


def test_sample_larger_than_strata_takes_all_queries() -> None:
    assert stratum_order([0, 3, 0], np.ones(3), 50) == [1, 1, 1]
    assert weights([0, 3, 0], [0, 3, 0]) == [0, 1, 0]


@pytest.mark.parametrize("counts", [[5, 10, 3], [0, 10, 3], [0, 0, 1], [1, 0, 1]])
def test_weights_add_up_to_population(counts: list[int]) -> None:
    results = weights([20, 100.5, 30], counts)
    assert sum(weight * count for weight, count in zip(results, counts, strict=True)) == pytest.approx(150.5)


# 60 queries in strata of 6, 18 and 36; whether each has a relevant result goes with its stratum.
SIZES = [6, 18, 36]
STRATA = np.repeat([0, 1, 2], SIZES)
HITS = np.array([True] + [False] * 5 + [True, False] * 9 + [True] * 35 + [False])


def share_of_hits(rng: np.random.Generator, n: int, m: int) -> tuple[float, Verdicts]:
    """The share that a sample of n queries gives, of which the first m are judged."""
    order = stratum_order(SIZES, np.array([0.1, 0.7, 0.3]), n)
    places = [iter(rng.permutation(np.flatnonzero(stratum == STRATA)).tolist()) for stratum in range(3)]
    chosen = [next(places[stratum]) for stratum in order]
    return verdicts_of(chosen, m, SIZES, {})


def verdicts_of(
    chosen: list[int], m: int, sizes: list[int], earlier: dict[str, float | None]
) -> tuple[float, Verdicts]:
    sample = round_of([sampled(f"q{place}", int(STRATA[place]), 0) for place in chosen], sizes, earlier)
    journal = judged(sample, {f"q{place}": [f"q{place}-r1"] if HITS[place] else [] for place in chosen[:m]})
    results = Verdicts.of(sample, passages(sample), [journal])
    share = sum(item.weight * any(item.grades.values()) for item in results.judged)
    share += sum(weight * HITS[int(name[1:])] for name, weight in results.earlier.items())
    return share / len(HITS), results


@pytest.mark.slow
@pytest.mark.parametrize("m", [3, 8, 20])
def test_weighted_share_of_stopped_session_is_unbiased(m: int) -> None:
    rng = np.random.default_rng(m)
    shares = np.array([share_of_hits(rng, 20, m)[0] for _ in range(1500)])
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert abs(shares.mean() - HITS.mean()) < 4 * error
    unweighted = np.mean([HITS[stratum == STRATA].mean() for stratum in range(3)])
    assert abs(unweighted - HITS.mean()) > 8 * error  # equal weights would be noticed


def test_joined_samples_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    shares, totals = [], []
    for _ in range(1500):
        _, first = share_of_hits(rng, 12, 9)
        earlier = {item.query.id: item.weight for item in first.judged}
        left = np.array([place for place in range(60) if f"q{place}" not in earlier])
        sizes = [int((STRATA[left] == stratum).sum()) for stratum in range(3)]
        order = stratum_order(sizes, np.ones(3), 12)
        places = [iter(rng.permutation(left[STRATA[left] == stratum]).tolist()) for stratum in range(3)]
        share, second = verdicts_of([next(places[stratum]) for stratum in order], 12, sizes, earlier)
        shares.append(share)
        totals.append(sum(second.earlier.values()) + sum(item.weight for item in second.judged))
    assert np.allclose(totals, 60)
    assert abs(np.mean(shares) - HITS.mean()) < 4 * np.std(shares) / np.sqrt(len(shares))


def judgement(pair: str, *, relevant: bool = True, at: float = 1.0) -> Entry:
    return Entry(at=at, round=1, action="judge", query="q", document="d", pair=pair, relevant=relevant)


def undo() -> Entry:
    return Entry(at=2.0, round=1, action="undo")


def test_journal_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "human" / "ana.jsonl"
    skip = Entry(at=1.5, round=2, action="skip", query="q2")
    with open_journal(path) as opened:
        for entry in (judgement("a"), judgement("b", relevant=False), judgement("c"), undo(), skip):
            opened.append(entry)
    with open_journal(path) as opened:
        assert opened.journal == Journal("ana", [judgement("a"), judgement("b", relevant=False), skip])
        assert opened.journal.judgements() == {"a": True, "b": False}
        assert (opened.journal.skipped(1), opened.journal.skipped(2)) == (set(), {"q2"})


@pytest.mark.parametrize("torn", [b'{"at":1.0,"round":1,"act', b'{"a', b"{"])
def test_journal_skips_a_torn_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "ana.jsonl"
    with open_journal(path) as opened:
        opened.append(judgement("a"))
    path.write_bytes(path.read_bytes() + torn)
    with open_journal(path) as opened:
        assert opened.journal.judgements() == {"a": True}
        opened.append(judgement("b"))
    assert Journal.read(path).judgements() == {"a": True, "b": True}


@pytest.mark.parametrize("line", ["<html>", "[]", '{"at": "now"}', '{"at":1.0,"round":1,"action":"sing"}'])
def test_journal_refuses_a_foreign_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ana.jsonl"
    with open_journal(path) as opened:
        opened.append(judgement("a"))
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(LineError, match=r"ana.jsonl:2: not a key press of `taugate judge`; remove the line"):
        Journal.read(path)


def test_journal_is_locked_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "ana.jsonl"
    with open_journal(path), pytest.raises(InputError, match="ana is judging in another process"), open_journal(path):
        pass
    with open_journal(path):
        pass


def test_judgement_is_identified_by_texts() -> None:
    assert pair_of("q", Document("1", "text")) == pair_of("q", Document("2", "text", None))
    pairs = {pair_of("q", Document("1", "text", "title")), pair_of("q", Document("1", "title text"))}
    assert len({*pairs, pair_of("q2", Document("1", "text")), pair_of("q", Document("1", "other"))}) == 4


def test_volume_without_locks_holds_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_locks(monkeypatch, errno.ENOLCK)
    with open_journal(tmp_path / "ana.jsonl") as opened:
        opened.append(judgement("a"))
    assert Journal.read(tmp_path / "ana.jsonl").judgements() == {"a": True}


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("The Roof leaks; roofs do.", "a roof of the house", ["Roof"]),
        ("Version 29 of it", "is it 29?", ["29"]),
        ("BBR is law in the EU.", "is BBR law?", ["BBR"]),
        ("BBR is a rule, pH a scale", "is bbr about ph", ["BBR", "pH"]),
        ("the A4 page of it", "is it A4 or a5", ["A4"]),
        ("IS IT THE ROOF", "is it the roof", ["ROOF"]),
        ("is it the roof", "IS IT THE ROOF", ["roof"]),
        ("屋根の雨漏りを直します", "雨漏りは直せますか", ["雨漏り"]),
        ("我们保修三年", "保修多久", ["保修"]),
        ("หลังคารั่วมาก", "ซ่อมหลังคา", ["หลังคา"]),
        ("האחריות על הגג", "כמה זמן האחריות", ["האחריות"]),
        ("छत की मरम्मत होगी", "मरम्मत कब", ["मरम्मत"]),
        ("温水と水を使う", "水", ["水", "水"]),
        ("ΑΠΟΘΗΚΗ ΑΘΗΝΑ", "Αθήνα", ["ΑΘΗΝΑ"]),
        ("Kevlar™ here", "kevlar", ["Kevlar"]),
        ("nothing in common", "屋根", []),
    ],
)
def test_query_words_are_marked(text: str, query: str, marked: list[str]) -> None:
    pieces = segments(text, query)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.matched] == marked
