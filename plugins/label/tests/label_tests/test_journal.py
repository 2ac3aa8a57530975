"""A judge's file keeps every key press, survives a process that was killed, and has one writer."""

import errno
from pathlib import Path

import pytest

from taugate.data.lines import LineError
from taugate.errors import InputError
from taugate.retrieval.documents.store import Document
from taugate_label.session import Entry, Journal, open_journal, pair_of
from tests.storage.test_odd_volumes import remove_locks


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
