"""Send golden queries through the wrong encoders: a change is noticed without any traffic."""

from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.worlds import altered_encoder, coarse_encoder, world
from benchmarks.markdown import table, verdict
from taugate.retrieval.retriever import Retriever
from taugate.service.drift.canary import Canary

HEADING = "Canaries"
_SET = "squad_v2_dev"


def section(plan: DriftPlan) -> str:
    """Compare golden queries by each wrong encoder with those of the release."""
    release = world(plan.data, _SET, plan.work).release
    encoders = {
        "the encoder of the release": release.retriever.encoder,
        "quantised per tensor": coarse_encoder(release, plan.work),
        "with altered bytes": altered_encoder(release, plan.work),
    }
    rows, alike = [], []
    for name, encoder in encoders.items():
        canary = Canary(release, Retriever(encoder, release.retriever.index, release.retriever.policy))
        result = canary.run()
        alike.append(result.alike)
        difference, accuracy = (
            f"{result.difference:.2g}",
            f"{result.accuracy:.3f} of {canary.accuracy_at_calibration:.3f}",
        )
        rows.append([name, difference, accuracy, "quiet" if result.alike else "alarm"])
    header = ["encoder", "furthest from the record", "accuracy", ""]
    return f"""\
A release carries golden queries with recorded scores. The service asks them again and again: a changed encoder shows without any
traffic. Here {len(release.golden)} golden queries of a release of {_SET} are encoded by three encoders; the tolerance is {release.manifest.golden_tolerance:g}.

{table(header, rows)}

| target | wanted | measured |  |
| --- | --- | --- | --- |
| the other encoders are an alarm the first time, and its own is not | yes | {"yes" if alike == [True, False, False] else "no"} | {verdict(reached=alike == [True, False, False])} |
"""
