"""`taugate quickstart`: calibrate on the sample corpus or a folder of files, ask two questions, serve the release."""

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, cast

import click
from pydantic.dataclasses import dataclass

from taugate import plugins
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.settings import CalibrationSettings
from taugate.cli.serve import address, listen, print_when_ready, serve
from taugate.cli.terminal.options import Appearance, Verbose, command_of, option
from taugate.cli.terminal.output import say_sentence
from taugate.cli.terminal.promotion import print_release
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.service.settings import read_settings

if TYPE_CHECKING:
    from taugate.service.api.schemas import SearchResults

_SAMPLE_QUESTION = "Who is liable for hidden defects when I buy a house?"
_QUESTION_WORDS = 12  # maximum, of a heading or passage that is asked as a question
# The number of a heading: 3.2, § 4, (b), IV., A.1, Article 5, Chapter II.
_NUMBER = re.compile(
    r"^\W*(?:(?:article|chapter|part|section|abschnitt|artikel|kapitel|teil|chapitre|art\.|nr\.)\s+[\divxlcdm.]+"
    r"|\d{1,3}(?:\.\d+)*[a-z]?|[a-z](?:\.\d+)+|(?:[a-z]|[ivxlcdm]+)[.)])(?=[.):]*(?:\s|$))\W*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_TEXT_CHARACTERS = 68  # of an answer: one line of a terminal


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
    verbose: Verbose = False

    def places(self) -> tuple[Path, Path]:
        """Return the folder of the data set and the releases directory; two folders of one name need --directory."""
        folder = self.folder
        name = "quickstart" if folder is None else f"quickstart-{folder.resolve().name or 'files'}"
        directory = self.directory or Path(name)
        releases = self.releases or directory / "releases"
        for name, place in (("--directory", directory), ("--releases", releases)):
            if folder is not None and place.resolve().is_relative_to(folder.resolve()):
                raise InputError(f"{place}: is inside {folder}; give {name} a folder outside it")
        return directory / "data", releases


def run(options: QuickstartOptions) -> int:
    """Calibrate on a sample data set, or on your own files, and serve the release.

    Needs no Redis and, if taugate[sample] is installed, no network.
    """
    if options.folder is None:
        from taugate.data.location import check_sample_installed

        check_sample_installed()  # first, because its message names both extras
        write_data = _write_sample
    else:
        write_data = partial(_import_folder, plugins.load_one("commands", "import"), options.folder)
    import taugate.calibration.job.calibration  # noqa: F401 (fails before anything is written if a package is missing)
    from taugate.cli.calibrate import CalibrateOptions, calibrate_and_publish

    data, releases = options.places()
    settings = read_settings(releases=releases, port=options.port, log_level="warning")
    listener = None if options.no_serve else listen(settings)  # fails early if the port is in use
    question, k = write_data(data)
    release = calibrate_and_publish(
        CalibrateOptions(data=str(data), releases=releases, encoder=DEFAULT_ENCODER, verbose=options.verbose),
        CalibrationSettings.from_options({"k": k}),
        warnings=_is_labelled(data),  # those about crops say in detail why the release is provisional
        keep_equal=False,  # or every start would add a release
    )
    rows, steps, ending = release.rows(), release.next_rows(), release.ending
    del rows["Measured"], rows["Metrics"]  # the first step has said what was read, and the report has all metrics
    if not ending.code:
        rows |= _answers(question, release.path)
    if ending.code or listener is None:
        return print_release(release.path, rows | steps, ending, ending.sentences)
    print_release(release.path, rows, ending, None)
    print_when_ready(listener, lambda _: steps | {"Open": address(settings, listener)})
    serve(settings, listener)
    return 0


def _write_sample(data: Path) -> tuple[str, int]:
    """Write the sample data set into a folder; returns a question that it answers, and K."""
    from taugate.data.location import write_sample

    write_sample(data)
    return _SAMPLE_QUESTION, CalibrationSettings().k


def _import_folder(importing: click.Command, folder: Path, data: Path) -> tuple[str, int]:
    """Import a folder of files, and crop queries if it has no labels; returns a question that it answers, and K."""
    from taugate.data.corpus import CORPUS
    from taugate.data.generation.generate import MAX_QUERIES, generate_crops
    from taugate.data.lines import read_objects

    existed = data.parent.exists()
    try:
        importing.invoke(importing.make_context("import", ["--to", str(data), "--", str(folder)]))
    except InputError:
        if not existed:
            with suppress(OSError):  # a folder that is not empty is kept
                data.parent.rmdir()
        raise
    if not _is_labelled(data):
        say_sentence(generate_crops(data, MAX_QUERIES, seed=0).sentence(data))
    records = [cast("dict[str, str]", record) for _, record in read_objects(data / CORPUS)]
    passages = [(record.get("title"), record["text"]) for record in records]
    return _heading_of(passages), min(CalibrationSettings().k, len(passages))


def _is_labelled(data: Path) -> bool:
    """Return whether people labelled queries: the folder was a data set, or queries were labelled since."""
    from taugate.data.judgements import HUMAN, TEST, splits_in

    return bool({TEST, HUMAN} & set(splits_in(data)))


def _heading_of(passages: list[tuple[str | None, str]]) -> str:
    """Return the heading, or the first words, of a passage in the main language, near the middle of the corpus.

    The number of a heading is left out, and a heading without a word is no question.
    """
    from taugate.data.parsed import HEADING_SEPARATOR
    from taugate.data.questions import QuestionRule

    main = QuestionRule.for_texts(text for _, text in passages).language
    middle = len(passages) // 2
    around = [*passages[middle:], *passages[:middle]]
    title, text = next((pair for pair in around if QuestionRule.for_texts([pair[1]]).language == main), around[0])
    headings = ((title or "").rpartition(HEADING_SEPARATOR)[2], text)
    named = (_NUMBER.sub("", heading) for heading in headings)
    return " ".join(next(filter(_WORD.search, named), text).split()[:_QUESTION_WORDS])


def _answers(question: str, release: Path) -> dict[str, str]:
    """Search for a question about the corpus and for an off-topic one; returns both with their answers, by labels."""
    from taugate.data.questions import QuestionRule, off_topic_example
    from taugate.local import LocalRetriever

    off_topic = off_topic_example(QuestionRule.for_texts([question]).language)
    with LocalRetriever.open(release.parent, release.name) as retriever:
        questions = {"Question": question, "Off topic": off_topic}
        return {label: f"{text}\n{_outcome(retriever.search(text))}" for label, text in questions.items()}


def _outcome(reply: "SearchResults") -> str:
    best = f"{reply.best_score or 0.0:.3f}"
    if reply.results:
        first = reply.results[0]
        return shorten(f"{first.score:.3f} {first.text}", _TEXT_CHARACTERS, placeholder=" …")
    if reply.reason == "unreadable":
        return "no result: the encoder cannot read this question"
    if reply.reason == "unanswerable":
        return f"no result: refused, the most similar document scores {best}"
    return f"no result: the most similar document scores {best}, below the threshold"


command = command_of("quickstart", run, QuickstartOptions)
