"""`taugate compare`: several encoders on one data set, as a table, and which one to choose."""

import shlex
from typing import TYPE_CHECKING, Annotated

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.encoder_options import EndpointOptions, InputOptions
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.settings import CalibrationSettings, CandidateSettings, LexicalChoice
from taugate.cli.terminal.command import Command
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import (
    LEXICAL,
    Appearance,
    AsJson,
    Data,
    Verbose,
    command_of,
    option,
    parameters,
    specified,
)
from taugate.cli.terminal.output import aligned, print_result, say, say_labelled
from taugate.errors import InputError
from taugate.evidence.options import RELEVANT_FROM, Advice, Options, RelevantFrom, SplitName
from taugate.evidence.rules import MAX_LOSS, ThresholdRule
from taugate.policy.names import Metric
from taugate.release.evidence import Interval
from taugate.retrieval.encoder.loading import VECTORS
from taugate.storage.files import Json

if TYPE_CHECKING:  # needs the extra `calibration`
    from collections.abc import Iterator, Sequence

    from taugate.calibration.job.compare import EncoderComparison, MeasuredEncoder
    from taugate.release.evidence import Estimate

_SHARE = Advice("give a share above 0 and below 1")
_Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), _SHARE]
_OF_ENDPOINT = ("model", "dimensions", "encoder_key_file")
# One encoder with its options, in one argument of the shell.
_encoder_argument = Command(
    "ENCODER",
    params=[
        click.Argument(["name"]),
        *parameters(InputOptions, max_length=Appearance("TOKENS")),
        *parameters(EndpointOptions, *_OF_ENDPOINT),
    ],
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """The options of `taugate compare`."""

    data: Data
    encoders: Annotated[tuple[str, ...], Appearance("ENCODER", positional=True)] = Field(
        description="two or more sentence-transformers models, folders `encoder` of releases, openai:URL or tei:URL of "
        f"endpoints, or {VECTORS}: those that come with the data set. Options of an encoder, the same as in calibrate, "
        "follow its name in the same quotes"
    )
    split: SplitName = option(None, "labels: name of a file in qrels/, without .tsv (default: as in calibrate)")
    relevant_from: Annotated[RelevantFrom, Appearance("GRADE")] = option(None, RELEVANT_FROM)
    k: Annotated[int, Field(ge=1)] = option(5, "results per query before the threshold (K)")
    max_loss: _Share = option(0.02, "loss that the certified threshold of each encoder may have")
    metric: Metric = option("accuracy", "metric that decides")
    margin: _Share = option(MAX_LOSS, "loss of the metric that a cheaper encoder may have to be chosen")
    lexical: LexicalChoice = option("auto", "weight of shared words in the score; off compares the encoders alone")
    measures: bool = option(
        False,
        "also take the papers' measures: isotropy, and accuracy under transformations that raise it; familiarity, "
        "distance from general texts, power law, and everyday questions",
    )
    seed: Annotated[int, Field(ge=0)] = option(0, "seed of all random choices")
    yes: bool = option(False, "send the texts to endpoints without asking first")
    as_json: AsJson = False
    verbose: Verbose = False


def requested_encoder(argument: str) -> RequestedEncoder:
    """Return the encoder that an argument names, such as "NAME" or "NAME --query-prompt 'query: '"."""
    try:
        words = shlex.split(argument) if " --" in argument else [argument]
        settings = specified(_encoder_argument.make_context("ENCODER", words).params)
    except (click.UsageError, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise InputError(f'"{argument}": {reason}') from error
    name = settings.pop("name")
    endpoint = {option: settings.pop(option) for option in _OF_ENDPOINT if option in settings}
    return RequestedEncoder(
        name, new=True, input_options=InputOptions(**settings), endpoint_options=EndpointOptions(**endpoint)
    )


def run(options: CompareOptions) -> int:
    """Compare encoders on a labelled data set, and say which one to choose.

    Each is measured as `taugate calibrate` would, and no release is written. The intervals of the differences hold
    together.
    """
    if len({*options.encoders}) < len(options.encoders) or len(options.encoders) < 2:
        raise InputError("give two or more encoders, each once")
    settings = CalibrationSettings(
        split=options.split,
        relevant_from=options.relevant_from,
        k=options.k,
        seed=options.seed,
        rule=ThresholdRule.from_options(max_loss=[options.max_loss], metric=options.metric),
        candidates=CandidateSettings(lexical=options.lexical),
    )
    requested = {encoder: requested_encoder(encoder) for encoder in options.encoders}
    with ProgressDisplay(steps=True, verbose=options.verbose, confirmed=options.yes) as job:
        with job.task("starting"):
            from taugate.calibration.job.compare import compare_encoders  # loads scikit-learn, which takes seconds

        comparison = compare_encoders(options.data, requested, settings, options.margin, job, measures=options.measures)
    if options.as_json:
        print_result(comparison_json(comparison))
    else:
        _print_tables(comparison, options)
    choice = comparison.choice
    encoder = choice if " --" in choice else shlex.quote(choice)
    command = f"taugate calibrate {shlex.quote(options.data)} --releases releases --encoder {encoder}"
    say("")
    say_labelled({"Choice": comparison.sentence, "Next": command})
    return 0


def comparison_json(comparison: "EncoderComparison") -> dict[str, Json]:
    """Return a comparison as JSON: the encoders, the best first, the differences, and the choice."""
    from taugate.calibration.job.compare import correlations  # needs the extra `calibration`

    return {
        "choice": comparison.choice,
        "sentence": comparison.sentence,
        "metric": comparison.metric,
        "encoders": [_encoder(encoder) for encoder in comparison.encoders],
        "differences": [
            {
                "first": difference.first,
                "second": difference.second,
                "accuracy": difference.accuracy.model_dump(),
                "ndcg": difference.ndcg.model_dump(),
                "everyday": None if difference.everyday is None else difference.everyday.model_dump(),
            }
            for difference in comparison.differences
        ],
        "correlations": correlations(comparison.encoders),
    }


def _encoder(encoder: "MeasuredEncoder") -> dict[str, Json]:
    cost = encoder.cost
    return {
        "encoder": encoder.name,
        **{name: mean for name, mean, _ in _figures(encoder)},
        "intervals": {
            name: {"lower": estimate.lower, "upper": estimate.upper}
            for name, _, estimate in _figures(encoder)
            if estimate
        },
        "measures": None if encoder.measures is None else encoder.measures.model_dump(exclude_none=False),
        "kept": encoder.kept,
        "lexical_weight": encoder.lexical,
        "milliseconds": cost.milliseconds,
        "documents_per_second": cost.documents_per_second,
        "bytes": cost.bytes,
        "memory_bytes": cost.bytes + cost.vector_bytes,
    }


def _figures(encoder: "MeasuredEncoder") -> "Iterator[tuple[str, float | None, Estimate | None]]":
    """Yield the name of each figure, its mean, and its interval on the queries that measure the threshold."""
    measured = encoder.metrics
    yield "accuracy", encoder.mean("accuracy"), measured.accuracy
    yield "ndcg", encoder.mean("ndcg"), measured.ndcg
    yield "coe", measured.coe.mean, measured.coe
    yield "roe", None if measured.roe is None else measured.roe.mean, measured.roe


def _print_tables(comparison: "EncoderComparison", options: CompareOptions) -> None:
    """Print the encoders, and then the differences of all pairs, the better encoder first."""
    kept = f"kept at {100 * options.max_loss:g} %"
    titles = ("encoder (CI width)", f"accuracy@{options.k}", f"NDCG@{options.k}", "COE", "ROE", kept, "words")
    rows: list[tuple[str, ...]] = [(*titles, "ms a query", "documents/s", "MB", "MB in memory")]
    for encoder in comparison.encoders:
        shares = [
            f"{mean:.3f} ({limits.upper - limits.lower:.3f})" if limits else "–"
            for _, mean, limits in _figures(encoder)
        ]
        cost, kept = encoder.cost, "none" if encoder.kept is None else f"{encoder.kept:.2f}"
        words = "off" if encoder.lexical is None else f"{encoder.lexical:g}"
        times = ["–" if time is None else f"{time:.1f}" for time in (cost.milliseconds, cost.documents_per_second)]
        sizes = [f"{size / 1e6:.0f}" for size in (cost.bytes, cost.bytes + cost.vector_bytes)]
        rows.append((encoder.name, *shares, kept, words, *times, *sizes))
    print_result("\n".join(aligned(rows, right=range(1, len(rows[0])))))
    print_result("")
    lines = [("difference", f"accuracy@{options.k}, points", f"NDCG@{options.k}, points")]
    lines += [
        (f"{pair.first} − {pair.second}", _points(pair.accuracy), _points(pair.ndcg)) for pair in comparison.differences
    ]
    print_result("\n".join(aligned(lines, right=(1, 2))))
    from taugate.calibration.job.compare import correlations  # needs the extra `calibration`

    correlated = correlations(comparison.encoders)
    if correlated:
        rows = [("correlation over the encoders", "r")]
        rows += [(pair, "–" if value is None else f"{value:+.3f}") for pair, value in correlated.items()]
        print_result("")
        print_result("\n".join(aligned(rows, right=(1,))))
    for table in _measure_tables(comparison):
        print_result("")
        print_result("\n".join(aligned(table, right=range(1, len(table[0])))))


def _measure_tables(comparison: "EncoderComparison") -> "Iterator[Sequence[Sequence[str]]]":
    """Yield the tables of the papers' measures, if they were requested."""
    rows = [(encoder.name, encoder.measures) for encoder in comparison.encoders if encoder.measures]
    if not rows:
        return
    names = [*rows[0][1].transformed]
    yield [("accuracy; I_A, I_B, if vectors are", *names)] + [
        (name, *(str(measures.transformed[kind]) for kind in names)) for name, measures in rows
    ]
    figures = {"familiarity": "familiarity", "Δ": "separation", "Δ, relative": "relative_separation"}
    figures |= {"β of all ranks": "decay", "NDCG@10, everyday questions": "everyday"}
    yield [("encoder", *figures)] + [
        (name, *(_or_dash(getattr(measures, figure)) for figure in figures.values())) for name, measures in rows
    ]
    changes = {f"{pair.first} − {pair.second}": pair.everyday for pair in comparison.differences if pair.everyday}
    if changes:
        lines = [(pair, _points(change.ndcg.change)) for pair, change in changes.items()]
        yield [("difference", "NDCG@10, everyday questions, points"), *lines]


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} ({100 * interval.lower:+.1f} to {100 * interval.upper:+.1f})"


command = command_of(
    "compare",
    run,
    CompareOptions,
    keys=("k", "max_loss", "metric", "margin", "lexical", "measures", "relevant_from", "seed", "verbose"),
    lexical=LEXICAL,
)
