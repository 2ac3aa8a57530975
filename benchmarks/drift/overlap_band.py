"""Compare COE and ROE of ten thousand live queries like the calibration's with the band of the release."""

import numpy as np

from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.traffic import Pool, encoded, heldout, judged, released
from benchmarks.markdown import share, table, verdict
from taugate.drift.observations import Judgements
from taugate.drift.overlap import live_overlap

HEADING = "COE and ROE of live traffic"
_QUERIES = 10_000
_SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks")


def section(plan: DriftPlan) -> str:
    """Measure COE and ROE of live traffic, and say whether each is inside the band."""
    rows, within = [], True
    for name in _SETS:
        release = released(plan.data, name, plan.work)
        queries = heldout(plan.data, name, release)
        vectors = encoded([*queries], release, plan.work / f"{name}.npy")
        correct, rng = judged(queries, vectors, release), np.random.default_rng(plan.seed)
        answers = Judgements(
            np.zeros(_QUERIES), np.arange(_QUERIES, dtype=np.uint64), correct[rng.integers(0, len(correct), _QUERIES)]
        )
        seen = Pool.of(vectors, release).draw(_QUERIES, rng)
        live = live_overlap(seen, answers, release.reference, release.manifest.bootstrap)
        measured = release.manifest.metrics["calibration"]
        for what, mine, band in (
            ("COE, judged", live.coe, measured.coe),
            ("COE expected", live.expected_coe, measured.coe),
            ("ROE", live.roe, measured.roe),
        ):
            if mine is None:
                raise RuntimeError("ten thousand queries are enough")
            inside = band.lower <= mine.mean <= band.upper
            within &= inside
            interval, reference = (f"{share(each.lower)} to {share(each.upper)}" for each in (mine, band))
            rows.append([name, what, share(mine.mean), interval, reference, "yes" if inside else "**no**"])
    header = ["set", "", "live", "its interval", "band of the release", "inside"]
    return f"""\
COE and ROE of live traffic should lie in the release's own interval while nothing drifts. Here {_QUERIES:,} queries are drawn from those that
were held out, with one relevant result judged for each.

{table(header, rows)}

| target | wanted | measured |  |
| --- | --- | --- | --- |
| all inside the band of their release | yes | {"yes" if within else "no"} | {verdict(reached=within)} |
"""
