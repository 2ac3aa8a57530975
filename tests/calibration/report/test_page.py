"""The report says what the manifest says, and cannot be made to run what a document holds."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.report.gate import of_law, separation_figure
from taugate.calibration.report.questions import label_errors
from taugate.calibration.report.terminal import refused_kinds, statement
from taugate.calibration.report.tradeoff import shown_queries
from taugate.evidence.relevance.fitting import AppliedRelevance
from taugate.evidence.rules import ThresholdRule
from taugate.registry.writer import CREATED_AT, RELEASE_ID
from taugate.release.adaptation import TrainingRecord
from taugate.release.measures import MeasuresRecord
from tests.adaptation_records import adaptation, measures
from tests.calibration.report.html_page import check, wrong_numbers
from tests.calibration.report.studies import COMMAND, Studied, sample_texts, studied, write


def test_page_has_all_sections_and_one_script(probability: Studied, papers: Studied) -> None:
    for each in (probability, papers):
        html = each.page()
        page = check(html)
        assert html.count("<script") == 1 and "<b>mixed" not in html and "\x07" not in html
        assert statement(each.found.policy) in page.text["rules"]
        assert "&lt;script&gt;alert(1)" in html  # shown, not run


def test_negative_zero_is_found_in_numbers_alone() -> None:
    assert wrong_numbers("<td>-0</td><td>(-0.00, 1)</td><td>1.2 − 0, −0 %</td>") == ["-0", "-0.00", "−0"]
    assert wrong_numbers("taugate calibrate /tmp/pytest-0/d-0 --releases ~/pytest-0</p><p>-0.05 in 2026-01") == []


def test_page_starts_with_summary_and_counts_refusals(mixed: Path, encoder: Path, tmp_path: Path) -> None:
    each = studied(mixed, encoder, tmp_path / "s", refuse="auto")
    html, record = each.page(), each.found.manifest.refusal
    assert "off-topic questions" in refused_kinds(record)
    page = check(html)
    headline = [line for line in page.text["headline"].split("\n") if line]
    encoder_name = each.manifest().encoder.name
    made = f"Release {RELEASE_ID}, calibrated, made {CREATED_AT} by {COMMAND}, encoder {encoder_name}"
    assert each.found.manifest.summary is not None
    lines = [" ".join(line.split()) for line in each.found.manifest.summary.splitlines()]
    assert headline[:2] == [made, "".join(lines).replace(" %", "\u00a0%")]
    assert f"<br>ρ = {record.rho:.3f}" in html
    for name, refused in refused_kinds(record).items():
        share, lower = (f"{100 * value:.1f}\u00a0%" for value in (refused.refused / refused.queries, refused.lower))
        assert f"{name}{refused.refused}{refused.queries}{share}{lower}" in page.text["abstaining"]
    assert "No query is refused as a whole" not in page.text["abstaining"]


def test_page_is_reproducible(probability: Studied, mixed: Path, encoder: Path, tmp_path: Path) -> None:
    rule = ThresholdRule.from_options(max_loss=[0.1], guarantee="expected-loss", policy="probability")
    again = studied(mixed, encoder, tmp_path / "s", rule)
    assert again.page(again.manifest()) == probability.page(probability.manifest())


def test_relevance_scores_match_manifest(probability: Studied) -> None:
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
        assert f"observed {100 * each.relevant:.1f}" in said


def test_shift_figures_match_benchmark(probability: Studied) -> None:
    """The extremes over the rows of the benchmark page that are of another corpus than the release's own."""
    page = (Path(__file__).parents[3] / "benchmarks" / "decisions.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"### Relevance under shift\n(.*?)\n###", page, re.S)
    cells = [row.split(" | ") for row in rows.splitlines() if row.startswith("| ") and "unseen" not in row][2:]
    assert len({row[0] for row in cells}) == 6
    errors, true = ([float(row[column].split()[0]) for row in cells] for column in (4, 5))
    said = check(probability.page()).text["relevance"]
    assert f"relevant in {100 * min(true):.0f} to {100 * max(true):.0f} %" in said
    assert f"off by {100 * min(errors):.0f} to {100 * max(errors):.0f} %" in said
    text = (Path(__file__).parents[3] / "docs" / "thresholds.md").read_text(encoding="utf-8")
    assert f"was {min(errors):.2f} to {max(errors):.2f}".replace("0.", ".") in text.replace("\n", " ")


def test_page_numbers_match_manifest(probability: Studied) -> None:
    manifest = probability.manifest()
    page = check(probability.page())
    for part in manifest.metrics.values():
        for name in ("accuracy", "accuracy_at_tau", "ndcg", "ndcg_at_tau", "coe", "roe"):
            value = getattr(part, name)
            assert f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})" in page.text["numbers"]
        for value in (part.kept_fraction, part.abstention.unanswerable_empty, part.abstention.auroc):
            assert f"{value:.4f}" in page.text["numbers"]
    for value in (manifest.isotropy.i_a, manifest.isotropy.i_b, manifest.query_set.silhouette):
        assert f"{value:.4f}" in page.text["papers"]
    for certificate in manifest.policy.certificates:
        assert f"{certificate.bound:.6f}" in page.text["rules"]
    assert manifest.relevance is not None
    assert f"{manifest.relevance.expected_calibration_error:.4f}" in page.text["relevance"]
    assert f"{manifest.query_set.effective_sample_size:,.1f}" in page.text["query-set"]


def test_page_without_holdout_or_threshold(sample: Path, encoder: Path, tmp_path: Path) -> None:
    none = studied(sample, encoder, tmp_path / "s", ThresholdRule.from_options(max_loss=[0.0001]), holdout=0.0)
    assert none.found.policy.kind == "none" and none.found.roles is not None
    page = check(none.page())
    assert (
        "No threshold" in page.text["headline"]
        and "0 of 271 calibration queries with a relevant document" in page.text["lost"]
    )
    assert "no unanswerable queries" in page.text["abstaining"]
    assert "not fitted on" in page.text["kept"]
    assert not set(shown_queries(none.found).members.tolist()) & set(none.found.roles.fit.tolist())
    assert "held-out" not in page.text["headline"]


def test_page_with_few_queries(sample: Path, encoder: Path, tmp_path: Path) -> None:
    documents, queries = sample_texts(sample)
    few = write(tmp_path / "few", documents[:40], [(text, at) for at, text in enumerate(queries[:20])])
    one = studied(few, encoder, tmp_path / "s", k=1)
    assert one.found.manifest.relevance is None
    page = check(one.page())
    assert "no relevance model" in page.text["relevance"]
    relative = studied(few, encoder, tmp_path / "r", ThresholdRule.from_options(policy="relative", max_loss=[0.5]), k=1)
    page = check(relative.page())  # every decision score is 1
    assert "0 of 2 held-out queries with a relevant document among their top 1 keep none" in page.text["lost"]


def test_page_with_equal_scores(papers: Studied) -> None:
    judged = papers.found.scored.judged
    flat = replace(judged.top, scores=np.full_like(judged.top.scores, 0.5))
    scored = replace(papers.found.scored, judged=replace(judged, top=flat, correct=np.full_like(judged.correct, 0.5)))
    check(Studied(replace(papers.found, scored=scored)).page())


def test_zero_tau_is_drawn(papers: Studied) -> None:
    policy = papers.found.policy.model_copy(update={"tau": 0.0})
    page = check(papers.with_records(policy=policy).page())
    assert "τ = 0.0000" in page.text["densities-section"] and "τ = 0.000" in page.text["headline"]


def test_doubtful_labels_are_escaped(probability: Studied, sample: Path, encoder: Path, tmp_path: Path) -> None:
    """Ten labels that were moved to another document are named, and none of the texts is taken for HTML."""
    documents, _ = sample_texts(sample)
    labelled: list[tuple[str, int | None]] = [
        (" ".join(text.split()[4:14]), at + 1 if at % 25 == 0 else at) for at, text in enumerate(documents[:400])
    ]
    moved = studied(write(tmp_path / "moved", documents, labelled), encoder, tmp_path / "s")
    found = label_errors(moved.found)
    assert found is not None
    assert sum(int(each.id[1:]) % 25 == 0 for each in found.missing) >= 8
    said = check(moved.page()).text["labels"]
    assert all(each.id in said and each.text in said and each.document.text in said for each in found.missing)
    html = probability.page()
    assert html.count("<script") == 1
    assert "</blockquote><script>alert(1)" in check(html).text["labels"], "shown, not run"


def test_inherited_model_checks_no_labels(papers: Studied) -> None:
    """It may have learned from the same queries."""
    estimated = papers.found.estimated
    assert estimated is not None
    kept = AppliedRelevance(estimated.relevance, estimated.answerable, None)
    page = check(Studied(replace(papers.found, estimated=kept)).page())
    assert "their labels cannot be checked" in page.text["labels"]


def test_relevance_of_a_mixture_says_what_it_is_measured_on(papers: Studied) -> None:
    record = papers.found.manifest.relevance
    assert record is not None
    assert "have no answer" not in check(papers.page()).text["relevance"]
    fields = {"unanswerable_share": 0.5, "unanswerable": 432, "error_of_answerable": record.error}
    mixed = papers.with_records(relevance=record.model_copy(update=fields))
    text = check(mixed.page()).text["relevance"].replace("\N{NO-BREAK SPACE}", " ")
    assert "assumes that 50 % of all queries have no answer" in text
    assert "and 432 questions that no document answers" in text
    assert "On the queries with an answer alone, it is too low" in text


def test_page_shows_plain_means_and_deep_figures(papers: Studied) -> None:
    page, found = check(papers.page()), papers.found
    deep = found.search.deep(found.measured.members)
    assert deep is not None
    for text, figures in (("Recall@100", deep.recall), ("Precision@10", deep.precision)):
        assert text in page.text["papers"]
        assert f"{figures:.4f}" in page.text["papers"]
    members = found.measured.members
    assert "accuracy@5, not bootstrapped" in page.text["numbers"]
    assert f"{found.scored.judged.take(members).accuracy().mean():.4f}" in page.text["numbers"]


@pytest.fixture
def adapted(papers: Studied) -> Studied:
    return papers.with_records(adaptation=adaptation(measures()))


def test_adapted_section_requires_measures(papers: Studied, adapted: Studied) -> None:
    assert "adapted" not in check(papers.page()).text
    without = papers.with_records(adaptation=adaptation(None))
    assert "adapted" not in check(without.page()).text
    assert "base<b>model" in check(adapted.page()).text["adapted"]  # shown, not run


def test_measures_are_shown_before_and_after(adapted: Studied) -> None:
    page = check(adapted.page())
    text = (page.text["adapted"] + page.text["papers"]).replace("\xa0", " ")
    for shown in ("0.7000", "(0.6800–0.7200)", "0.7500", "0.3100 (85)", "97.0 %", "0.9300", "0.8800", "30.50"):
        assert shown in text
    assert "10 queries with 3 paraphrases each, by rules" in page.text["papers"]
    assert "-0.0500 (-0.0600 to -0.0400)" in page.text["adapted"]
    assert [of_law(measures().spectrum.after, part)[0] for part in ("beta", "tail", "fit", "whole")] == ["–"] * 4


def test_encoders_tried_are_listed(adapted: Studied) -> None:
    table = re.findall(r"All encoders that were tried.*?</table>", adapted.page(), re.S)[0]
    assert re.findall(r'<th scope="row">(\w+)', table) == ["base", "whitening", "adapter"]
    assert re.findall(r'<tr class="now"><th scope="row">(\w+)', table) == ["adapter"]


def test_query_set_diversity_is_shown(adapted: Studied) -> None:
    text = check(adapted.page()).text["papers"]
    assert f"{adapted.manifest().query_set.silhouette:.4f}" in text
    assert "the set hides what an adapted encoder does better" in text


@pytest.mark.parametrize(
    ("change", "weight", "keep", "merge"),
    [(-0.05, 1.0, True, True), (-0.05, 0.5, True, False), (-0.05, None, True, False), (0.0, 1.0, False, False)],
)
def test_merging_is_suggested_after_forgetting(
    papers: Studied, change: float, weight: float | None, keep: bool, merge: bool
) -> None:
    training = TrainingRecord(stages=[], merge_weights=[], merge_weight=weight, left_out={})
    studied = papers.with_records(adaptation=adaptation(measures(change), training=training))
    said = check(studied.page()).text["adapted"]
    assert (" keep the base encoder" in said, "--recipe merge" in said) == (keep, merge)


def test_rejected_encoder_shows_reason(papers: Studied) -> None:
    studied = papers.with_records(adaptation=adaptation(measures(), admitted=False))
    assert "not accepted: NDCG@10 falls" in check(studied.page()).text["adapted"]


def test_histograms_include_every_document() -> None:
    found = measures().separation
    drawn = str(separation_figure(found).svg)
    assert drawn.count('class="band s-random"') == drawn.count('class="band s-topk"') == 1
    heights = [_areas(path) for path in re.findall(r'class="line s-\w+" d="M([^"]+)"', drawn)]
    assert heights[0] == pytest.approx(heights[1], rel=0.02)  # both hold all documents, in bars of one width


def test_equal_distances_are_drawn() -> None:
    one = [0] * 99 + [7]
    record: MeasuresRecord = measures()
    before = record.separation.before.model_copy(update={"counts": one})
    after = record.separation.after.model_copy(update={"counts": one})
    figure = separation_figure(record.separation.model_copy(update={"before": before, "after": after}))
    assert "s-topk" in str(figure.svg)


def _areas(path: str) -> float:
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    floor = max(y for _, y in points)
    return sum((right[0] - left[0]) * (floor - left[1]) for left, right in pairwise(points))
