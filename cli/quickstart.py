"""`taugate quickstart`: calibrate on the sample corpus, serve the release, and answer a first search."""

import argparse
import json
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli import calibrate
from taugate.cli.serve import listen, serve
from taugate.ingestion.dataset.sample import write_sample
from taugate.registry.catalog import find
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import load
from taugate.service.settings import read_settings

_QUESTION = "Who is liable for hidden defects when I buy a house?"
_READY_SECONDS = 60  # loading the sample release takes about one; a machine that needs more has another problem


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `quickstart`.

    commands: the subparsers of `taugate`.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "quickstart", help="sample corpus → calibrate → serve; no network, no Redis"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to serve on (default 8000)")
    parser.add_argument("--no-serve", action="store_true", help="answer one query in this process and stop")
    parser.add_argument(
        "--directory", metavar="DIR", type=Path, default=Path("quickstart"), help="for data and releases"
    )
    parser.add_argument("--releases", metavar="DIR", type=Path, help="where releases are kept, if not in that folder")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate on the sample, then serve it until interrupted, or with --no-serve answer one query.

    arguments: the parsed command line. Returns the exit code. Raises TaugateError as `calibrate` and `serve` do.
    """
    data, releases = arguments.directory / "data", arguments.releases or arguments.directory / "releases"
    settings = read_settings(releases=releases, port=arguments.port, log_level="warning")
    listener = None if arguments.no_serve else listen(settings)  # a port in use is found out before the work
    write_sample(data)
    commands = argparse.ArgumentParser().add_subparsers()
    calibrate.add_parser(commands)
    options = [str(data), "--releases", str(releases), "--encoder", DEFAULT_ENCODER]
    calibrate.run(commands.choices["calibrate"].parse_args(options))
    if listener is None:
        _search_in_process(releases)
        return 0
    host, port = listener.getsockname()[:2]
    threading.Thread(target=_search_over_http, args=(f"http://{host}:{port}",), daemon=True).start()
    serve(settings, listener)
    return 0


def _search_in_process(releases: Path) -> None:
    """Search the current release without a service, and print the best result."""
    release = load(find(releases))
    (answer,) = release.retriever.search([Query(_QUESTION, release.manifest.policy.k)])
    best = release.documents[int(answer.positions[0])]
    _print(f"\n{_QUESTION}\n→ {answer.scores[0]:.3f} {best.text}\n({len(answer.scores)} of {answer.considered} kept)")


def _search_over_http(base: str) -> None:
    """Search over HTTP as soon as the service is ready, and say how to do it again."""
    body = json.dumps({"query": _QUESTION})
    request = urllib.request.Request(f"{base}/search", body.encode(), {"Content-Type": "application/json"})  # noqa: S310
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310 (our own loopback address)
                best = json.load(reply)["results"][0]
        except OSError:  # not yet ready, or not yet listening: urllib's errors are all of them
            time.sleep(0.1)
            continue
        _print(f"\n{_QUESTION}\n→ {best['score']:.3f} {best['text']}\n\nServing on {base}; Ctrl-C stops it. Try:\n")
        _print(f"curl -s {base}/search -H 'Content-Type: application/json' -d '{body}'\n")
        return


def _print(text: str) -> None:
    """Write a line of UTF-8 to stdout."""
    sys.stdout.buffer.write(f"{text}\n".encode())  # documents are UTF-8, whatever the terminal's locale says
    sys.stdout.buffer.flush()
