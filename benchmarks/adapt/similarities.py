"""Similarities, τ and isotropy before and after an adaptation, on unseen queries."""

import tempfile
from pathlib import Path

from benchmarks.adapt.embedded import embed
from benchmarks.adapt.trials import STEPS, AdaptPlan
from benchmarks.line_chart import IMAGES, image
from benchmarks.markdown import table
from benchmarks.paper_figures import HEADER, PaperFigures
from taugate.adaptation.job import learn_and_judge
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.settings import AdaptationSettings
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.calibration.report.figures import densities_figure
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder

HEADING = "Similarities before and after"
_SET = "squadshifts_reddit"
_LEGEND = {
    "random": "a question and a random document",
    "correct": "a question and the document that answers it",
    "topk": "a question and each of its five results",
}


def section(plan: AdaptPlan) -> str:
    """Adapt to one set with labels, and draw the three densities of similarity of its unseen queries."""
    encoder, settings = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER)), CalibrationSettings(holdout=0)
    with tempfile.TemporaryDirectory(prefix="taugate-adapt-") as spool:
        dataset = read_dataset(plan.data / _SET, "test", Path(spool))
        queries = AdaptationQueries.collect(dataset, dataset, plan.seed)
        asked = AdaptationSettings(seed=plan.seed, recipe="adapter")
        learned = learn_and_judge(dataset, queries, encoder, asked, lambda _: None, Stopwatch(), STEPS).learned
        documents = embed(DEFAULT_ENCODER, [each.encoded_text for each in dataset.documents], "document")
        vectors = embed(DEFAULT_ENCODER, [query.text for query in queries.unseen], "query")
    found = {
        "before": PaperFigures.of(queries.unseen, vectors, documents, settings),
        "after": PaperFigures.of(queries.unseen, learned.apply(vectors), learned.apply(documents), settings),
    }
    return f"""\
{_SET}, {len(queries.unseen):,} unseen queries, adapted with labels by whitening and adapter. K = 5, 500 bootstraps of 100 queries; 95 % intervals; all
figures but τ are in percent. τ(ψ) is the threshold of the papers' rule.

{table(["", *HEADER], [[when, *each.row()] for when, each in found.items()])}

{_drawing("before", found["before"])}

{_drawing("after", found["after"])}"""


def _drawing(when: str, found: PaperFigures) -> str:
    threshold = (found.threshold.tau, True)
    figure = densities_figure(found.random, found.judged.correct, found.judged.top.scores, threshold, _LEGEND)
    path = IMAGES / f"adapt-similarities-{when}.svg"
    return image(path, figure, f"Similarities and τ {when} the adaptation")
