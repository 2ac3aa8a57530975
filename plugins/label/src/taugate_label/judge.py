"""`taugate judge`: people judge the results of a sample of queries, which gives qrels for calibration."""

import getpass
import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.cli.terminal.options import Appearance, AsJson, DataFolder, command_of, option
from taugate.cli.terminal.output import print_result, printable, say
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC, qrels_of
from taugate.data.queries import DatasetBusy
from taugate.errors import InputError
from taugate.evidence.options import Advice, Options
from taugate.storage.files import Json

if TYPE_CHECKING:
    from taugate_label.judging import Judging, Sources
    from taugate_label.page import Commands
    from taugate_label.verdicts import Verdicts

# Of a judge or a split: both become file names.
_Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,63}$")]
_ADVICE = Advice("use up to 64 letters, digits, dots, hyphens and underscores")
_MAX_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Options):
    """The options of `taugate judge`."""

    data: DataFolder
    releases: Annotated[Path | None, Appearance("DIR")] = option(None, "the releases directory")
    run: Path | None = option(
        None, "instead of a release: the run of another retriever, whose texts taugate run has written to DATA", "RUN"
    )
    k: int = option(5, "with --run: results to judge per query, the K of its calibration")
    release: str | None = option(None, "the release whose results are judged (default: the current one)", "ID")
    log: tuple[Path, ...] = option(
        (), "query log of the service, whose queries may be judged too; repeat the option for several logs", "LOG"
    )
    traffic: bool = option(
        False, "judge the queries that the service has drawn (TAUGATE_JUDGE_SHARE) beside --log, for the live loss"
    )
    n: int | None = option(
        None,
        "how many queries to judge, each with all of its results: 50 queries with 5 results each take "
        "about 250 key presses (default: 50)",
    )
    more: bool = option(False, "draw another sample of queries that are not judged yet")
    disputed: bool = option(False, "show only results on which the other judges are evenly divided")
    judge: Annotated[_Name | None, _ADVICE] = option(None, "name of the judge (default: the user name)")
    split: Annotated[_Name, _ADVICE] = option(HUMAN, "split that the judgements go to")
    web: Annotated[bool, Appearance(hidden=True)] = option(False, "deprecated: the page is the only way to judge")
    port: int | None = option(None, "port of the page (default: any free one)", "P")
    seed: int | None = option(None, "seed of every random choice (default: 0)")
    as_json: AsJson = False


def run(options: JudgeOptions) -> int:
    """Judge the results of a sample of queries on a page in the browser, with one key for each result.

    Only this machine can open the page. The sample prefers queries with results near the threshold. Stop at any time;
    the same command resumes.
    """
    from taugate.registry.catalog import find
    from taugate_label.judging import SampleRequest, judging, sample_to_judge
    from taugate_label.page import judge_on_page

    data, split, judge = options.data, options.split, options.judge or _user()
    if options.web:
        say("warning: --web is deprecated and will be removed in version 0.4; `taugate judge` always opens the page")
    if split in {GENERATED, TRAFFIC}:
        raise InputError(f"--split {split}: another command writes this split; leave --split out, or give another name")
    if options.traffic:
        return _judge_drawn(options, judge)
    request = SampleRequest(options.n, options.seed, options.more)
    sample = sample_to_judge(data, split, request, _sources(options), say)
    if options.releases and options.release and find(options.releases, options.release).name != sample.release:
        raise InputError(
            f"--release {options.release}: sample {sample.number} has the results of {sample.release}; leave "
            "--release out to continue it, or add --more to draw another sample"
        )
    say(
        f"sample {sample.number}: {len(sample.queries):,} of {sample.population:,} queries with the results of "
        f"{'' if options.run else 'release '}{sample.release}, judged by {judge}"
    )
    commands = _commands(options)
    with judging(data, split, sample, judge, only_disputed=options.disputed) as work:
        try:
            judge_on_page(work, options.port or 0, commands)
        finally:  # also after Ctrl-C
            verdicts = _write(work)
            progress = work.session.progress()
            for line in summary(data, split, verdicts):
                say(printable(line))
    if options.as_json:
        print_result(_fields(split, judge, verdicts))
    elif progress.done < progress.total:
        say("Run the same command to resume.")
    elif verdicts.judged:
        say(f"Next: {commands.calibrate}")
    return 0


def _judge_drawn(options: JudgeOptions, judge: str) -> int:
    """Judge the queries that the service has drawn."""
    from taugate_label.drawn import drawn_sample, judging_drawn
    from taugate_label.page import Commands, judge_on_page

    if not options.log:
        raise InputError(
            "--traffic: name the query log of the service with --log; drawn queries are in a file beside it"
        )
    logs = " ".join(f"--log {quote(str(log))}" for log in options.log)
    replay = f"taugate drift replay {quote(str(options.log[0]))} --releases {quote(str(options.releases or 'DIR'))}"
    sample, sources = drawn_sample(options.log, options.n)
    say(f"{len(sample.queries):,} drawn queries to judge, judged by {judge}")
    with judging_drawn(options.data, sample, sources, judge) as work:
        judge_on_page(
            work, options.port or 0, Commands(f"taugate judge {quote(str(options.data))} --traffic {logs}", replay)
        )
        say(f"{len(work.sent):,} of {len(sample.queries):,} queries judged")
    if options.as_json:
        print_result({"judge": judge, "queries": len(sample.queries), "judged": len(work.sent)})
    return 0


def _sources(options: JudgeOptions) -> "Sources":
    """Return where a new sample comes from; raises InputError unless it is either a run or a release."""
    from taugate.registry.catalog import find
    from taugate.retrieval.reader import load
    from taugate_label.judging import Sources

    releases, run = options.releases, options.run
    if run is not None and (releases or options.release or options.log):
        raise InputError("--run: a run is judged without a release; leave --releases, --release and --log out")
    if run is None and releases is None:
        raise InputError("--releases: give the releases directory, or the run of another retriever with --run")
    if options.k < 1:
        raise InputError(f"--k {options.k}: give a number of results, 1 or more")
    return Sources(lambda: load(find(releases or Path(), options.release)), [*options.log], run, options.k)


def _commands(options: JudgeOptions) -> "Commands":
    """Return what the judge can run next."""
    from taugate_label.page import Commands

    source = f"--run {quote(str(options.run))}" if options.run else f"--releases {quote(str(options.releases))}"
    common = f"{quote(str(options.data))} {source}"
    split = "" if options.split == HUMAN else f" --split {quote(options.split)}"
    judge = "" if options.judge is None else f" --judge {quote(options.judge)}"
    again = f"taugate judge {common}{split}{judge}{' --disputed' * options.disputed}"
    qrels = quote(str(options.data / qrels_of(options.split)))
    if options.run is not None:
        return Commands(again, f"taugate calibrate-run {quote(str(options.run))} {qrels} --releases gates")
    return Commands(again, f"taugate calibrate {common}{split or ' --labels human'}")


def _write(work: "Judging") -> "Verdicts":
    """Write the judgements as qrels."""
    from taugate_label.judging import PATIENCE_SECONDS

    try:
        return work.write(PATIENCE_SECONDS)
    except DatasetBusy as error:
        raise DatasetBusy(
            f"{error}, then run `taugate judge` again: all judgements are kept, but not all of them are in qrels yet"
        ) from error


def summary(data: Path, split: str, verdicts: "Verdicts") -> list[str]:
    """Return lines on what was judged, how far the judges agree, and on which results they disagree."""
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


def _fields(split: str, judge: str, verdicts: "Verdicts") -> dict[str, Json]:
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


command = command_of("judge", run, JudgeOptions, keys=("k", "release", "split", "port", "seed"))
