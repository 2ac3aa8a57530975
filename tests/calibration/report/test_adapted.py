"""The report's section on an adapted encoder says what adaptation.json says."""

import re
from itertools import pairwise

import pytest

from taugate.calibration.report.gate import of_law, separation_figure
from taugate.release.adaptation import TrainingRecord
from taugate.release.measures import MeasuresRecord
from tests.adaptation_records import adaptation, measures
from tests.calibration.report.html_page import check
from tests.calibration.report.studies import Studied


@pytest.fixture(scope="module")
def html(papers: Studied) -> str:
    return papers.with_records(adaptation=adaptation(measures())).page()


@pytest.fixture(scope="module")
def text(html: str) -> dict[str, str]:
    return check(html).text


def test_adapted_section_requires_measures(papers: Studied, text: dict[str, str]) -> None:
    assert "adapted" not in check(papers.with_records(adaptation=adaptation(None)).page()).text
    assert "base<b>model" in text["adapted"]  # shown, not run


def test_measures_are_shown_before_and_after(text: dict[str, str]) -> None:
    both = (text["adapted"] + text["papers"]).replace("\xa0", " ")
    for shown in ("0.7000", "(0.6800–0.7200)", "0.7500", "0.3100 (85)", "97.0 %", "0.9300", "0.8800", "30.50"):
        assert shown in both
    assert "10 queries with 3 paraphrases each, by rules" in text["papers"]
    assert "-0.0500 (-0.0600 to -0.0400)" in text["adapted"]
    assert [of_law(measures().spectrum.after, part)[0] for part in ("beta", "tail", "fit", "whole")] == ["–"] * 4


def test_encoders_tried_are_listed(html: str) -> None:
    table = re.findall(r"All encoders that were tried.*?</table>", html, re.S)[0]
    assert re.findall(r'<th scope="row">(\w+)', table) == ["base", "whitening", "adapter"]
    assert re.findall(r'<tr class="now"><th scope="row">(\w+)', table) == ["adapter"]


def test_query_set_diversity_is_shown(papers: Studied, text: dict[str, str]) -> None:
    assert f"{papers.manifest().query_set.silhouette:.4f}" in text["papers"]
    assert "the set hides what an adapted encoder does better" in text["papers"]


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
