"""Checks the paths on the command line before the module of a command is loaded, which takes seconds.

Only what is certain without the declarations of options is checked: an abbreviated option, or a URL, is left to the
command. All errors are those that the command would raise later.
"""

from collections.abc import Sequence
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.ingestion.dataset.first_lines import check_first_lines, check_folder
from taugate.ingestion.dataset.judgements import TEST
from taugate.ingestion.dataset.lines import read_lines
from taugate.registry.directory import check_releases

# Options of all commands that take no value.
FLAGS = {
    *("--accept-vectors", "--check", "--disputed", "--dry-run", "--force", "--json", "--keep-documents", "--more"),
    *("--new-encoder", "--no-promote", "--no-refusal", "--no-serve", "--none", "--promote", "--strict"),
    *("--unanswerable", "--verbose", "--web", "--yes"),
}
SHORT = {"--k", "--keep", "--n"}  # options with a value, which are no abbreviations of a flag
_LABELLED = {"calibrate", "update", "recalibrate", "compare", "adapt"}
_CORPUS = {"encode", "queries"}
_LOGS = {"traffic", "drift"}
_RELEASES = {"update", "recalibrate", "judge", "explain", "serve", "drift"}  # which have to exist
_RUN = ("give a TREC run, or JSON Lines with query_id and results", "give the qrels of the run's queries")


def check_paths(words: Sequence[str]) -> None:
    """Check the paths of a command line.

    Args:
        words: The command and its arguments.

    Raises:
        InputError: If a file or folder is missing, or the first line of a data set's file is something else.
        ReleaseError: If there is no releases directory.
    """
    command, words = words[0], words[1:]
    if command in {"release", "drift", "key"}:
        words = words[1:]
    if (parsed := _parsed(words)) is None:
        return
    arguments, options = parsed
    paths = [Path(argument) for argument in arguments if "://" not in argument]
    if command == "import" or (command == "quickstart" and paths):
        for path in paths:
            if not path.exists():
                raise InputError(f"{path}: no such file or folder; name files or folders to import")
    elif command == "calibrate-run":
        for path, missing in zip(paths, _RUN, strict=False):
            next(read_lines(path, missing), None)
    elif command == "run" and arguments[:1] != ["generated"] and paths:
        from taugate.ingestion.runs.recording import read_run_queries  # loads pydantic

        read_run_queries(paths[0])
    elif command in _LABELLED | _CORPUS | {"judge"} and paths and "://" not in arguments[0]:
        check_folder(paths[0])
        if command != "judge":
            check_first_lines(paths[0], options.get("--split", TEST) if command in _LABELLED else None)
    _check_options(command, paths, options)


def _check_options(command: str, paths: Sequence[Path], options: dict[str, str]) -> None:
    """Check the values of options, and logs."""
    releases, to, log, run = (options.get(name, "") for name in ("--releases", "--to", "--log", "--run"))
    if run:
        next(read_lines(Path(run), _RUN[0]), None)
    if command == "traffic" and to:
        check_folder(Path(to))
    for path in [*(paths if command in _LOGS else ()), *([Path(log)] if log else ())]:
        if not any(path.parent.glob(f"{path.name}*")):  # parts of a log have further suffixes
            raise InputError(f"{path}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")
    if releases and "://" not in releases and not Path(releases).is_dir():
        if command == "release":
            check_releases(Path(releases))
        elif command in _RELEASES:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )


def _parsed(words: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Return the arguments, and the options with their values; None if that is uncertain, or help is requested."""
    arguments: list[str] = []
    options: dict[str, str] = {}
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if word == "--":
            arguments += remaining
        elif not word.startswith("-"):
            arguments.append(word)
        elif equals:
            options[name] = value
        elif word in FLAGS:
            continue
        elif word in SHORT or (word[:2] == "--" and not any(flag.startswith(word) for flag in (*FLAGS, "--help-all"))):
            options[word] = next(remaining, "")
        else:
            return None
    return arguments, options
