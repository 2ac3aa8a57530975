"""`taugate quickstart`: calibrate on the sample corpus or a folder of files, serve the release, and ask a question."""

import json
import shlex
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.settings.options import Options
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.cli.serve import listen, serve
from taugate.cli.terminal.options import Appearance, command_of, option
from taugate.cli.terminal.output import print_result
from taugate.errors import InputError
from taugate.service.settings import read_settings

if TYPE_CHECKING:
    from taugate.service.api.schemas import SearchResults

_SAMPLE_QUESTION = "Who is liable for hidden defects when I buy a house?"
_QUESTION_WORDS = 12  # maximum, of a heading or passage that is asked as a question
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine's loopback
_READY_SECONDS = 60  # loading the sample release takes about a second


@dataclass(frozen=True, kw_only=True)
class QuickstartOptions(Options):
    """The options of `taugate quickstart`."""

    folder: Annotated[Path | None, Appearance("FOLDER", positional=True)] = option(
        None, "files to search: texts, web pages, PDF, office files, emails, tables, code (default: a sample data set)"
    )
    port: int = option(8000, "port to serve on")
    no_serve: bool = option(False, "search in this process, then exit")
    directory: Path | None = option(
        None, "folder for data and releases (default: quickstart, or quickstart-NAME for a folder NAME)", "DIR"
    )
    releases: Path | None = option(
        None, "the releases directory (default: a folder named releases in --directory)", "DIR"
    )

    def places(self) -> tuple[Path, Path]:
        """Return the folder of the data set and the releases directory; two folders of one name need --directory.

        Raises:
            InputError: If either is inside the folder of files.
        """
        folder = self.folder
        name = "quickstart" if folder is None else f"quickstart-{folder.resolve().name or 'files'}"
        directory = self.directory or Path(name)
        releases = self.releases or directory / "releases"
        for name, place in (("--directory", directory), ("--releases", releases)):
            if folder is not None and place.resolve().is_relative_to(folder.resolve()):
                raise InputError(f"{place}: is inside {folder}; give {name} a folder outside it")
        return directory / "data", releases


@plain_dataclass(frozen=True)
class _Tour:
    """The question, texts and settings of the quickstart for a data set.

    Attributes:
        question: A question that the corpus answers.
        introduction: Text to print before the question.
        next_step: End of a sentence that begins with "Next,".
        k: Results per query, at most the documents of the corpus.
    """

    question: str
    introduction: str
    next_step: str
    k: int = CalibrationSettings().k


def run(options: QuickstartOptions) -> int:
    """Calibrate on a sample data set, or on your own files, and serve the release.

    Needs no Redis and, if taugate[sample] is installed, no network.
    """
    if options.folder is None:
        from taugate.ingestion.dataset.sample import check_installed

        check_installed()  # first, because its message names both extras
    import taugate.calibration.job.calibration  # noqa: F401 (fails before anything is written if a package is missing)
    from taugate.cli import calibrate
    from taugate.registry.catalog import find
    from taugate.service.http.endpoints import ENDPOINTS

    data, releases = options.places()
    settings = read_settings(releases=releases, port=options.port, log_level="warning")
    listener = None if options.no_serve else listen(settings)  # fails early if the port is in use
    tour = (
        _prepare_sample(data, releases) if options.folder is None else _prepare_folder(options.folder, data, releases)
    )
    code = calibrate.run(
        calibrate.CalibrateOptions(data=str(data), releases=releases, encoder=DEFAULT_ENCODER),
        CalibrationSettings.from_options({"k": tour.k}),
        with_next_steps=False,
    )
    if code:
        return code
    _show(tour, find(releases))
    if listener is None:
        print_result(f"\nServe it:\ntaugate serve --releases {shlex.quote(str(releases))}")
        return 0
    host, port = listener.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"  # IPv6
    playground = f"{base}{ENDPOINTS['playground'].path}" if settings.listen.has_playground else None
    threading.Thread(target=_announce, args=(base, playground, tour.question), daemon=True).start()
    serve(settings, listener)
    return 0


def _prepare_sample(data: Path, releases: Path) -> _Tour:
    """Write the sample data set into a folder."""
    from taugate.ingestion.dataset.sample import write_sample

    write_sample(data)
    return _Tour(
        question=_SAMPLE_QUESTION,
        introduction="A question that the sample answers:",
        next_step="certify how many answers are lost, here at most 2 % with 95 % confidence:\n"
        f"{_calibrate(data, releases)} --max-loss 0.02",
    )


def _prepare_folder(folder: Path, data: Path, releases: Path) -> _Tour:
    """Import a folder of files, and crop a query from each passage, because the folder has no labels."""
    from taugate.cli import import_data, queries
    from taugate.ingestion.chunks.chunker import HEADING_SEPARATOR
    from taugate.ingestion.dataset.corpus import CORPUS
    from taugate.ingestion.dataset.judgements import HUMAN, TEST, qrels_of, splits_in
    from taugate.ingestion.dataset.lines import read_objects
    from taugate.ingestion.dataset.queries import QUERIES
    from taugate.retrieval.release.records import MIN_QUERIES

    existed = data.parent.exists()
    try:
        import_data.run(import_data.ImportOptions(sources=(folder,), to=data))
    except InputError:
        if not existed:
            with suppress(OSError):  # a folder that is not empty is kept
                data.parent.rmdir()
        raise
    labelled = bool({TEST, HUMAN} & set(splits_in(data)))  # the folder is a data set, or queries were labelled since
    next_step = "ask it questions of your own."
    if not labelled:
        queries.run(queries.QueriesOptions(data=data))
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
        k=min(CalibrationSettings().k, len(titles)),
        next_step=next_step,
    )


def _calibrate(data: Path, releases: Path) -> str:
    """Return the command line that calibrates on a data set, as it is typed in a shell."""
    return f"taugate calibrate {shlex.quote(str(data))} --releases {shlex.quote(str(releases))}"


def _show(tour: _Tour, release: Path) -> None:
    """Search for a question about the corpus and twenty off-topic ones, and print the first of each kind."""
    from taugate.ingestion.dataset.off_topic import off_topic_examples
    from taugate.ingestion.queries.question_rule import QuestionRule
    from taugate.local import LocalRetriever
    from taugate.retrieval.release.layout import REPORT

    off_topic = off_topic_examples(QuestionRule.for_texts([tour.question]).language)
    with LocalRetriever.open(release.parent, release.name) as retriever:
        on_topic, *off_topic_replies = (retriever.search(question) for question in (tour.question, *off_topic))
    empty = sum(not reply.results for reply in off_topic_replies)
    print_result(
        f"\n{tour.introduction}\n{_reply_text(tour.question, on_topic)}\n"
        f"\nA question about something else:\n{_reply_text(off_topic[0], off_topic_replies[0])}\n"
        f"\n{empty} of {len(off_topic)} questions about something else get no result, as they should.\n"
        f"The report shows what was measured:\n{release / REPORT}\n\nNext, {tour.next_step}"
    )


def _reply_text(question: str, reply: "SearchResults") -> str:
    best = f"{reply.best_score or 0.0:.3f}"
    if reply.results:
        first = reply.results[0]
        outcome = f"{first.score:.3f} {first.text}\n({len(reply.results)} of {reply.considered} results kept)"
    elif reply.reason == "unreadable":
        outcome = "no result: the encoder cannot read this question"
    elif reply.reason == "unanswerable":
        outcome = f"no result: refused, as no document seems to answer it (the most similar one scores {best})"
    else:
        outcome = f"no result: the most similar document scores {best}, which is below the threshold"
    return f"{question}\n→ {outcome}"


def _announce(base: str, playground: str | None, question: str) -> None:
    """Print how to search as soon as the service is ready; `playground` is its address, None if it is off."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with _OPENER.open(f"{base}/readyz", timeout=5):
                break
        except OSError:  # not ready or not listening yet; the errors of urllib are OSErrors
            time.sleep(0.1)
    else:
        return
    body = shlex.quote(json.dumps({"query": question}, ensure_ascii=False))
    asking = "Ask it something in" if playground is None else f"Ask it something in a browser:\n{playground}\nOr in"
    with suppress(BrokenPipeError):  # stdout is closed; the service keeps running
        print_result(
            f"\nServing on {base}; Ctrl-C stops it.\n{asking} another terminal:\n"
            f"curl -s {base}/search -H 'Content-Type: application/json' -d {body}"
        )


command = command_of("quickstart", run, QuickstartOptions)
