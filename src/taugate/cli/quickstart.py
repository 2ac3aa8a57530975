"""`taugate quickstart`: calibrate on the sample corpus or a folder of files, serve the release, and ask a question."""

import argparse
import json
import shlex
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.serve import listen, serve
from taugate.cli.terminal.output import say
from taugate.errors import InputError
from taugate.service.settings import read_settings

_SAMPLE_QUESTION = "Who is liable for hidden defects when I buy a house?"
_QUESTION_WORDS = 12  # maximum, of a heading or passage that is asked as a question
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine's loopback
_READY_SECONDS = 60  # loading the sample release takes about a second


@dataclass(frozen=True)
class QuestionOutcome:
    """The results of a question.

    Attributes:
        results: Similarity and text of each kept result, best first.
        considered: Number of results before the threshold.
        best: Similarity of the best one.
        reason: Why no result is kept, or None if one is.
    """

    results: Sequence[tuple[float, str]]
    considered: int
    best: float
    reason: str | None = None


@dataclass(frozen=True)
class _Tour:
    """The question, texts and options of the quickstart for a data set.

    Attributes:
        question: A question that the corpus answers.
        introduction: Text to print before the question.
        options: Further options of `taugate calibrate`.
        next_step: End of a sentence that begins with "Next,".
    """

    question: str
    introduction: str
    options: Sequence[str]
    next_step: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate quickstart` to its parser."""
    parser.description = (
        "Calibrate on a sample data set, or on your own files, and serve the release. Needs no Redis and, if "
        "taugate[sample] is installed, no network."
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        help="files to search: texts, web pages, PDF, office files, emails, tables, code (default: a sample data set)",
    )
    parser.add_argument("--port", metavar="N", type=int, default=8000, help="port to serve on (default: 8000)")
    parser.add_argument("--no-serve", action="store_true", help="search in this process, then exit")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        help="folder for data and releases (default: quickstart, or quickstart-NAME for a folder NAME)",
    )
    parser.add_argument(
        "--releases",
        metavar="DIR",
        type=Path,
        help="the releases directory (default: a folder named releases in --directory)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make a data set, calibrate on it, then serve until interrupted; with --no-serve, search once and exit.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code.

    Raises:
        TaugateError: As `calibrate` and `serve` do.
    """
    if arguments.folder is None:
        from taugate.ingestion.dataset.sample import check_installed

        check_installed()  # first, because its message names both extras
    import taugate.calibration.job.calibration  # noqa: F401 (fails before anything is written if a package is missing)
    from taugate.cli import calibrate
    from taugate.registry.catalog import find
    from taugate.service.access.authorization import PLAYGROUND_PATH

    directory = arguments.directory or _default_directory(arguments.folder)
    data, releases = directory / "data", arguments.releases or directory / "releases"
    for option, place in (("--directory", directory), ("--releases", releases)):
        if arguments.folder is not None and place.resolve().is_relative_to(arguments.folder.resolve()):
            raise InputError(f"{place}: is inside {arguments.folder}; give {option} a folder outside it")
    settings = read_settings(releases=releases, port=arguments.port, log_level="warning")
    listener = None if arguments.no_serve else listen(settings)  # fails early if the port is in use
    tour = (
        _prepare_sample(data, releases)
        if arguments.folder is None
        else _prepare_folder(arguments.folder, data, releases)
    )
    options = [str(data), "--releases", str(releases), "--encoder", DEFAULT_ENCODER, *tour.options]
    code = calibrate.run(_parse(calibrate, options), with_next_steps=False)
    if code:
        return code
    release = find(releases)
    if listener is None:
        _show(_search_in_process(release), tour, release)
        _print(f"\nServe it:\ntaugate serve --releases {shlex.quote(str(releases))}")
        return 0
    host, port = listener.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"  # IPv6
    playground = f"{base}{PLAYGROUND_PATH}" if settings.listen.has_playground else None
    threading.Thread(target=_search_over_http, args=(base, playground, tour, release), daemon=True).start()
    serve(settings, listener)
    return 0


def _default_directory(folder: Path | None) -> Path:
    """Return the folder for data and releases; two folders of the same name need --directory."""
    return Path("quickstart" if folder is None else f"quickstart-{folder.resolve().name or 'files'}")


def _parse(command: ModuleType, options: list[str]) -> argparse.Namespace:
    """Return the arguments of another command, as if these options had been typed."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(options)


def _prepare_sample(data: Path, releases: Path) -> _Tour:
    """Write the sample data set into a folder."""
    from taugate.ingestion.dataset.sample import write_sample

    write_sample(data)
    return _Tour(
        question=_SAMPLE_QUESTION,
        introduction="A question that the sample answers:",
        options=(),
        next_step="certify how many answers are lost, here at most 2 % with 95 % confidence:\n"
        f"{_calibrate(data, releases)} --max-loss 0.02",
    )


def _prepare_folder(folder: Path, data: Path, releases: Path) -> _Tour:
    """Import a folder of files, and crop a query from each passage, because the folder has no labels."""
    from taugate.calibration.settings.settings import CalibrationSettings
    from taugate.cli import import_data, queries
    from taugate.ingestion.chunks.chunker import HEADING_SEPARATOR
    from taugate.ingestion.dataset.corpus import CORPUS
    from taugate.ingestion.dataset.judgements import HUMAN, TEST, qrels_of, splits_in
    from taugate.ingestion.dataset.lines import read_objects
    from taugate.ingestion.dataset.queries import QUERIES
    from taugate.retrieval.release.records import MIN_QUERIES

    existed = data.parent.exists()
    try:
        import_data.run(_parse(import_data, [str(folder), "--to", str(data)]))
    except InputError:
        if not existed:
            with suppress(OSError):  # a folder that is not empty is kept
                data.parent.rmdir()
        raise
    labelled = bool({TEST, HUMAN} & set(splits_in(data)))  # the folder is a data set, or queries were labelled since
    next_step = "ask it questions of your own."
    if not labelled:
        queries.run(_parse(queries, [str(data), "--method", "crop"]))
        next_step += (
            " Its threshold is provisional: the queries behind it were cut from your files.\nOnce people have asked "
            f"{MIN_QUERIES} questions or more, write them to {data / QUERIES} and the\npassages that answer them to "
            f"{data / qrels_of(HUMAN)}, and calibrate again:\n{_calibrate(data, releases)} --split {HUMAN}"
        )
    titles = [record.get("title") or record["text"] for _, record in read_objects(data / CORPUS)]
    title = titles[len(titles) // 2].rpartition(HEADING_SEPARATOR)[2]
    return _Tour(
        question=" ".join(title.split()[:_QUESTION_WORDS]),
        introduction="A heading, or the first words of a passage, asked as a question:",
        options=("--k", str(min(CalibrationSettings().k, len(titles)))),
        next_step=next_step,
    )


def _calibrate(data: Path, releases: Path) -> str:
    """Return the command line that calibrates on a data set, as it is typed in a shell."""
    return f"taugate calibrate {shlex.quote(str(data))} --releases {shlex.quote(str(releases))}"


def _search_in_process(folder: Path) -> Callable[[list[str]], list[QuestionOutcome]]:
    """Load a release, and return a function that searches it in this process."""
    from taugate.retrieval.query import Query
    from taugate.retrieval.release.reader import load

    release = load(folder)

    def search(questions: list[str]) -> list[QuestionOutcome]:
        k = release.manifest.policy.k
        return [
            QuestionOutcome(
                [
                    (float(score), release.documents[int(position)].text)
                    for position, score in zip(answer.positions, answer.scores, strict=True)
                ],
                answer.considered,
                answer.best_score or 0.0,
                answer.reason,
            )
            for answer in release.retriever.search([Query(question, k) for question in questions])
        ]

    return search


def _search_over_http(base: str, playground: str | None, tour: _Tour, release: Path) -> None:
    """Search over HTTP once the service is ready, and print how to search again."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with _OPENER.open(f"{base}/readyz", timeout=5):
                break
        except OSError:  # not ready or not listening yet; the errors of urllib are OSErrors
            time.sleep(0.1)
    else:
        return

    def search(questions: list[str]) -> list[QuestionOutcome]:
        return [
            QuestionOutcome(
                [(result["score"], result["text"]) for result in reply["results"]],
                reply["considered"],
                reply["best_score"] or 0.0,
                reply["reason"],
            )
            for reply in _post(f"{base}/search/batch", {"queries": questions})["responses"]
        ]

    with suppress(BrokenPipeError):  # stdout is closed; the service keeps running
        _introduce(base, playground, tour, lambda: _show(search, tour, release))


def _introduce(base: str, playground: str | None, tour: _Tour, show: Callable[[], None]) -> None:
    """Print the results of the questions, and how to search again."""
    try:
        show()
    except BrokenPipeError:
        raise
    except OSError as error:  # the service needs a key, say
        say(f"warning: the example searches failed: {error}")
    _print(f"\nServing on {base}; Ctrl-C stops it.")
    if playground is not None:
        _print(f"Ask it something in a browser:\n{playground}")
    _print(f"{'Or in' if playground else 'Ask it something in'} another terminal:")
    body = shlex.quote(json.dumps({"query": tour.question}, ensure_ascii=False))
    _print(f"curl -s {base}/search -H 'Content-Type: application/json' -d {body}")


def _post(url: str, body: object) -> Any:  # noqa: ANN401 (any JSON)
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with _OPENER.open(request, timeout=30) as reply:
        return json.load(reply)


def _show(search: Callable[[list[str]], list[QuestionOutcome]], tour: _Tour, release: Path) -> None:
    """Search for a question about the corpus and twenty off-topic ones, and print the first of each kind."""
    from taugate.ingestion.dataset.off_topic import off_topic_examples
    from taugate.ingestion.queries.question_rule import QuestionRule
    from taugate.retrieval.release.layout import REPORT

    off_topic = off_topic_examples(QuestionRule.for_texts([tour.question]).language)
    on_topic, *off_topic_outcomes = search([tour.question, *off_topic])
    _print(f"\n{tour.introduction}")
    _print_reply(tour.question, on_topic)
    _print("\nA question about something else:")
    _print_reply(off_topic[0], off_topic_outcomes[0])
    empty = sum(not outcome.results for outcome in off_topic_outcomes)
    _print(f"\n{empty} of {len(off_topic_outcomes)} questions about something else get no result, as they should.")
    _print(f"The report shows what was measured:\n{release / REPORT}")
    _print(f"\nNext, {tour.next_step}")


def _print_reply(question: str, reply: QuestionOutcome) -> None:
    _print(question)
    if reply.results:
        score, text = reply.results[0]
        _print(f"→ {score:.3f} {text}\n({len(reply.results)} of {reply.considered} results kept)")
    elif reply.reason == "unreadable":
        _print("→ no result: the encoder cannot read this question")
    elif reply.reason == "unanswerable":
        _print(
            f"→ no result: refused, as no document seems to answer it (the most similar one scores {reply.best:.3f})"
        )
    else:
        _print(f"→ no result: the most similar document scores {reply.best:.3f}, which is below the threshold")


def _print(text: str) -> None:
    """Write a line of UTF-8 to stdout."""
    sys.stdout.buffer.write(f"{text}\n".encode())  # documents are UTF-8, whatever the locale
    sys.stdout.buffer.flush()
