"""`taugate quickstart`: calibrate on the sample corpus, serve the release, and ask it two questions."""

import argparse
import json
import shlex
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taugate.cli.serve import listen, serve
from taugate.cli.terminal.output import say
from taugate.service.settings import read_settings

_ANSWERED = "Who is liable for hidden defects when I buy a house?"
_READY_SECONDS = 60  # loading the sample release takes about one; a machine that needs more has another problem


@dataclass(frozen=True)
class QuestionOutcome:
    """What a question got.

    results: similarity and text of each result kept, best first; considered: results there were before the threshold;
    best: similarity of the first of them.
    """

    results: Sequence[tuple[float, str]]
    considered: int
    best: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate quickstart` to its parser."""
    parser.description = "Calibrate on a sample data set and serve the release. Needs no network and no Redis."
    parser.add_argument("--port", metavar="N", type=int, default=8000, help="port to serve on (default: 8000)")
    parser.add_argument("--no-serve", action="store_true", help="ask the questions in this process, and stop")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        default=Path("quickstart"),
        help="where data and releases go (default: quickstart)",
    )
    parser.add_argument(
        "--releases", metavar="DIR", type=Path, help="where releases go (default: the folder releases in --directory)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate on the sample, then serve it until interrupted, or with --no-serve ask the questions and stop.

    arguments: the parsed command line. Returns the exit code. Raises TaugateError as `calibrate` and `serve` do.
    """
    from taugate.ingestion.dataset.sample import check_installed, write_sample

    check_installed()  # before any other package that may be missing: its message names both extras
    import taugate.calibration.job.job  # noqa: F401 (a package that is missing is found out before anything is written)
    from taugate.calibration.encoding.source import DEFAULT_ENCODER
    from taugate.cli import calibrate
    from taugate.registry.catalog import find

    data, releases = arguments.directory / "data", arguments.releases or arguments.directory / "releases"
    settings = read_settings(releases=releases, port=arguments.port, log_level="warning")
    listener = None if arguments.no_serve else listen(settings)  # a port in use is found out before the work
    write_sample(data)
    parser = argparse.ArgumentParser()
    calibrate.add_arguments(parser)
    options = [str(data), "--releases", str(releases), "--encoder", DEFAULT_ENCODER]
    code = calibrate.run(parser.parse_args(options), with_next_steps=False)
    if code:
        return code
    release = find(releases)
    if listener is None:
        _show(_search_in_process(release), data, release)
        _print(f"\nServe it:\ntaugate serve --releases {shlex.quote(str(releases))}")
        return 0
    host, port = listener.getsockname()[:2]
    threading.Thread(target=_search_over_http, args=(f"http://{host}:{port}", data, release), daemon=True).start()
    serve(settings, listener)
    return 0


def _search_in_process(folder: Path) -> Callable[[list[str]], list[QuestionOutcome]]:
    """Load a release, and return a function that asks it questions without a service."""
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
            )
            for answer in release.retriever.search([Query(question, k) for question in questions])
        ]

    return search


def _search_over_http(base: str, data: Path, release: Path) -> None:
    """Ask the questions over HTTP as soon as the service is ready, and say how to ask another one."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=5):  # noqa: S310 (our own loopback address)
                break
        except OSError:  # not yet ready, or not yet listening: urllib's errors are all of them
            time.sleep(0.1)
    else:
        return

    def search(questions: list[str]) -> list[QuestionOutcome]:
        return [
            QuestionOutcome(
                [(result["score"], result["text"]) for result in reply["results"]],
                reply["considered"],
                reply["best_score"] or 0.0,
            )
            for reply in _post(f"{base}/search/batch", {"queries": questions})["responses"]
        ]

    try:
        _show(search, data, release)
    except OSError as error:  # the service needs a key, say
        say(f"warning: the two questions could not be asked: {error}")
    _print(f"\nServing on {base}; Ctrl-C stops it. Ask it something in another terminal:")
    body = shlex.quote(json.dumps({"query": _ANSWERED}))
    _print(f"curl -s {base}/search -H 'Content-Type: application/json' -d {body}")


def _post(url: str, body: object) -> Any:  # noqa: ANN401 (any JSON)
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 (our own loopback address)
        return json.load(reply)


def _show(search: Callable[[list[str]], list[QuestionOutcome]], data: Path, release: Path) -> None:
    """Ask a question that the sample answers and all off-topic ones, and print the first of each with what it got."""
    from taugate.ingestion.dataset.beir import off_topic_questions
    from taugate.retrieval.release.layout import REPORT

    off_topic = off_topic_questions()
    answered, *others = search([_ANSWERED, *off_topic])
    _print("\nA question that the sample answers:")
    _print_reply(_ANSWERED, answered)
    _print("\nA question about something else:")
    _print_reply(off_topic[0], others[0])
    empty = sum(not reply.results for reply in others)
    _print(f"\n{empty} of {len(others)} questions about something else get no result, as they should.")
    _print(f"The report shows what was measured:\n{release / REPORT}")
    releases = shlex.quote(str(release.parent))
    _print("\nNext, choose a stricter threshold that loses at most 2 % of the answers:")
    _print(f"taugate calibrate {shlex.quote(str(data))} --releases {releases} --max-loss 0.02")


def _print_reply(question: str, reply: QuestionOutcome) -> None:
    _print(question)
    if reply.results:
        score, text = reply.results[0]
        _print(f"→ {score:.3f} {text}\n({len(reply.results)} of {reply.considered} results kept)")
    else:
        _print(f"→ no result: the most similar document has {reply.best:.3f}, which is below the threshold")


def _print(text: str) -> None:
    """Write a line of UTF-8 to stdout."""
    sys.stdout.buffer.write(f"{text}\n".encode())  # documents are UTF-8, whatever the terminal's locale says
    sys.stdout.buffer.flush()
