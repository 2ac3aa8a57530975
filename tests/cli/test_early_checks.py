"""A mistyped path is an error before anything is loaded that takes seconds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from taugate.cli.main import COMMANDS, load_command, main
from taugate.cli.terminal.command import ACTIONS, FLAGS, PLAIN, check_words
from taugate.errors import InputError, ReleaseError
from tests.compatibility.write import FOLDER

HEAVY = ("numpy", "torch", "onnxruntime", "faiss", "sklearn", "scipy", "tokenizers", "transformers", "pydantic")
# Command lines, and what their errors say; `data` has a corpus, queries and qrels, `wrong` a wrong header in each.
WRONG = {
    "calibrate nosuch --releases new": "nosuch: no such directory; give the folder that holds corpus.jsonl",
    "calibrate --json --releases new nosuch": "nosuch: no such directory",
    "calibrate --max-loss=0.02 --k 5 --releases new nosuch": "nosuch: no such directory",
    "calibrate data/corpus.jsonl --releases new": "is a file, and a data set is a directory",
    "calibrate empty --releases new": "empty/corpus.jsonl: no such file; a data set is",
    "calibrate corpus --releases new": "corpus/queries.jsonl: no such file; a data set is",
    "calibrate header --releases new": "header/qrels/test.tsv:1: ",
    "calibrate lines --releases new": "lines/corpus.jsonl:1: not JSON",
    "calibrate nosuch --precision auto --holdout 0.3 --releases new": "nosuch: no such directory",
    "calibrate-run nosuch qrels --releases new": "nosuch: no such file; give a TREC run",
    "calibrate-run data/corpus.jsonl nosuch --releases new": "nosuch: no such file; give the qrels",
    "update nosuch --releases new": "nosuch: no such directory",
    "update data --releases nosuch": "nosuch: no release is current; run `taugate calibrate DATA",
    "recalibrate nosuch --releases new": "nosuch: no such directory",
    "recalibrate data --releases data --log nosuch": "nosuch: no such file; the service writes one",
    "compare nosuch a openai:http://x/v1": "nosuch: no such directory",
    "adapt nosuch --to new": "nosuch: no such directory",
    "import data nosuch --to new": "nosuch: no such file or folder",
    "quickstart nosuch": "nosuch: no such file or folder",
    "queries nosuch": "nosuch: no such directory",
    "judge nosuch --releases new": "nosuch: no such directory",
    "judge data --run nosuch": "nosuch: no such file; give a TREC run",
    "judge data --releases nosuch": "nosuch: no release is current",
    "traffic nosuch --to data": "nosuch: no such file; the service writes one",
    "traffic data/corpus.jsonl --to nosuch": "nosuch: no such directory",
    "encode nosuch --to new": "nosuch: no such directory",
    "explain query document --releases nosuch": "nosuch: no release is current",
    "serve --releases nosuch": "nosuch: no release is current",
    "drift replay nosuch --releases data": "nosuch: no such file; the service writes one",
    "drift baseline data/corpus.jsonl --releases nosuch": "nosuch: no release is current",
    **{
        f"release {action} --releases nosuch": "nosuch: no such directory; `taugate calibrate DATA"
        for action in (
            *("list", "show", "history", "verify", "promote x", "rollback", "shadow x", "prune"),
            *("diff a b", "erase x d", "sign x --key k", "push --to u"),
        )
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths")
    line = json.dumps({"_id": "a", "text": "words"}) + "\n"
    for name in ("data", "corpus", "header", "lines"):
        (folder / name / "qrels").mkdir(parents=True)
        (folder / name / "corpus.jsonl").write_text("words\n" if name == "lines" else line, encoding="utf-8")
        if name != "corpus":
            (folder / name / "queries.jsonl").write_text(line, encoding="utf-8")
        header = "query document score" if name == "header" else "query-id\tcorpus-id\tscore"
        (folder / name / "qrels" / "test.tsv").write_text(f"{header}\na\ta\t1\n", encoding="utf-8")
    (folder / "empty").mkdir()
    return folder


def test_wrong_path_is_an_error_before_anything_is_loaded(folder: Path) -> None:
    """One process for all; what the first imports, the others would find."""
    code = (
        "import contextlib, io, json, sys\n"
        "from taugate.cli.main import main\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as said: code = main(line.split())\n"
        f"    loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    print(json.dumps([line, code, said.getvalue(), loaded]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([*WRONG])], capture_output=True, text=True, check=True, cwd=folder
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [reply[0] for reply in replies] == [*WRONG]
    for line, exit_code, said, loaded in replies:
        assert (exit_code, loaded) == (2, []), line
        assert WRONG[line] in said, line
        assert said.count("\n") == 1


@pytest.mark.parametrize("action", ["list", "show", "history"])
def test_listing_releases_loads_no_arrays(action: str) -> None:
    code = "import sys; from taugate.cli.main import main; print(main(sys.argv[1:]), 'numpy' in sys.modules)"
    command = ["release", action, "--releases", str(FOLDER / "releases" / "schema-2-baseline")]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"


def test_queries_of_run_are_read_before_arrays_are_loaded(folder: Path) -> None:
    code = "import sys; from taugate.cli.main import main; print(main(sys.argv[1:]), 'numpy' in sys.modules)"
    command = ["run", "nosuch", "--as", "http", "--url", "http://x", "--to", "new"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stdout == "2 False\n"
    assert "nosuch: no such file; give a file of queries" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "calibrate nosuch --releases new --help",
        "calibrate s3://bucket/nosuch --releases new",
        "calibrate data --releases new",
        "calibrate --forc nosuch --releases new",  # an abbreviation
        "run generated --as http --to new",
        "release list --releases s3://bucket/releases",
        "serve",
        "settings --releases nosuch",
        "completion bash",
        "key new nosuch",
    ],
)
def test_uncertain_or_right_paths_are_left_to_command(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    check_words(line.split())


def test_packed_data_set_passes(folder: Path, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "packed" / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (tmp_path / "packed" / f"{name}.gz").write_bytes(gzip.compress((folder / "data" / name).read_bytes()))
    check_words(["calibrate", str(tmp_path / "packed"), "--releases", "new"])


def test_errors_are_those_of_users() -> None:
    with pytest.raises(InputError):
        check_words(["calibrate", "nosuch"])
    with pytest.raises(ReleaseError):
        check_words(["release", "list", "--releases=nosuch"])


def test_misspelt_option_is_said_before_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in ("calibrate nosuch --relases new", "calibrate nosuch --method x", "release lst --releases nosuch"):
        check_words(line.split())


def test_path_is_checked_before_command_if_options_are_uncertain(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.chdir(folder)
    monkeypatch.setattr("taugate.cli.calibrate.command.callback", never)
    assert main(["calibrate", "nosuch", "--rel", "new", "--method", "bootstrap"]) == 2
    assert "nosuch: no such directory" in capsys.readouterr().err
    monkeypatch.setattr("taugate.cli.recalibrate.update_command.callback", never)
    assert main(["update", "data", "--rel", "nosuch"]) == 2
    assert "nosuch: no release is current" in capsys.readouterr().err


def options(command: click.Command) -> Iterator[click.Option]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            action = command.get_command(context, name)
            assert action is not None, name
            yield from options(action)
    yield from (parameter for parameter in command.params if isinstance(parameter, click.Option))


def test_plain_options_are_options_of_commands() -> None:
    every = [option for name in COMMANDS for option in options(load_command(name))]
    flags = {name for option in every if option.is_flag for name in option.opts}
    valued = {name for option in every if not option.is_flag for name in option.opts}
    assert flags >= FLAGS
    assert not FLAGS & valued
    assert valued >= PLAIN
    for group, names in ACTIONS.items():
        command = load_command(group)
        assert isinstance(command, click.Group)
        assert {*names} == {name for name, each in command.commands.items() if not each.hidden}
