"""The report says what the manifest says, draws where it should, and cannot be made to run what a document holds."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import BOTTOM, LEFT, RIGHT, TOP, Chart, Dot
from taugate.calibration.charts.numbers import brief, fixed, percent, signed
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.gate.admit import admit
from taugate.calibration.job.release import manifest_facts
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Stopwatch
from taugate.calibration.report.abstaining import shown_queries
from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import density, drawn, spaced
from taugate.calibration.report.lost import lost_queries, shortened
from taugate.calibration.report.page import render
from taugate.calibration.report.tradeoff import least_kept, rule_standings
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.study import Findings, study
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.policy.policy import keep
from taugate.retrieval.release.manifest import Manifest

SECTIONS = ["headline", "numbers", "densities-section", "curves", "kept", "rules", "abstaining", "relevance", "lost"]
SECTIONS += ["query-set", "gate", "comparison"]
NASTY = '</blockquote><script>alert(1)</script><img src=x onerror="alert(2)"> & "quotes" \x07'
VOID = {"meta", "br", "link", "img", "input", "hr"}


@dataclass(frozen=True)
class Studied:
    dataset: Dataset
    facts: dict[str, Any]
    found: Findings

    def page(self, parent: Manifest | None = None) -> str:
        return render(self.dataset, self.facts, self.found, parent)

    def manifest(self) -> Manifest:
        plain = json.loads(json.dumps(self.facts, default=lambda record: record.model_dump()))
        unknown = {"schema_version": 2, "release_id": "20260101T000000Z-0123456789ab", "files": {}, "parent": None}
        return Manifest.model_validate(plain | unknown | {"created_at": "2026-01-01T00:00:00+00:00"})


def studied(
    data: Path, encoder_folder: Path, spool: Path, rule: ThresholdRule | None = None, **settings: Any
) -> Studied:
    """A calibration up to the point where the report is written."""
    spool.mkdir(parents=True)
    asked = CalibrationSettings(rule=rule or ThresholdRule.from_options(), **settings)
    dataset = read_dataset(data, asked.split, spool)
    encoder = OnnxEncoder.load(encoder_folder)
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    encoded = encode_dataset(dataset, encoder, cache, lambda line: None, Stopwatch())
    drawn = DrawnQueries.draw(SamplingUnits.from_labels(clusters(dataset.answerable)), len(dataset.documents), asked)
    admitted = admit(dataset, encoded, encoder, drawn.parts["calibration"], asked, lambda line: None, Stopwatch())
    found = study(dataset, admitted.encoded, admitted.index, drawn, asked, Stopwatch())
    return Studied(dataset, manifest_facts(dataset, admitted, found, asked), found)


def write(folder: Path, documents: list[str], queries: list[tuple[str, int | None]]) -> Path:
    """A data set; a query comes with the position of its document, None if it has no answer."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{at}", "title": f"Title {at}", "text": text} for at, text in enumerate(documents)]
    asked = [{"_id": f"q{at}", "text": text} for at, (text, _) in enumerate(queries)]
    for name, records in (("corpus", corpus), ("queries", asked)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    rows = [f"q{at}\td{target or 0}\t{int(target is not None)}\n" for at, (_, target) in enumerate(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
    return folder


def sample_texts(sample: Path) -> tuple[list[str], list[str]]:
    return tuple(  # type: ignore[return-value]
        [json.loads(line)["text"] for line in (sample / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("corpus", "queries")
    )


@pytest.fixture(scope="module")
def mixed(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with nasty texts, and with 60 queries whose document is not there."""
    documents, queries = sample_texts(sample)
    labelled = [(f"{text} {NASTY}", at) for at, text in enumerate(queries[:443])]
    unanswerable: list[tuple[str, int | None]] = [(text, None) for text in queries[443:]]
    nasty = [f"{NASTY} {text}" for text in documents[:443]]
    return write(tmp_path_factory.mktemp("mixed") / "<b>mixed", nasty, [*labelled, *unanswerable])


@pytest.fixture(scope="module")
def probability(mixed: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    rule = ThresholdRule.from_options(max_loss=[0.1], guarantee="expected-loss", policy="probability")
    return studied(mixed, encoder, tmp_path_factory.mktemp("probability") / "s", rule)


@pytest.fixture(scope="module")
def papers(mixed: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(mixed, encoder, tmp_path_factory.mktemp("papers") / "s")


class Page(HTMLParser):
    """Elements with their attributes, text by section, and every tag closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, str]] = []
        self.text: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self.open:
            self.text[name] = self.text.get(name, "") + data


def drawings(html: str) -> Iterator[ElementTree.Element]:
    for part in html.split("<svg")[1:]:
        yield ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")  # noqa: S314 (our own)


def check(html: str) -> Page:
    """What holds for every report."""
    page = Page(html)
    tags = {tag for tag, _ in page.elements}
    assert [attributes["id"] for tag, attributes in page.elements if tag in ("header", "section")] == SECTIONS
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not re.search(r"url\(|@import|\bnan\b|\binf\b|-0(\.0+)?[^\d.]", html)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        assert "http" not in " ".join(value or "" for name, value in attributes.items() if name != "http-equiv")
        assert (attributes.get("href") or "#")[0] == "#"
        assert (attributes.get("href") or "#numbers")[1:] in names
    policy = next(each["content"] for _, each in page.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    for drawing in drawings(html):
        assert drawing.get("role") == "img" or drawing.get("aria-hidden") == "true"
        if drawing.get("role") == "img":
            assert [child.tag for child in drawing][:2] == ["title", "desc"]
            assert all((child.text or "").strip() for child in list(drawing)[:2])
    return page


def test_every_section_is_there_and_nothing_runs(probability: Studied, papers: Studied) -> None:
    for each in (probability, papers):
        html = each.page()
        page = check(html)
        assert "<script" not in html and "<b>mixed" not in html and "\x07" not in html
        assert each.found.policy.guarantee in page.text["headline"]
        assert "&lt;script&gt;alert(1)" in html  # shown, not run


def test_the_same_findings_give_the_same_bytes(
    probability: Studied, mixed: Path, encoder: Path, tmp_path: Path
) -> None:
    rule = ThresholdRule.from_options(max_loss=[0.1], guarantee="expected-loss", policy="probability")
    again = studied(mixed, encoder, tmp_path / "s", rule)
    assert again.page(again.manifest()) == probability.page(probability.manifest())


def test_the_scores_of_relevance_are_the_manifests(probability: Studied) -> None:
    record = probability.manifest().relevance
    assert record is not None
    said = check(probability.page()).text["relevance"]
    assert record.error_of_likely is not None
    for value in (record.brier, record.brier_skill, record.error, record.error_of_likely):
        assert value is not None
        assert value.lower <= value.mean <= value.upper
        assert f"{value.mean:.4f}" in said
        assert f"({value.lower:.4f}–{value.upper:.4f})" in said
    assert {"beta": "beta calibration", "platt": "Platt scaling"}[str(record.recalibration)] in said
    for each in record.bins:
        assert each.interval is not None
        assert each.interval.lower <= each.relevant <= each.interval.upper
        assert f"found {100 * each.relevant:.1f}" in said


def test_what_is_said_of_shift_is_what_was_measured(probability: Studied) -> None:
    """The extremes over the rows of the benchmark page that are of another corpus than the release's own."""
    page = (Path(__file__).parents[3] / "docs" / "benchmarks" / "calibration.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"### What it says\n(.*?)\n###", page, re.S)
    cells = [row.split(" | ") for row in rows.splitlines() if row.startswith("| ") and "unseen" not in row][2:]
    assert len({row[0] for row in cells}) == 6
    errors, true = ([float(row[column].split()[0]) for row in cells] for column in (4, 5))
    said = check(probability.page()).text["relevance"]
    assert f"relevant in {100 * min(true):.0f} to {100 * max(true):.0f} %" in said
    assert f"off by {100 * min(errors):.0f} to {100 * max(errors):.0f} %" in said
    text = (Path(__file__).parents[3] / "docs" / "thresholds.md").read_text(encoding="utf-8")
    assert f"was {min(errors):.2f} to {max(errors):.2f}".replace("0.", ".") in text.replace("\n", " ")


def test_numbers_are_the_manifests(probability: Studied) -> None:
    manifest = probability.manifest()
    page = check(probability.page())
    for part in manifest.metrics.values():
        for name in ("accuracy", "accuracy_at_tau", "ndcg", "ndcg_at_tau", "coe", "roe"):
            value = getattr(part, name)
            assert f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})" in page.text["numbers"]
        for value in (part.kept_fraction, part.abstention.unanswerable_empty, part.abstention.auroc):
            assert f"{value:.4f}" in page.text["numbers"]
    for value in (manifest.isotropy.i_a, manifest.isotropy.i_b):
        assert f"{value:.4f}" in page.text["numbers"]
    for certificate in manifest.policy.certificates:
        assert f"{certificate.bound:.6f}" in page.text["rules"]
    assert manifest.relevance is not None
    assert f"{manifest.relevance.expected_calibration_error:.4f}" in page.text["relevance"]
    assert f"{manifest.query_set.effective_sample_size:,.1f}" in page.text["query-set"]


def test_rules_stand_where_the_manifest_says(probability: Studied) -> None:
    manifest, found = probability.manifest(), probability.found
    in_force, *others = rule_standings(found, shown_queries(found))
    assert in_force.kept == manifest.metrics["heldout"].kept_fraction
    assert [(each.kept, each.loss) for each in others] == [
        (each.kept_fraction, each.loss) for each in manifest.alternatives
    ]
    assert [each.name for each in others] == [
        "The papers' rule (bootstrap)",
        "Risk control, with high probability",
    ]
    assert in_force.name == "Risk control, on average"


def test_curves_pass_through_the_rules(probability: Studied) -> None:
    found = probability.found
    queries = shown_queries(found)
    for rule in rule_standings(found, queries):
        kind = rule.record.kind if rule.in_force else rule.record.policy
        if rule.record.tau is None:
            continue
        losses, kept = least_kept(queries.queries, kind, "accuracy", 1.0)
        at = int(np.searchsorted(losses, rule.loss + 1e-9, side="right")) - 1
        assert losses[at] == pytest.approx(rule.loss) and kept[at] <= rule.kept + 1e-9


def test_least_kept_is_the_least_of_any_threshold(papers: Studied) -> None:
    queries = shown_queries(papers.found).queries
    decisions = queries.decisions("similarity")
    losses, kept = least_kept(queries, "similarity", "accuracy", 1.0)
    masks = [keep(decisions, threshold) for threshold in np.unique(decisions)]
    lost_by = np.array([queries.judged.lost("accuracy", mask).mean() for mask in masks])
    share = np.array([mask.mean() for mask in masks])
    for loss, least in zip(losses[1:-2], kept[1:-2], strict=True):  # the last step is above every score
        assert least == pytest.approx(share[lost_by <= loss + 1e-9].min())


def test_lost_queries_are_lost(probability: Studied) -> None:
    found, dataset = probability.found, probability.dataset
    report = lost_queries(dataset, found)
    scored, tau = found.scored, found.threshold
    assert scored.relevance is not None and tau is not None
    expected = []
    for row, query in enumerate(dataset.answerable):
        positions = scored.judged.top.positions[row].tolist()
        hits = [rank for rank, position in enumerate(positions) if position in query.relevant]
        if hits and not any(scored.relevance[row, rank] >= tau for rank in hits):
            expected.append((-float(scored.judged.top.scores[row, hits[0]]), row, query.id))
    assert report.total == len(expected) > 20
    assert [each.id for each in report.first] == [name for _, _, name in sorted(expected)[:20]]
    page = check(probability.page())
    assert f"{len(expected)} of 443 answerable queries" in page.text["lost"]
    assert sum(tag == "details" for tag, _ in page.elements) == 20
    for each in report.first:
        assert (each.top is None) == (each.lost.rank == 1)
        assert each.lost.relevance is not None and each.lost.relevance < float(tau)


def test_comparison_with_a_parent(probability: Studied, papers: Studied) -> None:
    parent = papers.manifest()
    rows = compare_releases(parent, probability.facts)
    assert rows == compare_releases(parent.model_dump(), probability.manifest().model_dump())
    by_label = {(row.group, row.label): row for row in rows}
    assert by_label["policy", "kind"].cells() == ("similarity", "probability", "changed")
    assert by_label["policy", "τ"].difference is None  # a similarity and a probability
    assert by_label["data", "corpus digest"].cells()[2] == "="
    kept = by_label["heldout", "results kept"]
    before, after = (each.found.metrics["heldout"].kept_fraction for each in (papers, probability))
    assert (kept.old, kept.new, kept.difference) == (before, after, after - before)
    page = check(probability.page(parent))
    assert parent.release_id in page.text["comparison"]
    assert kept.cells()[2] in page.text["comparison"]
    assert same_queries(parent, probability.facts)
    assert "same documents and labels" in page.text["comparison"]
    alone = parent.model_dump() | {"metrics": {"calibration": parent.metrics["calibration"].model_dump()}}
    assert {row.new for row in compare_releases(parent, alone) if row.group == "heldout"} == {None}
    assert all(row.cells()[2] == "=" for row in compare_releases(parent, parent))
    assert compare_releases({}, {}) != [] and not same_queries({}, {})


def test_no_holdout_no_unanswerable_and_nothing_certified(sample: Path, encoder: Path, tmp_path: Path) -> None:
    none = studied(sample, encoder, tmp_path / "s", ThresholdRule.from_options(max_loss=[0.0001]), holdout=0.0)
    assert none.found.policy.kind == "none" and none.found.roles is not None
    page = check(none.page())
    assert "no cut" in page.text["headline"] and "no query is lost" in page.text["lost"]
    assert "no unanswerable query" in page.text["abstaining"]
    assert "not fitted on" in page.text["kept"]
    assert not set(shown_queries(none.found).members.tolist()) & set(none.found.roles.fit.tolist())
    assert "held-out" not in page.text["headline"]


def test_few_queries_and_one_result(sample: Path, encoder: Path, tmp_path: Path) -> None:
    documents, queries = sample_texts(sample)
    few = write(tmp_path / "few", documents[:40], [(text, at) for at, text in enumerate(queries[:20])])
    one = studied(few, encoder, tmp_path / "s", k=1)
    assert one.found.relevance is None
    page = check(one.page())
    assert "no relevance in this release" in page.text["relevance"]
    relative = studied(few, encoder, tmp_path / "r", ThresholdRule.from_options(policy="relative", max_loss=[0.5]), k=1)
    page = check(relative.page())  # every decision score is 1
    assert "None of the 20 answerable queries" in page.text["lost"]


def test_scores_that_are_all_equal(papers: Studied) -> None:
    judged = papers.found.scored.judged
    flat = replace(judged.top, scores=np.full_like(judged.top.scores, 0.5))
    scored = replace(papers.found.scored, judged=replace(judged, top=flat, correct=np.full_like(judged.correct, 0.5)))
    check(replace(papers, found=replace(papers.found, scored=scored)).page())


def test_a_tau_of_zero_is_drawn(papers: Studied) -> None:
    policy = papers.found.policy.model_copy(update={"tau": 0.0})
    page = check(replace(papers, found=replace(papers.found, policy=policy)).page())
    assert "τ = 0.0000" in page.text["densities-section"] and "similarity, τ = 0.000000" in page.text["headline"]


def test_a_known_point_lands_at_its_pixel() -> None:
    chart = Chart("c", "title", "words", Axis(0, 10, "x"), Axis(0, 1, "y", "percent"))
    assert chart.at(0, 0) == (LEFT, BOTTOM) and chart.at(10, 1) == (RIGHT, TOP)
    chart.line([0, 5, 10], [0, 0.5, 1], "s")
    chart.dots([Dot(5, 0.5, "1", "here"), Dot(5.1, 0.5, "2", "there")])
    drawing = ElementTree.fromstring(chart.svg())  # noqa: S314 (our own)
    middle = f"{(LEFT + RIGHT) / 2:.1f} {(TOP + BOTTOM) / 2:.1f}"
    (line,) = (each for each in drawing.iter("path") if each.get("class") == "line s")
    assert line.get("d") == f"M{LEFT:.1f} {BOTTOM:.1f}L{middle}L{RIGHT:.1f} {TOP:.1f}"
    first, second = drawing.iter("circle")
    assert f"{first.get('cx')} {first.get('cy')}" == middle
    labels = {each.text: (float(each.get("x", 0)), float(each.get("y", 0))) for each in drawing.iter("text")}
    assert np.hypot(*np.subtract(labels["1"], labels["2"])) > 14
    assert second.find("title").text == "there"  # type: ignore[union-attr]


def test_ticks_are_round_and_axes_never_collapse() -> None:
    assert [text for _, text in Axis(0, 0.1, "loss", "percent").ticks()] == ["0 %", "2 %", "4 %", "6 %", "8 %", "10 %"]
    assert [text for _, text in Axis(-0.25, 0.31, "x").ticks()] == ["-0.2", "-0.1", "0.0", "0.1", "0.2", "0.3"]
    assert [text for _, text in Axis(0.0005, 0.97, "p", odds=True).ticks()] == ["0.001", "0.01", "0.1", "0.5", "0.9"]
    odds = Axis(0.01, 0.99, "p", odds=True)
    assert odds.place(0.5, 0, 100) == pytest.approx(50) and odds.place(0.01, 0, 100) == 0
    for value in (0.0, 1.0, -3.0, 1e-9):
        axis = Axis.around([value, value], "x")
        assert axis.low < value < axis.high and 0 < axis.place(value, 0, 100) < 100 and axis.ticks()


def test_density_is_the_kernel_density_of_scipy() -> None:
    values = np.random.default_rng(0).normal(0.4, 0.1, 3000).astype(np.float32)
    xs, ys = density(values, -0.2, 1.0)
    assert np.abs(ys - gaussian_kde(values)(xs)).max() < 0.01 * ys.max()
    assert ys.sum() * (xs[1] - xs[0]) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(density(np.full(1, 0.3, dtype=np.float32), 0.0, 1.0)[1]).all()


def test_thresholds_span_the_scores_and_hold_tau() -> None:
    scores = np.random.default_rng(0).random((100, 5), dtype=np.float32)
    for kind in ("similarity", "probability"):
        for tau in (None, np.float32(0.3), np.float32(1e-7)):
            found = spaced(scores, kind, tau)
            assert (np.diff(found) > 0).all() and len(found) <= 61 and (tau is None or tau in found)
            assert found[-1] >= 0.99 and found[0] <= max(scores.min(), 1e-4)
    assert len(drawn(np.zeros((5000, 100), dtype=np.int64))) == 1000


def test_numbers_as_they_are_written() -> None:
    assert (fixed(-0.00001), fixed(None), signed(0.0), signed(-0.00001)) == ("0.0000", "–", "0.0000", "0.0000")
    assert (signed(0.5, 1), signed(-2, 0), percent(0.12345), brief(9999), brief(12345)) == (
        "+0.5", "-2", "12.3\u00a0%", "9,999", "12k"
    )  # fmt: skip
    assert shortened("one\n two\x00three ") == "one two three"
    assert shortened("word " * 100, 12) == "word word …"
    assert shortened("x" * 400) == "x" * 300 + " …"
