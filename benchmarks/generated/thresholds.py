"""Thresholds from cropped queries and from human ones, both judged by human queries."""

from collections.abc import Sequence
from statistics import median

from benchmarks.generated.cases import MAX_LOSS, Case, CroppedCut, Cut
from benchmarks.generated.plan import GeneratedPlan, cell
from benchmarks.markdown import share, table

HEADING = "Thresholds from cropped queries, judged by human ones"


def section(plan: GeneratedPlan) -> str:
    """Measure every set with every encoder, and return the tables as Markdown."""
    cases = plan.cases
    worst = max(cases, key=lambda case: case.default.human.lost.mean)
    typical = median(case.default.human.lost.mean for case in cases)
    own = median(case.own.human.lost.mean for case in cases)
    certified = [case for case in cases if case.certified.tau is not None]
    broken = [case for case in certified if case.certified.human.lost.mean > MAX_LOSS]
    tables = "\n\n".join(
        f"### {encoder}\n\n{_by_encoder([case for case in cases if case.encoder == encoder])}"
        for encoder, _ in plan.encoders
    )
    return f"""\
**By default** (`taugate calibrate DATA`), the threshold from cropped queries takes the answer from {share(typical)} of the human queries at the
median, and from {share(worst.default.human.lost.mean)} at worst: {worst.name} with {worst.encoder}. The threshold from human queries takes it from {share(own)} at the median.

**With `--max-loss {MAX_LOSS:g}`**, {len(certified)} of the {len(cases)} cases certify a threshold on cropped queries. {len(broken)} of these {len(certified)} take the
answer from more than {100 * MAX_LOSS:.0f} % of the human queries. The certificate is about further cropped queries; people ask others. Do not rely on it before people have
judged some results.

Thresholds from cropped queries are judged by all human queries, and those from human queries by the held-out ones.

{tables}
"""


def _by_encoder(cases: Sequence[Case]) -> str:
    return table(
        ["set", "threshold", "lost, held-out cropped queries", "lost, human queries", "results kept, human queries"],
        (row for case in cases for row in _rows(case)),
    )


def _rows(case: Case) -> list[list[str]]:
    cuts: dict[str, Cut] = {
        "default, from cropped queries": case.default,
        "default, from human queries": case.own,
        f"`--max-loss {MAX_LOSS:g}`, from cropped queries": case.certified,
    }
    return [
        [
            f"**{case.name}**" if cut is case.default else "",
            f"{name}: {_rule(cut)}",
            cell(cut.generated.lost) if isinstance(cut, CroppedCut) else "–",
            cell(cut.human.lost),
            cell(cut.human.kept),
        ]
        for name, cut in cuts.items()
    ]


def _rule(cut: Cut) -> str:
    return "nothing certified" if cut.tau is None else f"{cut.kind} ≥ {share(cut.tau)}"
