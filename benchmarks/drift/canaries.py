"""Golden queries by the encoder in int8 that the gate refuses: noticed without any traffic."""

from page import table, verdict
from plan import Plan
from scenarios import SET, coarse_encoder, usual

from retrieval.retriever import Retriever
from service.drift.canary import Canary

HEADING = "Canaries"


def section(plan: Plan) -> str:
    """The section of the page."""
    release, _ = usual(plan.data, SET, plan.work)
    old = release.retriever
    coarse = Retriever(coarse_encoder(release, plan.work), old.index, old.policy)
    rows, alike = [], []
    for name, retriever in (("the encoder of the release", old), ("quantised per tensor", coarse)):
        canary = Canary(release, retriever)
        result = canary.ask()
        alike.append(result.alike)
        difference, accuracy = (
            f"{result.difference:.2g}",
            f"{result.accuracy:.3f} of {canary.accuracy_at_calibration:.3f}",
        )
        rows.append([name, difference, accuracy, "quiet" if result.alike else "alarm"])
    header = ["encoder", "furthest from the record", "accuracy", ""]
    return f"""\
{len(release.golden)} golden queries of a release of {SET}; its tolerance is {release.manifest.golden_tolerance:g}.

{table(header, rows)}

| target | wanted | measured |  |
| --- | --- | --- | --- |
| the encoder that the gate refuses, and no other, is an alarm the first time | yes | {"yes" if alike == [True, False] else "no"} | {verdict(reached=alike == [True, False])} |
"""
