"""A query log with chained lines, so that one that is missing, changed or moved is found (TAUGATE_QUERY_LOG_CHAIN).

Each line of a process has the number of its chain, its place there and the SHA-256 of the line before. A root, in a new
file and once an hour, names the last line of every chain, the order of all, and the root before it. It is signed if
there is a key. So what precedes a root cannot change without it, and what follows the last one can only be cut off. The
text of a query is an HMAC with a salt of its own. Salts are in another file: without its salt, a line says nothing
about a text any more.

Writers hold the lock of the log. What they know of all chains is in a file beside it; what a killed process did not
record there is read from the log again.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pydantic import TypeAdapter

from taugate.drift.query_log import ROOT, LoggedJudgement, LoggedQuery, line_bytes, numbered_lines
from taugate.errors import InputError, LogChanged
from taugate.release.verify import TrustedKeys, key_id
from taugate.storage.files import append_lines, atomic_write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT_SECONDS = 3600.0
_SIGNATURE = b',"signature":"'
_SALT_BYTES = 16


def line_digest(line: bytes) -> str:
    """Return the SHA-256 of a line with its line break, in hexadecimal."""
    return hashlib.sha256(line).hexdigest()


Head = tuple[int, str]  # the number of a chain's lines, and the digest of its last line


@dataclass(slots=True)
class _LogState:
    """What is known of a log."""

    file: int = 0  # inode of the log
    end: int = 0  # its size up to which its lines are state
    # The last lines of open chains, by name: those with a line since the root before the last one.
    chains: dict[str, Head] = field(default_factory=dict)
    named: dict[str, Head] = field(default_factory=dict)  # those that the last root names
    root: str = ""  # digest of the last root; empty before the first
    order: str = ""  # digest of the lines since the last root, in their order
    at: float = 0.0  # Unix time of the last root

    def add(self, line: bytes) -> None:
        """Take in a line that is in the log; one that a killed process cut off says nothing."""
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            record = orjson.loads(line)
            if line.startswith(ROOT):
                self.named = {name: (lines, last) for name, (lines, last) in record["chains"].items()}
                self.chains, self.root, self.at = {**self.named}, line_digest(line), record["at"]
                self.order = ""
            else:
                self.chains[record["chain"]] = (record["line"] + 1, line_digest(line))
                self.order = line_digest(self.order.encode() + line)


class Chain:
    """The chain of one process, and the roots of all."""

    def __init__(self, log: Path, key: "Ed25519PrivateKey | None") -> None:
        self._key = key
        self._salts = log.with_name(f"{log.name}.salts")
        self._state = log.with_name(f".{log.name}.chains")
        self._name = secrets.token_hex(8)
        self._pending: list[bytes] = []  # the salts of lines that are not yet appended

    def query(
        self, line: LoggedQuery, identity: str, tau: float | None, rho: float | None, reason: str | None
    ) -> bytes:
        """Return a query's line without its link: what decided, and the HMAC of its text in place of the text."""
        salt = secrets.token_bytes(_SALT_BYTES)
        text = hmac.digest(salt, identity.encode(), "sha256").hex()
        self._pending.append(f"{line.query_id} {salt.hex()}\n".encode())
        decided = {"tau": tau, "rho": rho, "refused": reason == "unanswerable", "reason": reason, "hmac": text}
        return line_bytes(replace(line, query=text[:16]))[:-2] + b"," + orjson.dumps(decided)[1:-1]

    def judgement(self, line: LoggedJudgement) -> bytes:
        """Return a judgement's line without its link; the query of a reply is in the line of the reply."""
        return line_bytes(replace(line, query=None, query_hash=None))[:-2]

    def append(self, descriptor: int, lines: Sequence[bytes], now: float, *, seal: bool = False) -> None:
        """Link lines and append them to the log, whose lock the caller holds; `seal` adds a root after them."""
        state, linked = self._read_state(descriptor), list[bytes]()

        def link(line: bytes) -> None:
            linked.append(line)
            state.add(line)

        opens = os.fstat(descriptor).st_size == 0
        if opens or now - state.at >= ROOT_SECONDS:
            link(self._root(state, now, opens=opens))
        if self._name not in state.chains:  # the first line, or none for so long that roots no longer name the chain
            self._name = secrets.token_hex(8)
        for line in lines:
            count, previous = state.chains.get(self._name, (0, state.root))
            link(line + f',"chain":"{self._name}","line":{count},"previous":"{previous}"}}\n'.encode())
        if seal:
            link(self._root(state, now, opens=False))
        self._append_salts()
        append_lines(descriptor, b"".join(linked))
        state.end = os.fstat(descriptor).st_size
        atomic_write(self._state, orjson.dumps(state), mode=0o600)

    def _read_state(self, descriptor: int) -> _LogState:
        """Return what the file beside the log says, with the lines that are not in it yet; all lines without it."""
        state, status = _LogState(), os.fstat(descriptor)
        with suppress(FileNotFoundError, orjson.JSONDecodeError, TypeError):
            state = TypeAdapter(_LogState).validate_json(self._state.read_bytes())
        if state.file != status.st_ino or state.end > status.st_size:  # a new file, or one that was emptied
            state.file, state.end = status.st_ino, 0
        if state.end < status.st_size:
            with os.fdopen(os.dup(descriptor), "rb") as log:
                log.seek(state.end)
                for line in log:
                    state.add(line)
        return state

    def _root(self, state: _LogState, now: float, *, opens: bool) -> bytes:
        """Return a root that names the chains with lines since the last one; one `opens` each file."""
        chains = {name: head for name, head in state.chains.items() if state.named.get(name) != head}
        key = None if self._key is None else key_id(self._key.public_key())
        fields = {"root": 1, "opens": opens, "at": now, "previous": state.root, "chains": chains}
        fields |= {"order": state.order, "key": key}
        signed = orjson.dumps(fields)
        signature = "" if self._key is None else self._key.sign(signed).hex()
        return signed[:-1] + _SIGNATURE + signature.encode() + b'"}\n'

    def _append_salts(self) -> None:
        salts, self._pending = b"".join(self._pending), []
        descriptor = os.open(self._salts, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, salts)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class VerifiedLog:
    """What a chained log holds."""

    lines: int = 0
    unsealed: int = 0  # number of those after the last root, of which the last ones could be missing
    cut: int = 0  # number of lines that a killed process did not finish
    roots: list[str] = field(default_factory=list)  # digests of its roots, in their order


def verify_log(paths: Sequence[Path], trusted: TrustedKeys | None = None) -> VerifiedLog:
    """Check the chains and roots of a log, whose files are in the order in which they were written.

    Raises LogChanged if a line is missing, changed, added or moved; names the first place where that shows. Raises
    InputError if a file cannot be read, or has no chained line.
    """
    state, verified, changed = _LogState(), VerifiedLog(), set[str]()
    for path in paths:
        for number, line in numbered_lines(path):
            try:
                if trusted is not None and line.startswith(ROOT) and not _is_signed(line, trusted):
                    raise ValueError("no trusted key signed the root")
                _check(line, state, changed, verified, opens=number == 1)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise LogChanged(f"{path}:{number}: {error}; the log is not as it was written") from error
    if not verified.roots:
        raise InputError(f"{paths[0]}: has no chained line; the service writes them with TAUGATE_QUERY_LOG_CHAIN=on")
    return verified


def _check(line: bytes, state: _LogState, changed: set[str], verified: VerifiedLog, *, opens: bool) -> None:
    """Check one line, and take it in; raises ValueError if it does not follow those before it."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        if not line.startswith(b"{") or line.rstrip().endswith(b"}"):
            raise ValueError("not a line of the log") from None
        verified.cut += 1
        return
    if line.startswith(ROOT):
        chains = {name: tuple(head) for name, head in record["chains"].items()}
        if state.root and record["previous"] != state.root:
            raise ValueError("the root does not follow the one before")
        if state.root and (chains, record["order"]) != ({name: state.chains[name] for name in changed}, state.order):
            raise ValueError("the root names other lines, or another order")
        verified.roots.append(line_digest(line))
        verified.unsealed = 0
        changed.clear()
    else:
        expected = state.chains.get(record.get("chain"), (0, state.root))
        if (record.get("line"), record.get("previous")) != expected:
            raise ValueError("the line does not follow the one before in its chain")
        changed.add(record["chain"])
        verified.lines += 1
        verified.unsealed += 1
    if opens != (line.startswith(ROOT) and record["opens"]):
        raise ValueError("a file begins with a root that opens it, and has no other one")
    state.add(line)


def _is_signed(line: bytes, trusted: TrustedKeys) -> bool:
    """Return whether one of the keys signed a root."""
    signed, _, signature = line.rpartition(_SIGNATURE)
    with suppress(orjson.JSONDecodeError, KeyError, ValueError):
        key = orjson.loads(line)["key"]
        return key in trusted.keys and trusted.signed(key, bytes.fromhex(signature[:-3].decode()), signed + b"}")
    return False
