"""Compare index kinds on the largest labelled set: size, speed, the gate's verdict, and their parameters."""

import time

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.calibration.gate.baseline import SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.gate.indexes import build_index, recall, search_gain
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.settings.settings import MARGIN, GateSettings
from taugate.retrieval.index import build as building
from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.build import build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.index.top_k import TopK

HEADING = "Index"
SET = "mixed_large"
_K = 5
_KINDS: tuple[Kind, ...] = ("flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq")
_BREADTHS = {"hnsw": (64, 128, 256, 512), "ivf-flat": (16, 64, 256, 512), "ivf-pq": (16, 64, 256, 512)}
_GRAPHS = ((32, 100), (32, 200), (32, 400), (64, 200))


def section(experiment: Experiment) -> str:
    """Build and time every index kind, and ask the gate about each."""
    encoded = experiment.encoded(SET)
    trial = SearchTrial.build(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, _K)
    flat, gate = trial.exact, GateSettings(MARGIN)
    exact = flat.search(trial.vectors, trial.depth)
    baseline, units = trial.outcomes(flat), SamplingUnits.from_labels(clusters(trial.queries))
    kinds, widths, fewest, fastest = [], [], 0.0, 0.0
    for kind in _KINDS:
        began = time.perf_counter()
        index = build_index(kind, trial, MARGIN)
        seconds = time.perf_counter() - began
        gain = search_gain(trial, index)
        (record,) = judge(baseline, [GateCandidate(kind, "index", trial.outcomes(index), gain)], units, gate)
        smaller = gain["baseline_bytes_per_document"] / gain["bytes_per_document"]
        faster = gain["baseline_milliseconds"] / gain["milliseconds"]
        if record.admitted:
            fewest, fastest = max(fewest, smaller), max(fastest, faster)
        kinds.append(
            [
                kind,
                index.breadth if isinstance(index, ApproximateIndex) else "",
                f"{seconds:.0f} s",
                f"{gain['bytes_per_document']:,.0f}",
                f"{gain['disk_bytes_per_document']:,.0f}",
                f"{gain['milliseconds']:.2f} ms",
                f"{faster:.1f}",
                f"{gain['queries_per_second']:,.0f}",
                share(recall(index, flat, trial.vectors, exact), 4),
                *(f"{each.loss.mean:+.4f} (≤ {each.loss.upper:+.4f})" for each in (record.accuracy, record.ndcg)),
                f"{record.p_adjusted:.2g}",
                "yes" if record.admitted else "no",
            ]
        )
        if isinstance(index, ApproximateIndex):
            widths += _widths(index, trial, flat, exact, baseline.accuracy.mean())
    graphs = [_graph(edges, candidates, trial, flat, exact) for edges, candidates in _GRAPHS]
    header = ["index", "breadth", "built in", "bytes a document", "on disk", "one query", "times faster", "queries/s"]
    header += ["recall@10", "loss of accuracy@5", "loss of NDCG@10", "p", "admitted"]
    return f"""\
{SET} with all-MiniLM-L6-v2 has {len(trial.documents):,} documents and {len(trial.queries):,} answerable queries in {units.documents:,} clusters. The gate judges each kind of index alone, at a
margin of {share(MARGIN)} with 95 % confidence.

*Breadth* is how widely an approximate index looks. `calibrate` takes the first with a recall@10 of {share(1 - MARGIN / 4, 5)}. *Bytes a document* counts
the file that every search reads; ivf-pq keeps exact vectors beside it on disk. Speeds are medians of 3 rounds in which the index and
flat take turns, with one query at a time and with 256 at once, exact scoring and ordering included.

{table(header, kinds)}

The targets are for admitted indexes: at least 3 times fewer bytes a document ({fewest:.1f}, {verdict(reached=fewest >= 3)}), and at least 5 times faster than flat with
one query at a time ({fastest:.1f}, {verdict(reached=fastest >= 5)}).

### How wide to look

An approximate index misses some of the exact top 10. The table says how much, and what that costs.

{table(["index", "breadth", "missed of the top 10", "accuracy@5 lost", "of what is missed"], widths)}

### How to build the graph

{table(["edges a document", "candidates", "built in", *(f"missed at {each}" for each in _BREADTHS["hnsw"])], graphs)}
"""


def _widths(
    index: ApproximateIndex, trial: SearchTrial, flat: FlatIndex, exact: TopK, accuracy: float
) -> list[list[str]]:
    rows = []
    for breadth in _BREADTHS[index.kind]:
        index.breadth = breadth
        missed = 1 - recall(index, flat, trial.vectors, exact)
        lost = accuracy - trial.outcomes(index).accuracy.mean()
        ratio = f"{lost / missed:.2f}" if missed else ""
        rows.append([index.kind, str(breadth), share(missed, 4), f"{lost:+.4f}", ratio])
    return rows


def _graph(edges: int, candidates: int, trial: SearchTrial, flat: FlatIndex, exact: TopK) -> list[str]:
    """Built by the product's own code with other constants."""
    before = building._EDGES, building._EDGE_CANDIDATES
    building._EDGES, building._EDGE_CANDIDATES = edges, candidates
    try:
        began = time.perf_counter()
        index = build("hnsw", trial.documents)
        assert isinstance(index, ApproximateIndex)  # noqa: S101 (for the type checker)
        seconds = time.perf_counter() - began
    finally:
        building._EDGES, building._EDGE_CANDIDATES = before
    missed = []
    for breadth in _BREADTHS["hnsw"]:
        index.breadth = breadth
        missed.append(share(1 - recall(index, flat, trial.vectors, exact), 4))
    return [str(edges), str(candidates), f"{seconds:.0f} s", *missed]
