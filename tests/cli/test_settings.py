"""Settings that cannot be used are refused with exit code 2, one clear message and nothing written."""

from pathlib import Path

import pytest

from taugate.cli import main as cli

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
