"""The page of a replay: what is drawn, and where nothing is."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from taugate.calibration.charts.chart import LEFT, RIGHT
from taugate.calibration.replay.replayed import TimeSpan, group_maxima, group_means, present_spans, step_segments
from tests.browser import A4_WIDTH, cut_off, opened, violations
from tests.calibration.replay.conftest import Command
from tests.calibration.replay.records import DAY, START, Service, write

FIGURE = re.compile(r"<figure.*?</figure>", re.DOTALL)


def drawn(found: dict) -> str:
    return Path(found["page"]).read_text(encoding="utf-8")


def paths(figure: str, kind: str) -> list[list[tuple[float, float]]]:
    """Points of each path of a kind, line or band."""
    found = re.findall(rf'<path class="{kind} [^"]*" d="M([^"]*?)Z?"/>', figure.partition('<ul class="keys">')[0])
    return [[tuple(map(float, point.split())) for point in path.split("L")] for path in found]


def test_page_shows_evidence_and_means(lines: list[dict], tmp_path: Path, replayed: Command) -> None:
    page = drawn(replayed(write(tmp_path / "queries.log", lines)))
    figures = FIGURE.findall(page)
    assert len(figures) == 11  # the similarities, and two of each of five signals
    assert "A block is 200 different queries in a row" in page
    assert "4,800 <small>0.0\u00a0% are repeats" in page
    assert re.search(r"blocks of queries</dt><dd>24 <small>of 200 each", page)
    assert re.search(r"blocks of judgements</dt><dd>2 <small>of 200 each", page)
    assert "<script" not in page
    best, evidence, means = figures[:3]
    for figure in (best, evidence, means):
        assert figure.count('class="mark tau"') == 2  # one in the drawing, one in the legend
        assert figure.count('class="mark uncut"') == 2
    assert "no drift, by the calibration" in means
    assert "with the baseline" not in page
    [line] = paths(evidence, "line")
    top = min(y for _, y in line)
    on = [x for x, y in line if y == top]
    assert on[-1] - on[0] > 30  # the level holds while the alarm is on
    assert [y for x, y in line if on[0] < x < on[-1] and y != top] == []
    [blocks] = paths(means, "line")
    assert len(blocks) == 2 * 24 + 1  # a corner before and after each step


def test_page_names_utc_once(lines: list[dict], tmp_path: Path, replayed: Command) -> None:
    found = replayed(write(tmp_path / "queries.log", lines))
    page = drawn(found)
    assert page.count("UTC") == 1
    assert "All times are in UTC." in page
    ticks = re.findall(r'<text class="tick" text-anchor="middle"[^>]*>([^<]*)<', FIGURE.findall(page)[0])
    assert ticks == ["06:00", "12:00", "18:00", "10 Sep"]
    assert "2001-09-09 to 2001-09-10" in page
    places = re.findall(r'<text class="tick" text-anchor="middle" x="([\d.]+)"', FIGURE.findall(page)[1])
    alarm = float(re.findall(r'<path class="mark tau" d="M([\d.]+)', FIGURE.findall(page)[1])[0])
    hour = 12 + 6 * (alarm - float(places[1])) / (float(places[2]) - float(places[1]))
    at = next(each["at"] for each in found["moments"] if each["alarm"] and each["signal"] == "topk_similarity")
    assert abs(hour - at % DAY / 3600) < 0.1  # the table and the axis say the same


@pytest.mark.slow
def test_page_is_accessible(browser: Browser, lines: list[dict], tmp_path: Path, replayed: Command) -> None:
    page = Path(replayed(write(tmp_path / "queries.log", lines))["page"])
    with opened(browser, page, width=400) as phone:
        assert violations(phone) == []
        assert [each for each in cut_off(phone) if not each.startswith("DIV wide")] == []
    with opened(browser, page, scheme="dark") as screen:
        assert violations(screen) == []
    with opened(browser, page, width=A4_WIDTH, printed=True) as paper:
        assert cut_off(paper) == []


def test_gap_without_queries_is_blank(service: Service, tmp_path: Path, replayed: Command) -> None:
    before, after = (START + first + np.arange(2050) * 10.0 for first in (0.0, 4 * DAY))
    queries = service.queries([*before.tolist(), *after.tolist()])
    log = write(tmp_path / "queries.log", queries + service.judged(queries[::4]))
    page = drawn(replayed(log))
    assert "blank during 1 gap" in page
    whole = after[-1] - START
    start, end = (LEFT + (RIGHT - LEFT) * (at - START) / whole for at in (before[-1], after[0]))
    kinds = [(figure, kind) for figure in FIGURE.findall(page) for kind in ("line", "band")]
    assert len(kinds) == 22
    for figure, kind in kinds:
        pieces = paths(figure, kind)
        assert len(pieces) in ((0,) if kind == "band" and "evidence" in figure else (2,))
        for piece in pieces:
            xs = [x for x, _ in piece]
            assert max(xs) <= start + 0.1 or min(xs) >= end - 0.1


def test_log_of_one_moment_is_drawn(service: Service, tmp_path: Path, replayed: Command) -> None:
    found = replayed(write(tmp_path / "queries.log", service.queries([START] * 500)))
    assert found["blocks"] == 2
    assert "NaN" not in drawn(found)


def test_present_spans_split_at_long_gaps() -> None:
    blocks = [TimeSpan(0.0, 10.0), TimeSpan(11.0, 21.0)]
    steady = np.arange(0.0, 200.0)
    assert present_spans(steady, blocks) == [TimeSpan(0, 199)]
    assert present_spans(np.delete(steady, np.s_[50:140]), blocks) == [
        TimeSpan(0, 199)
    ]  # nine times as long as a block takes
    assert present_spans(np.delete(steady, np.s_[50:160]), blocks) == [TimeSpan(0, 49), TimeSpan(160, 199)]
    long = np.concatenate([np.arange(0.0, 1e5, 10), 1e5 + 1500 + np.arange(0.0, 1e5, 10)])
    assert present_spans(long, blocks) == [TimeSpan(0, long[-1])]  # 1 of 130 of the whole cannot be seen
    assert present_spans(np.array([0.0, 5.0, 1000.0]), []) == [TimeSpan(0, 1000)]  # no block by which to tell


def test_step_segments_end_at_gaps() -> None:
    pieces = step_segments(
        [0.0, 10.0, 90.0], np.array([1.0, 2.0, 3.0]), 100.0, [TimeSpan(0, 40), TimeSpan(60, 100)], group_maxima
    )
    assert [(piece.xs, piece.ys) for piece in pieces] == [
        ([0, 10, 40], [1, 2, 2]),
        ([60, 90, 100], [2, 3, 3]),
    ]
    assert step_segments([], np.array([]), 1.0, [TimeSpan(0, 1)], group_maxima) == []


def test_close_steps_are_merged() -> None:
    at = np.arange(0.0, 100.0, 0.01)
    values = np.zeros(len(at))
    values[5003] = 0.7
    [piece] = step_segments(at.tolist(), values, 100.0, [TimeSpan(0, 100)], group_maxima)
    assert len(piece.xs) < 700
    assert max(piece.ys) == 0.7
    [piece] = step_segments(at.tolist(), at, 100.0, [TimeSpan(0, 100)], group_means)
    assert np.abs(np.array(piece.ys) - piece.xs).max() < 0.3
