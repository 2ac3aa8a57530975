"""Settings that cannot be used are refused with exit code 2, one clear message and nothing written."""

import json
import shutil
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.cli.terminal.output import aligned, printable
from taugate.registry.catalog import current_id, find, release_ids
from taugate.release.layout import SIGNATURE
from taugate.release.verify import TrustedKeys, verify
from taugate.service.settings import VARIABLES
from tests.keys import write_keys

# Name, arguments, setting that the message names, what it says of it. The sample has 503 documents and 503 queries.
REFUSED = [
    ("k 0", ["--k", "0"], "--k 0", "1 or more"),
    ("k negative", ["--k", "-5"], "--k -5", "1 or more"),
    ("k above the corpus", ["--k", "504"], "--k 504", "only 503 documents; give a smaller K"),
    ("no bootstraps", ["--bootstraps", "0"], "--bootstraps 0", "1 or more"),
    ("samples of nothing", ["--sample-size", "0"], "--sample-size 0", "1 or more"),
    ("holdout 1", ["--holdout", "1"], "--holdout 1.0", "below 1"),
    ("holdout negative", ["--holdout", "-0.1"], "--holdout -0.1", "0 or more"),
    ("holdout NaN", ["--holdout", "nan"], "--holdout nan", "below 1"),
    ("holdout infinite", ["--holdout", "inf"], "--holdout inf", "below 1"),
    ("holdout leaves no query", ["--holdout", "0.9999"], "--holdout 0.9999", "none of the 503 answerable queries"),
    ("seed negative", ["--seed", "-1"], "--seed -1", "from 0 to"),
    ("seed beyond 64 bits", ["--seed", str(2**70)], f"--seed {2**70}", "give"),
    ("percentile above 100", ["--overlap-percentile", "101"], "--overlap-percentile 101.0", "0 to 100"),
    ("percentile negative", ["--overlap-percentile", "-1"], "--overlap-percentile -1.0", "0 to 100"),
    ("percentile NaN", ["--overlap-percentile", "nan"], "--overlap-percentile nan", "0 to 100"),
    ("split outside qrels", ["--split", "../x"], "--split '../x'", "name of a file in qrels/"),
    ("split empty", ["--split", ""], "--split ''", "name of a file in qrels/"),
    ("split unknown", ["--split", "dev"], "dev.tsv", "--split names one of: test"),
]

USAGE = [
    ("method", ["--method", "guess"], "--method"),
    ("policy", ["--policy", "strict"], "--policy"),
    ("index", ["--index", "tree"], "--index"),
    ("projection", ["--projection", "random"], "--projection"),
    ("k a word", ["--k", "five"], "--k"),
    ("k a fraction", ["--k", "2.5"], "--k"),
    ("holdout a word", ["--holdout", "third"], "--holdout"),
    ("unknown option", ["--threshold", "0.5"], "--threshold"),
]


def arguments(sample: Path, releases: Path, encoder: Path, *more: str) -> list[str]:
    return ["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder), *more]


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with, less "taugate: "."""
    assert cli.main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    *steps, last = (line for line in printed.err.splitlines() if not line.startswith("warning: --"))  # of keys
    assert all(line.endswith(" s") for line in steps), printed.err  # with its time
    assert last.startswith("taugate: ")
    return last.removeprefix("taugate: ")


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_unusable_setting_is_input_error(row, sample, encoder, tmp_path, capsys):
    _, more, setting, says = row
    message = refusal(arguments(sample, tmp_path / "releases", encoder, *more), capsys)
    assert setting in message
    assert says in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("row", USAGE, ids=lambda row: row[0])
def test_wrong_usage_ends_with_2(row, sample, encoder, tmp_path, capsys):
    _, more, option = row
    assert cli.main(arguments(sample, tmp_path / "releases", encoder, *more)) == 2
    assert option in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_encoder_folder_without_model_is_error(sample, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    message = refusal(arguments(sample, tmp_path / "releases", empty), capsys)
    wrong, _, remedy = message.partition("; ")
    assert wrong.startswith(f"{empty}: ")
    assert remedy, f"no word on what to do: {message}"
    assert list(tmp_path.iterdir()) == [empty]


def test_releases_path_of_file_is_error(sample, encoder, tmp_path, capsys):
    releases = tmp_path / "releases"
    releases.write_bytes(b"kept")
    assert cli.main(arguments(sample, releases, encoder)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"taugate: {releases}: ")
    assert releases.read_bytes() == b"kept"


def test_error_leaves_releases_directory_unchanged(sample, encoder, tmp_path, capsys):
    releases = tmp_path / "releases"
    releases.mkdir()
    refusal(arguments(sample, releases, encoder, "--k", "504"), capsys)
    assert list(releases.iterdir()) == []


def test_zero_holdout_and_one_document_work(sample, encoder, tmp_path):
    more = ["--holdout", "0", "--k", "1", "--bootstraps", "1", "--sample-size", "1"]
    assert cli.main(arguments(sample, tmp_path / "releases", encoder, *more)) == 0


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings from every source: older names, other cases, secrets, and a name that is none."""
    for name, value in {
        "TAUGATE_REDIS_URL": "redis://:hush@h/0",
        "TAUGATE_KEYS": '[{"name": "hush"}]',
        "TAUGATE_DRIFT_SELDOM": "1e9",
        "taugate_max_k": "7",
        "TAUGATE_MAXK": "3",
        "TAUGATE_HOST": "127.0.0.2",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_settings_table_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "--releases", "s3://bucket/team", "--host", "127.0.0.3"]) == 0
    printed = capsys.readouterr()
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in printed.out.splitlines()}
    assert list(rows) == [variable.name for variable in VARIABLES.values()]
    assert rows["TAUGATE_RELEASES"] == ["s3://bucket/team", "flag (--releases)"]
    assert rows["TAUGATE_HOST"] == ["127.0.0.3", "flag (--host)"], "a flag goes before the environment"
    assert rows["TAUGATE_MAX_K"] == ["7", "environment (taugate_max_k)"]
    drift, source = rows["TAUGATE_DRIFT"]
    assert drift.startswith("true,window_queries=10000,")
    assert source == "environment (TAUGATE_DRIFT_SELDOM)"
    assert rows["TAUGATE_REDIS_URL"] == ["(hidden)", "environment"]
    assert "hush" not in printed.out + printed.err
    *notices, unknown, former = printed.err.splitlines()
    assert former.endswith("DRIFT_SELDOM is a former name; use TAUGATE_DRIFT=VALUE,average_run_length=VALUE")
    assert [notice.rpartition("; ")[2] for notice in notices] == ["set TAUGATE_RELEASES", "set TAUGATE_HOST"]
    assert unknown == "warning: TAUGATE_MAXK is set, but is not a setting; did you mean TAUGATE_MAX_K?"


@pytest.mark.usefixtures("environment")
def test_settings_json_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "--json", "--port", "9000"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["unknown"] == {"TAUGATE_MAXK": "TAUGATE_MAX_K"}
    assert found["settings"]["TAUGATE_PORT"] == {"value": 9000, "source": "flag", "set_by": "--port"}
    assert found["settings"]["TAUGATE_RELEASES"] == {"value": None, "source": "default", "set_by": None}
    assert found["settings"]["TAUGATE_MAX_BATCH"] == {
        "value": 64,
        "options": {"body_bytes": 1_048_576},
        "source": "default",
        "set_by": None,
    }
    assert found["settings"]["TAUGATE_KEYS"]["value"] == "(hidden)"
    assert "hush" not in printed.out + printed.err


def test_unusable_value_ends_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TAUGATE_MAX_K", "0")
    assert cli.main(["settings"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "taugate: TAUGATE_MAX_K=0: must be greater than or equal to 1\n")


PERSIAN = "می\u200cخواهم سقف را تعمیر کنم"


def test_printable_keeps_spaces_and_joiners() -> None:
    assert printable("12\u00a0m²\u3000屋根 \u2026") == "12 m² 屋根 \u2026"
    assert printable(PERSIAN) == PERSIAN
    assert printable("a\x1b[2J\u202eb\x00") == "a?[2J?b?"


def test_table_columns_are_aligned() -> None:
    assert aligned([("a", "1", ""), ("long", "22", "x")], right=(1,)) == ["a      1", "long  22  x"]


def test_signed_release_verifies_and_promotes(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    name = str(current_id(copy))
    asked = ["--releases", str(copy), name]
    assert cli.main(["release", "verify", *asked, "--trusted-keys", str(public)]) == 1
    assert "not signed" in capfd.readouterr().err
    monkeypatch.setenv("TAUGATE_TRUSTED_KEYS", str(public))
    assert cli.main(["release", "promote", *asked]) == 2
    assert "not signed" in capfd.readouterr().err
    assert cli.main(["release", "verify", *asked]) == 1
    assert cli.main(["release", "sign", *asked, "--key", str(private)]) == 0
    assert f"signed {name} " in capfd.readouterr().out
    assert cli.main(["release", "verify", *asked]) == 0
    assert cli.main(["release", "promote", *asked]) == 0
    assert cli.main(["release", "sign", *asked, "--key", str(tmp_path / "none")]) == 2
    assert "none" in capfd.readouterr().err


def test_calibrate_signs_promoted_release(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    private, public = write_keys(tmp_path)
    strange, _ = write_keys(tmp_path, "strange")
    folder = tmp_path / "releases"
    asked = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]
    monkeypatch.setenv("TAUGATE_TRUSTED_KEYS", str(public))
    for key in ("", str(strange), str(tmp_path / "none")):
        monkeypatch.setenv("TAUGATE_SIGNING_KEY", key)
        assert cli.main(asked) == 2  # before any work
        assert not folder.exists()
    assert "none" in capfd.readouterr().err
    assert cli.main([*asked, "--sign-with", str(private)]) == 0
    assert "--sign-with is deprecated" in capfd.readouterr().err
    monkeypatch.delenv("TAUGATE_SIGNING_KEY")
    verify(find(folder), TrustedKeys.load(public))
    assert cli.main([*asked, "--seed", "1", "--no-promote"]) == 0
    (second,) = set(release_ids(folder)) - {current_id(folder)}
    assert not (folder / second / SIGNATURE).exists()
