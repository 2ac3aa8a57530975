"""The chained query log: what is found, what may be missing, and what rotation and a kill leave."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from taugate.drift.chain import ROOT_SECONDS, Chain, verify_log
from taugate.drift.query_log import ROOT, LoggedJudgement, LoggedQuery, read_query_log
from taugate.errors import InputError, LogChanged
from taugate.release.verify import TrustedKeys, key_id

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
RELEASE = "20260101T000000Z-0123456789ab"
START = 1e9


class Writer:
    """A process that appends to a log."""

    def __init__(self, log: Path, key: Ed25519PrivateKey | None = KEY) -> None:
        self.log, self.chain, self.sent = log, Chain(log, key), 0

    def append(self, queries: int, at: float = START, *, seal: bool = False) -> None:
        lines = []
        for _ in range(queries):
            self.sent += 1
            query = LoggedQuery(
                at=at, key=None, collection="c", release=RELEASE, query_id=f"{id(self)}-{self.sent}", query="",
                filter=None, k=3, threshold=None, group_by=None, kept=1, topk=[0.5, 0.25, 0.125], random=[], shown=[],
            )  # fmt: skip
            lines.append(self.chain.query(query, f"query {self.sent}", 0.25, None, None))
        descriptor = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self.chain.append(descriptor, lines, at, seal=seal)
        finally:
            os.close(descriptor)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two processes over three hours, sealed."""
    log = tmp_path / "queries.log"
    writers = [Writer(log), Writer(log)]
    for second in range(12):
        for writer in writers:
            writer.append(2, START + second * ROOT_SECONDS / 4)
    writers[0].append(0, START + 3 * ROOT_SECONDS, seal=True)
    return log


@pytest.fixture
def trusted(tmp_path: Path) -> TrustedKeys:
    path = tmp_path / "keys.pem"
    path.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return TrustedKeys.load(path)


def test_untouched_log_is_verified(log: Path, trusted: TrustedKeys) -> None:
    found = verify_log([log], trusted)
    assert (found.lines, len(found.roots), found.unsealed, found.cut) == (48, 5, 0, 0)
    assert all(line.record.release == RELEASE for line in read_query_log([log])), "other commands read it"


def edits(lines: list[bytes], count: int, seed: int = 0) -> Iterator[tuple[str, list[bytes]]]:
    """Yield edits of a log, each with its kind."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    while count:
        place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        line, copy, kind = bytearray(lines[place]), [*lines], ("byte", "missing", "moved", "twice", "first")[count % 5]
        if kind == "byte":
            line[rng.randrange(len(line) - 1)] ^= 1 << rng.randrange(7)
            copy[place] = bytes(line)
        elif kind == "missing":
            del copy[place]
        elif kind == "moved":
            copy.insert(other, copy.pop(place))
        elif kind == "twice":
            copy.insert(other, lines[place])
        else:
            copy = copy[place:]
        if copy != lines:
            count -= 1
            yield kind, copy


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_every_edit_is_found(log: Path, trusted: TrustedKeys, count: int) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    last = verify_log([log], trusted).roots[-1]
    for kind, edited in edits(lines, count):
        log.write_bytes(b"".join(edited))
        try:
            assert last not in verify_log([log], trusted).roots, kind
        except (LogChanged, InputError):
            continue


def test_rewritten_log_needs_the_key(log: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    forged = tmp_path / "forged.log"
    Writer(forged, Ed25519PrivateKey.generate()).append(5, seal=True)
    assert verify_log([forged]).lines == 5
    with pytest.raises(LogChanged, match="no trusted key signed the root"):
        verify_log([forged], trusted)


def test_rotated_log_is_verified_whole_and_in_part(log: Path, trusted: TrustedKeys) -> None:
    writer = Writer(log)
    writer.append(3, START + 3 * ROOT_SECONDS)
    older = log.rename(log.with_suffix(".log.1"))
    writer.append(3, START + 3 * ROOT_SECONDS)
    assert verify_log([older, log], trusted).lines == 54
    assert verify_log([log], trusted).lines == 3, "the older file may be deleted"
    with pytest.raises(LogChanged):
        verify_log([log, older], trusted)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(LogChanged, match="does not follow"):
        verify_log([log], trusted)


def test_line_cut_off_by_a_kill_is_no_change(log: Path, trusted: TrustedKeys) -> None:
    with log.open("ab") as file:
        file.write(b'{"v":2,"at":1')
    Writer(log).append(2, START + 3 * ROOT_SECONDS)
    found = verify_log([log], trusted)
    assert (found.lines, found.unsealed, found.cut) == (50, 2, 1)


@pytest.mark.parametrize("lost", ["state", "state of the last lines"])
def test_next_root_names_lines_of_a_killed_process(log: Path, trusted: TrustedKeys, lost: str) -> None:
    state, writer = log.with_name(f".{log.name}.chains"), Writer(log)
    before = state.read_bytes()
    writer.append(4, START + 3 * ROOT_SECONDS)
    if lost == "state":
        state.unlink()
    else:
        state.write_bytes(before)
    Writer(log).append(1, START + 5 * ROOT_SECONDS)
    found = verify_log([log], trusted)
    assert (found.lines, found.unsealed) == (53, 1)


def test_erased_salt_leaves_the_chain(log: Path, trusted: TrustedKeys) -> None:
    import hmac

    salts = log.with_name(f"{log.name}.salts")
    (query, _, salt), line = salts.read_text().splitlines()[0].partition(" "), log.read_bytes().splitlines()[1]
    assert hmac.digest(bytes.fromhex(salt), b"query 1", "sha256").hex() == orjson.loads(line)["hmac"]
    assert b"query 1" not in log.read_bytes() and orjson.loads(line)["query_id"] == query
    salts.unlink()
    assert verify_log([log], trusted).lines == 48
    assert oct(salts.parent.stat().st_mode)


def test_judgement_is_chained_without_its_query(tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    chain = Chain(log, None)
    line = LoggedJudgement(
        at=START, key=None, collection="c", release=RELEASE, query_id="q", query="text", document_id="d", relevant=True,
        rank=1, score=0.5, query_hash="0" * 16,
    )  # fmt: skip
    with log.open("a+b") as file:
        chain.append(file.fileno(), [chain.judgement(line)], START)
    (read,) = read_query_log([log])
    assert isinstance(read.record, LoggedJudgement) and read.record.query is None and b"text" not in log.read_bytes()
    assert log.read_bytes().startswith(ROOT) and verify_log([log]).lines == 1


def test_log_without_chain_is_named(tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    log.write_bytes(b"")
    with pytest.raises(InputError, match="no chained line"):
        verify_log([log])


def test_root_names_its_key(log: Path) -> None:
    assert orjson.loads(log.read_bytes().splitlines()[0])["key"] == key_id(KEY.public_key())
