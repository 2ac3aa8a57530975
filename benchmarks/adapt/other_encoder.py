"""An encoder that was fine-tuned on another domain, beside the default one as it is."""

import statistics

from benchmarks.adapt.trials import AdaptPlan, gain_target, gains_table, trials
from benchmarks.experiment import second_encoder
from benchmarks.markdown import share, targets

HEADING = "An encoder of another domain"


def section(plan: AdaptPlan) -> str:
    """Adapt sre-embedding-model to squad_v2_dev, and the default encoder for comparison."""
    encoder = second_encoder()
    if encoder is None:
        return "Not measured: sre-embedding-model is not installed."
    found, default = trials(plan, "squad_v2_dev", encoder=encoder), trials(plan, "squad_v2_dev")
    base = statistics.mean(each.record.gate[0].ndcg.baseline for each in default)
    rows = [("squad_v2_dev, sre-embedding-model", found), ("squad_v2_dev, all-MiniLM-L6-v2", default)]
    return (
        f"{gains_table(rows)}\n\n{targets([gain_target('squad_v2_dev, sre-embedding-model', found, 15)])}\n\n"
        f"The default encoder has {share(base)} on the same queries without any adaptation."
    )
