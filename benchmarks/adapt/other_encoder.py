"""An encoder that was fine-tuned on another domain, beside the default one as it is."""

import statistics

from benchmarks.adapt.trials import AdaptPlan, Trial, gain_target, gains_table, trials
from benchmarks.experiment import second_encoder
from benchmarks.markdown import share, targets

HEADING = "An encoder of another domain"
SETS = ("squad_v2_dev", "squadshifts_new_wiki")


def section(plan: AdaptPlan) -> str:
    """Adapt sre-embedding-model to two sets, and the default encoder for comparison."""
    encoder = second_encoder()
    if encoder is None:
        return "Not measured: sre-embedding-model is not installed."
    rows, said = [], []
    for name in SETS:
        found, default = trials(plan, name, encoder=encoder), trials(plan, name)
        rows += [(f"{name}, sre-embedding-model", found), (f"{name}, all-MiniLM-L6-v2", default)]
        said.append(f"{share(_base(default))} on the queries of {name}")
    wanted = gain_target(rows[0][0], rows[0][1], 15)
    return (
        f"{gains_table(rows)}\n\n{targets([wanted])}\n\n"
        f"Without any adaptation, the default encoder has {' and '.join(said)}."
    )


def _base(found: list[Trial]) -> float:
    return statistics.mean(each.record.gate[0].ndcg.baseline for each in found)
