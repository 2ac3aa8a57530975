"""`taugate key new`: a key that is shown once, and an entry that lets it in."""

import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from taugate.cli import key as command
from taugate.cli import main as cli
from taugate.retrieval.documents.filters import OneOf, Range, all_of
from taugate.service.access.authorization import find_key, parse_keys
from tests.service.access.files import entry


def new(*arguments: str) -> int:
    return cli.main(["key", "new", *arguments])


def test_new_key_prints_key_and_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert new("--name", "app", "--scopes", "search, feedback", "--queries-per-second", "50", "--days", "30") == 0
    out, err = capsys.readouterr()
    key = out.removesuffix("\n")
    assert re.fullmatch(r"taugate_[A-Za-z0-9_-]{43}", key)
    assert key not in err
    (known,) = parse_keys(f"[{err.splitlines()[-1]}]".encode(), "keys")
    assert find_key([known], key.encode()) == known
    assert (known.name, known.scopes, known.queries_per_second) == ("app", ["search", "feedback"], 50)
    assert known.expires is not None


def test_entry_contains_filter(capsys: pytest.CaptureFixture[str]) -> None:
    assert new("--name", "a", "--scopes", "search", "--filter", '{"tenant": "a", "year": {"gte": 2000}}') == 0
    entry = capsys.readouterr().err.splitlines()[-1]
    (known,) = parse_keys(f"[{entry}]".encode(), "keys")
    assert known.filter == all_of(OneOf.of("tenant", "a"), Range("year", gte=2000))


def test_key_file_is_created_and_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.json"
    assert new("--name", "one", "--scopes", "search", "--file", str(file)) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    assert new("--name", "two", "--scopes", "admin", "--file", str(file)) == 0
    assert file.stat().st_mode & 0o777 == 0o640
    keys = parse_keys(file.read_bytes(), "keys")
    out = capsys.readouterr().out.splitlines()
    assert [find_key(keys, key.encode()) for key in out] == [*keys]
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "one", "--scopes", "search"], "another key is already named one"),
        (["--name", "a b", "--scopes", "search"], "name: "),
        (["--name", "two", "--scopes", "root"], "scopes.0: "),
        (["--name", "two", "--scopes", ","], "scopes: "),
        (["--name", "two", "--scopes", "search", "--queries-per-second", "-1"], "queries_per_second: "),
        (["--name", "two", "--scopes", "search", "--filter", "{"], "--filter: "),
        (["--name", "two", "--scopes", "search", "--filter", "{}"], "filter: permits all documents"),
        (["--name", "two", "--scopes", "admin", "--filter", '{"a": 1}'], "two has a filter, but the scope admin"),
        (["--name", "two", "--scopes", "search", "--days", "1e300"], "--days 1e+300: too far in the future"),
    ],
)
def test_bad_key_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"
    assert new("--name", "one", "--scopes", "search", "--file", str(file)) == 0
    before = file.read_bytes()
    capsys.readouterr()
    assert new(*arguments, "--file", str(file)) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (before, [file])


def test_foreign_file_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"theirs": 1}))
    assert new("--name", "one", "--scopes", "search", "--file", str(file)) == 2
    assert json.loads(file.read_text()) == {"theirs": 1}
    assert capsys.readouterr().out == ""


def named(file: Path) -> set[str]:
    return {key.name for key in parse_keys(file.read_bytes(), "keys")}


def test_concurrent_key_change_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, codes = tmp_path / "keys.json", {}
    assert new("--name", "first", "--scopes", "search", "--file", str(file)) == 0

    def overtaken(content: bytes, where: str) -> object:
        if where == str(file) and not codes:
            codes["overtaking"] = -1
            codes["overtaking"] = new("--name", "overtaking", "--scopes", "search", "--file", str(file))
        return parse_keys(content, where)

    monkeypatch.setattr(command, "parse_keys", overtaken)
    monkeypatch.setattr(command, "_LOCK_SECONDS", 0)
    codes["slow"] = new("--name", "slow", "--scopes", "search", "--file", str(file))
    added = {"first", *(name for name, code in codes.items() if code == 0)}
    assert named(file) == added
    assert codes == {"overtaking": 2, "slow": 0}
    assert f"{file}: process {os.getpid()} on " in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [file]


def test_concurrent_additions_are_all_kept(tmp_path: Path) -> None:
    file, names = tmp_path / "keys.json", {f"app-{number}" for number in range(12)}

    def add(name: str) -> None:
        command._change_file(file, lambda entries: [*entries, entry(name, name, "search")])

    with ThreadPoolExecutor(len(names)) as pool:
        for added in [pool.submit(add, name) for name in names]:
            added.result()
    assert named(file) == names
    assert [*tmp_path.iterdir()] == [file]


def test_remove_is_all_or_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.json"
    for name in ("one", "two", "three"):
        assert new("--name", name, "--scopes", "search", "--file", str(file)) == 0
    assert cli.main(["key", "remove", "one", "three", "--file", str(file)]) == 0
    assert named(file) == {"two"}
    before = file.read_bytes()
    capsys.readouterr()
    assert cli.main(["key", "remove", "two", "four", "--file", str(file)]) == 2
    assert capsys.readouterr().err == f"taugate: {file}: no key is named four; the file has two\n"
    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (before, [file])


def test_key_that_is_not_printed_is_not_saved(tmp_path: Path) -> None:
    """A closed or full stdout loses the key, and then nobody may have it."""
    file = tmp_path / "keys.json"
    for before in (None, b"[]\n"):
        if before is not None:
            file.write_bytes(before)
        with Path("/dev/full").open("w", encoding="utf-8") as stdout, redirect_stdout(stdout):
            assert new("--name", "a", "--scopes", "search", "--file", str(file)) == 1
            with suppress(OSError):
                stdout.close()
        assert (file.read_bytes() if file.exists() else None) == before


def test_full_disk_names_file_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("taugate.storage.files.sync", full)
    file = tmp_path / "keys.json"
    assert new("--name", "a", "--scopes", "search", "--file", str(file)) == 1
    said = f"taugate: {file}: No space left on device; free some space there, and repeat the command\n"
    assert capsys.readouterr().err == said
    assert not file.exists()


def test_list_shows_scopes_and_expiry_but_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.json"
    for name, scopes, *days in (("app", "search,feedback", "--days", "30"), ("old", "admin", "--days", "-1")):
        assert new("--name", name, "--scopes", scopes, "--file", str(file), *days) == 0
    assert new("--name", "shop", "--scopes", "search", "--file", str(file)) == 0
    capsys.readouterr()
    assert cli.main(["key", "list", "--file", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err.split() == ["name", "scopes", "expires"]
    app, old, shop = out.splitlines()
    assert re.fullmatch(r"app +search,feedback +\d{4}-\d\d-\d\d \d\d:\d\d UTC", app)
    assert re.fullmatch(r"old +admin +.* UTC, expired", old)
    assert re.fullmatch(r"shop +search +never", shop)
    assert not any(digest in out for digest in re.findall(r"[0-9a-f]{64}", file.read_text()))
    assert cli.main(["key", "list", "--file", str(tmp_path / "missing")]) == 2
