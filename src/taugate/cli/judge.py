"""`taugate judge`: people judge the results of a sample of queries, which gives qrels for calibration."""

import argparse
import getpass
import re
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import orjson

from taugate.cli.terminal.output import printable, say
from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TRAFFIC, qrels_of
from taugate.ingestion.dataset.lock import DatasetBusy

if TYPE_CHECKING:
    from taugate.ingestion.labels.judging import Judging
    from taugate.ingestion.labels.verdicts import Verdicts

_NAME = re.compile(r"[\w-][\w.-]{0,63}")  # of a judge or a split: both become file names
_MAX_LISTED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate judge` to its parser."""
    parser.description = (
        "Judge the results of a sample of queries, one key for each result. The sample prefers queries with results "
        "near the threshold. Stop at any time; the same command resumes."
    )
    parser.add_argument("data", metavar="DATA", type=Path, help="folder of the data set, with corpus.jsonl")
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
    parser.add_argument(
        "--release", metavar="ID", help="the release whose results are judged (default: the current one)"
    )
    parser.add_argument(
        "--log", metavar="LOG", type=Path, action="append", default=[],
        help="query log of the service, whose queries may be judged too; repeat the option for several logs",
    )  # fmt: skip
    parser.add_argument(
        "--n", metavar="N", type=int,
        help="how many queries to judge, each with all of its results: 50 queries with 5 results each take about 250 "
        "key presses (default: 50)",
    )  # fmt: skip
    parser.add_argument("--more", action="store_true", help="draw another sample of queries that are not judged yet")
    parser.add_argument(
        "--disputed",
        action="store_true",
        help="show only results on which the other judges are evenly divided",
    )
    parser.add_argument("--judge", metavar="NAME", help="name of the judge (default: the user name)")
    parser.add_argument(
        "--split", metavar="NAME", default=HUMAN, help=f"split that the judgements go to (default: {HUMAN})"
    )
    parser.add_argument("--web", action="store_true", help="judge on a page in the browser of this machine")
    parser.add_argument("--port", metavar="P", type=int, default=0, help="port of the page (default: any free one)")
    parser.add_argument("--seed", metavar="N", type=int, help="seed of every random choice (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run a judging session, then report its progress and the agreement of the judges; returns the exit code.

    Raises:
        InputError: If options contradict each other or the data set cannot be used.
        ReleaseError: If the release cannot be loaded.
    """
    from taugate.cli.judging.terminal import judge_in_terminal
    from taugate.ingestion.labels.judging import SampleRequest, Sources, judging, sample_to_judge
    from taugate.registry.catalog import find
    from taugate.retrieval.release.reader import load

    data, split = arguments.data, _name("--split", arguments.split)
    if split in {GENERATED, TRAFFIC}:
        raise InputError(f"--split {split}: another command writes this split; leave --split out, or give another name")
    judge = _name("--judge", _user() if arguments.judge is None else arguments.judge)
    request = SampleRequest(arguments.n, arguments.seed, arguments.more)
    sources = Sources(lambda: load(find(arguments.releases, arguments.release)), arguments.log)
    sample = sample_to_judge(data, split, request, sources, say)
    if arguments.release is not None and find(arguments.releases, arguments.release).name != sample.release:
        raise InputError(
            f"--release {arguments.release}: sample {sample.number} has the results of {sample.release}; leave "
            "--release out to continue it, or add --more to draw another sample"
        )
    say(
        f"sample {sample.number}: {len(sample.queries):,} of {sample.population:,} queries with the results of release "
        f"{sample.release}, judged by {judge}"
    )
    with judging(data, split, sample, judge, only_disputed=arguments.disputed) as work:
        try:
            if arguments.web:
                from taugate.cli.judging.web import judge_on_page

                judge_on_page(work, arguments.port)
            else:
                judge_in_terminal(work)
        finally:  # also after Ctrl-C
            verdicts = _write(work)
            progress = work.session.progress()
            for line in summary(data, split, verdicts):
                say(printable(line))
    if arguments.json:
        sys.stdout.write(orjson.dumps(_fields(split, judge, verdicts)).decode() + "\n")
    elif progress.done < progress.total:
        say("Run the same command to resume.")
    elif verdicts.judged:
        releases = quote(str(arguments.releases))
        labels = "--labels human" if split == HUMAN else f"--split {quote(split)}"
        say(f"Next: taugate calibrate {quote(str(data))} --releases {releases} {labels}")
    return 0


def _write(work: "Judging") -> "Verdicts":
    """Write the judgements as qrels.

    Raises:
        DatasetBusy: If another command is still writing to the data set.
    """
    from taugate.ingestion.labels.judging import PATIENCE_SECONDS

    try:
        return work.write(PATIENCE_SECONDS)
    except DatasetBusy as error:
        raise DatasetBusy(
            f"{error}, then run `taugate judge` again: all judgements are kept, but not all of them are in qrels yet"
        ) from error


def summary(data: Path, split: str, verdicts: "Verdicts") -> list[str]:
    """Return lines on what was judged, how far the judges agree, and on which results they disagree.

    Args:
        data: Folder of the data set.
        split: Split that the judgements go to.
        verdicts: Judgements of all judges.
    """
    sample, judged = verdicts.sample, verdicts.judged
    if not judged:
        return ["no query is completely judged yet, so no qrels were written"]
    answered = sum(any(query.grades.values()) for query in judged)
    lines = [
        f"{data / qrels_of(split)}: {len(judged):,} of {len(sample.queries):,} queries judged, {answered:,} of them "
        f"with a relevant passage; they represent {sample.population:,} queries"
    ]
    for (first, second), agreed in verdicts.agreements.items():
        kappa = "" if agreed.kappa is None else f"; Cohen's kappa is {_rounded(agreed.kappa)}"
        if agreed.lower is not None and agreed.upper is not None:
            kappa += f" (95 % interval {_rounded(agreed.lower)} to {_rounded(agreed.upper)})"
        lines.append(f"{first} and {second} agree on {agreed.equal:,} of {agreed.results:,} results{kappa}")
    disputed = verdicts.disagreements
    if disputed:
        count = "1 result is" if len(disputed) == 1 else f"{len(disputed):,} results are"
        lines.append(f"{count} disputed; until another judge decides with --disputed, disputed results are relevant:")
    lines += [
        f"  {result.document} for “{result.text}”: relevant to {', '.join(result.relevant)}, not to "
        f"{', '.join(result.irrelevant)}"
        for result in disputed[:_MAX_LISTED]
    ]
    if len(disputed) > _MAX_LISTED:
        lines.append(f"  and {len(disputed) - _MAX_LISTED:,} more; --json lists all")
    return lines


def _fields(split: str, judge: str, verdicts: "Verdicts") -> dict[str, object]:
    judged = verdicts.judged
    answered = sum(any(query.grades.values()) for query in judged)
    return {
        "split": split,
        "sample": verdicts.sample.number,
        "release": verdicts.sample.release,
        "judge": judge,
        "queries": len(verdicts.sample.queries),
        "judged": len(judged),
        "answerable": answered,
        "unanswerable": len(judged) - answered,
        "population": verdicts.sample.population,
        "agreements": [{"judges": judges, **agreed._asdict()} for judges, agreed in verdicts.agreements.items()],
        "disagreements": [result._asdict() for result in verdicts.disagreements],
    }


def _rounded(kappa: float) -> str:
    return f"{round(kappa, 2) + 0.0:.2f}"  # without the sign of a zero


def _user() -> str:
    """Return the name of the user, with a hyphen for each character that a judge's name may not have."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        user = ""
    return re.sub(r"[^\w-]", "-", user)[:64] or "judge"


def _name(option: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"{option} {name!r}: use up to 64 letters, digits, dots, hyphens and underscores")
    return name
