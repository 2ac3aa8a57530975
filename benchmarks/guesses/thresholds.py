"""The tables: what each rule keeps, loses and answers wrongly, over all sets and for each of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.guesses.outcomes import RuleOutcome, SetOutcome
from benchmarks.guesses.rules import CERTIFIED, DEFAULT, GUESSES
from benchmarks.markdown import share, table
from taugate.release.evidence import Interval

HEADING = "A guessed threshold beside a certified one"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa")


@dataclass(frozen=True)
class GuessesPlan:
    """The plan of one run.

    Attributes:
        data: Folder of the data sets.
        sets: Their names, each with its split after a slash unless that is test.
        encoders: Of each its name in the tables and what `--encoder` takes.
        seed: Of calibrations and intervals.
    """

    data: Path
    sets: Sequence[str]
    encoders: Sequence[tuple[str, str]]
    seed: int


def section(plan: GuessesPlan) -> str:
    """Measure every rule on every set with every encoder, and return the tables as Markdown."""
    outcomes = [SetOutcome.measure(plan.data, name, each, plan.seed) for each in plan.encoders for name in plan.sets]
    none = [outcome for outcome in outcomes if outcome.policy.tau is None]
    needed = dict.fromkeys(_needed(each) for each in none)
    encoders = [encoder for encoder, _ in plan.encoders]
    detailed = "\n\n".join(f"### {encoder}\n\n{_by_set(outcomes, encoder)}" for encoder in encoders)
    return f"""\
Each cell has the lowest and the highest figure of {len(outcomes)} cases: {len(plan.sets)} data sets with {len(encoders)} encoders.

{summary(outcomes)}

{len(outcomes) - len(none)} of the {len(outcomes)} cases have enough labels to certify a loss of 2 %. In the others Taugate passes on every result, says what
is missing, and exits with status 3, or 5 if it is impossible with these documents. {". ".join(needed) or "No case is left"}.
With `--count-at-most` a large document counts for less ([thresholds.md](../../docs/thresholds.md#one-document-with-many-queries)).

A cut judges results, not questions. The certified one answers questions that have no answer, too. A high threshold refuses
some of them, and loses right answers on the way. By default, ρ refuses questions as a whole: unanswerable ones of the user
as far as few right answers are lost, and nearly all [off-topic ones](abstention.md).

{detailed}

### Where the thresholds come from

{table(["rule", "who sets it, and where"], [[guess.name, guess.source] for guess in GUESSES])}

Each project has its own idea of a score, and most let the vector store choose. These tables compare cosine similarity with
the threshold, as stores with a cosine index do.

Autocut looks for jumps. It stretches the similarities of a result list to run from 0 to 1, and subtracts a straight line from
first to last. A jump is a local maximum of what is left. With 1 jump the list ends at the first one. The cut depends on how
many results are asked for: here 5.
"""


def summary(outcomes: Sequence[SetOutcome]) -> str:
    """Format the table that the README repeats: the range of each figure over all cases, in percent."""
    header = ["rule", "results kept", "answers lost", "only wrong results", "unanswerable, yet answered"]
    names = [*outcomes[0].rules]
    columns: list[Callable[[RuleOutcome], Interval | None]] = [
        lambda rule: rule.kept,
        lambda rule: rule.lost,
        lambda rule: rule.wrong,
        lambda rule: rule.unanswerable,
    ]
    rows = []
    for name in names:
        rules = [outcome.rules[name] for outcome in outcomes]
        cells = [_range([found.mean for rule in rules if (found := column(rule)) is not None]) for column in columns]
        rows.append(
            [f"**{name}**", *(f"**{cell}**" for cell in cells)] if name in {CERTIFIED, DEFAULT} else [name, *cells]
        )
    return table(header, rows)


def _range(figures: Sequence[float]) -> str:
    if not figures:
        return "–"
    low, high = _percent(min(figures)), _percent(max(figures))
    return f"{low} %" if low == high else f"{low}–{high} %"


def _percent(figure: float) -> str:
    return f"{100 * figure:.1f}".removesuffix(".0")


def _needed(outcome: SetOutcome) -> str:
    """State what certifies 2 % on a set: options, or how many more queries about other documents."""
    shortage = outcome.policy.shortage
    if shortage is None or shortage.min_loss is not None:
        return f"{outcome.name} has too few documents"
    ways = [f"`{option}`" for option in shortage.options]
    ways += [] if shortage.queries is None else [f"{shortage.queries:,} more questions about other documents"]
    needed, there = -math.log(1 - outcome.policy.confidence), ""
    if outcome.nats < needed:
        there = (
            f"On {outcome.name}, no test by document can do it with the labels as they are counted, which have at most "
            f"{outcome.nats:.3f} nats of evidence, where {needed:.3f} are needed. "
        )
    return f"{there}{outcome.name} can be certified with {' or '.join(ways)}"


def _by_set(outcomes: Sequence[SetOutcome], encoder: str) -> str:
    header = ["set", "rule", "results kept", "answers lost", "only wrong results", "unanswerable, yet answered"]
    rows = []
    for each in (outcome for outcome in outcomes if outcome.encoder == encoder):
        size = f"{each.heldout:,} queries, accuracy {share(each.accuracy, 2)}"
        size += f"; {each.unanswerable:,} unanswerable" if each.unanswerable else ""
        for number, (name, rule) in enumerate(each.rules.items()):
            title = (
                "" if number else f"**{each.name}**: {size}",
                f"{name} {_cut(each)}" if name == CERTIFIED else name,
            )
            figures = rule.kept, rule.lost, rule.wrong, rule.unanswerable
            rows.append([*title, *(_cell(figure) for figure in figures)])
    return table(header, rows)


def _cut(outcome: SetOutcome) -> str:
    policy = outcome.policy
    return "(nothing certified)" if policy.tau is None else f"({policy.kind} ≥ {share(policy.tau)})"


def _cell(figure: Interval | None) -> str:
    if figure is None:
        return "–"
    return f"{share(figure.mean)} ({share(figure.lower)}–{share(figure.upper)})"
