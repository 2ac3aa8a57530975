"""Checks the paths on a command line before anything is loaded that takes seconds.

That is done before the module of a command is loaded if the meaning of the line is certain without it, and else after
Click has parsed the line. All errors are those that the command would raise later.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.ingestion.dataset.first_lines import check_first_lines, check_folder
from taugate.ingestion.dataset.judgements import TEST
from taugate.ingestion.dataset.lines import read_lines
from taugate.registry.directory import check_releases_exist

# Common options without a value, and with one, of all commands.
FLAGS = {"--dry-run", "--force", "--json", "--new-encoder", "--no-promote", "--verbose", "--yes"}
PLAIN = {
    *("--as", "--budget", "--chunks", "--collection", "--depth", "--encoder", "--from", "--holdout", "--index", "--k"),
    *("--key", "--labels", "--lexical", "--log", "--max", "--max-accuracy-drop", "--max-answered", "--max-length"),
    *("--max-loss", "--model", "--n", "--precision", "--projection", "--rate", "--release", "--releases", "--request"),
    *("--rerank", "--run", "--seed", "--split", "--stage", "--tau", "--text", "--texts", "--to", "--url"),
}
ACTIONS = {
    "release": [
        *("list", "show", "history", "verify", "promote", "rollback", "shadow", "prune", "diff"),
        *("erase", "sign", "push", "pull"),
    ],
    "drift": ["replay", "baseline"],
}
_LABELLED = {"calibrate", "update", "recalibrate", "compare", "adapt"}
_RELEASES = {"update", "recalibrate", "judge", "explain", "serve", "drift"}  # which have to exist
_RUN = ("give a TREC run, or JSON Lines with query_id and results", "give the qrels of the run's queries")


def check_words(words: Sequence[str]) -> None:
    """Check the paths of a command line, the command and its arguments, if all of it is certain; errors as below."""
    command, remaining = words[0], iter(words[1:])
    if command in ACTIONS:
        action = next(remaining, "")
        if action not in ACTIONS[command]:
            return
        command = f"{command} {action}"
    arguments: list[str] = []
    options: dict[str, str] = {}
    for word in remaining:
        name, equals, value = word.partition("=")
        if name in PLAIN:
            options[name] = value if equals else next(remaining, "")
        elif not word.startswith("-"):
            arguments.append(word)
        elif word not in FLAGS:
            return
    check_paths(command, arguments, options)


def check_paths(command: str, arguments: Sequence[str], options: Mapping[str, str]) -> None:
    """Check the paths of a command.

    Args:
        command: Its name, with that of an action.
        arguments: Its arguments without a name.
        options: The values of its options by name.

    Raises:
        InputError: If a file or folder is missing, or the first line of a data set's file is something else.
        ReleaseError: If there is no releases directory.
    """
    paths = [Path(argument) for argument in arguments if "://" not in argument]
    if command == "run" and arguments[:1] != ["generated"] and paths:
        from taugate.ingestion.runs.recording import read_run_queries  # loads pydantic

        read_run_queries(paths[0])
    elif command in _LABELLED | {"encode", "queries", "judge"} and paths and "://" not in arguments[0]:
        check_folder(paths[0])
        if command != "judge":
            check_first_lines(paths[0], options.get("--split", TEST) if command in _LABELLED else None)
    elif command == "traffic" and options.get("--to"):
        check_folder(Path(options["--to"]))
    group = command.partition(" ")[0]
    _check_files(group, paths, options)
    releases = options.get("--releases", "")
    if releases and "://" not in releases and not Path(releases).is_dir() and command != "release pull":
        if group == "release":
            check_releases_exist(Path(releases))
        elif group in _RELEASES:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )


def _check_files(command: str, paths: Sequence[Path], options: Mapping[str, str]) -> None:
    """Check sources, runs and logs."""
    if command in {"import", "quickstart"} and (missing := [path for path in paths if not path.exists()]):
        raise InputError(f"{missing[0]}: no such file or folder; name files or folders to import")
    run, log = (Path(value) if (value := options.get(name)) else None for name in ("--run", "--log"))
    for path, remedy in zip(paths if command == "calibrate-run" else filter(None, [run]), _RUN, strict=False):
        next(read_lines(path, remedy), None)
    for path in paths if command in {"traffic", "drift"} else filter(None, [log]):
        # Parts of a log have further suffixes, and there is another remedy for one that is packed.
        if path.suffix != ".gz" and not any(path.parent.glob(f"{path.name}*")):
            raise InputError(f"{path}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")
