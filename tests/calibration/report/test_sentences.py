"""Sentences of the terminal and the report, which people read as written."""

from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.progress import metrics_line
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.report.page import page_warnings, with_whole_options
from taugate.calibration.report.terminal import statement, table, unrestricted
from taugate.registry.catalog import find
from taugate.release.layout import REPORT
from taugate.release.manifest import Manifest
from taugate.release.verify import verify_searchable
from tests.browser import A4_WIDTH, cut_off, opened, violations
from tests.calibration.report.html_page import check
from tests.calibration.report.studies import Studied
from tests.release.clones import with_refusals


@pytest.mark.parametrize(
    ("long", "said"),
    [
        (713, "713 of 1,000 documents (71.3\u00a0%) are longer than the encoder's 256 tokens"),
        (1, "1 of 1,000 documents (0.1\u00a0%) is longer than the encoder's 256 tokens"),
    ],
)
def test_long_documents_warning_has_remedy(papers: Studied, long: int, said: str) -> None:
    data = papers.found.manifest.data.model_copy(update={"documents": 1000, "truncated_documents": long})
    encoder = papers.manifest().encoder.model_copy(update={"max_length": 256, "name": DEFAULT_ENCODER})
    changed = papers.with_records(data=data, encoder=encoder)
    (warning,) = (each for each in page_warnings(changed.found) if each.title == "Long documents")
    those = "it" if long == 1 else "them"
    rest = f", and it does not read what comes after; cut {those} with: taugate import DATA --to NEW"
    assert warning.text == said + rest
    html = changed.page()
    assert check(html).text["headline"].index(warning.text) < html.index("τ =")


def test_truncation_remedy_names_custom_encoder() -> None:
    assert truncation_warning(2, 10, 512, "intfloat/e5-small").endswith(" --to NEW --encoder intfloat/e5-small")
    assert truncation_warning(2, 10, 256, DEFAULT_ENCODER).endswith(" --to NEW")


def test_query_set_warnings_are_sentences(papers: Studied) -> None:
    record = papers.manifest().query_set.model_copy(
        update={"warnings": ["only 9 queries; label more", "one topic; add more"]}
    )
    found = papers.with_records(query_set=record).found
    said = [each.text for each in page_warnings(found) if each.title == "Query set"]
    assert said == ["Only 9 queries; label more.", "One topic; add more."]


def test_missing_threshold_is_first_warning(papers: Studied) -> None:
    policy = papers.found.policy.model_copy(update={"kind": "none", "tau": None, "guarantee": "Too few queries."})
    first, *_ = page_warnings(papers.with_records(policy=policy).found)
    assert (first.title, first.text) == (
        "No threshold",
        "Too few queries. Label more queries, or allow a larger loss with --max-loss.",
    )


def test_table_ends_with_drift(papers: Studied) -> None:
    manifest = papers.manifest()
    *_, drift = table(manifest).splitlines()
    assert manifest.drift is not None
    assert drift.startswith("drift: nine times out of ten, an alarm detects these shifts within ")
    assert f" within {manifest.drift.within:,} queries" in drift
    assert manifest.refusal is not None
    assert manifest.refusal.limits is None
    assert f"in force: similarity, τ = {manifest.policy.tau:.6f}, ψ = {manifest.policy.psi} (bootstrap)." in table(
        manifest
    )


def test_table_counts_refused_kinds_instead_of_headline(papers: Studied) -> None:
    record = papers.manifest().model_dump(mode="json")
    before = table(Manifest.model_validate(record))
    assert before.startswith("Of 100 questions that have no answer here, ")
    with_refusals(record)
    record["refusal"]["provisional"] = True
    lines = table(Manifest.model_validate(record)).splitlines()
    (refused,) = (line for line in lines if line.startswith("refused: "))
    assert refused == (
        "refused: 19 of 20 off-topic questions (at least 78.4\u00a0%), 14 of 20 near misses (at least "
        "49.2\u00a0%), with ρ = 0.390625 (best_similarity). Off-topic questions are easy. Too few queries are labelled "
        "to limit what ρ loses: ρ is provisional."
    )
    assert before.splitlines()[0] not in lines


def test_metrics_line_has_measures_of_papers(papers: Studied) -> None:
    manifest = papers.manifest()
    metrics, policy = [*manifest.metrics.values()][-1], manifest.policy
    names = [part.partition(" ")[0] for part in metrics_line(manifest).replace("(ψ = ", "(ψ=").split(", ")]
    assert names == [f"accuracy@{policy.k}", f"NDCG@{policy.k}", f"τ(ψ={policy.psi})", "COE", "ROE"]
    assert f"accuracy@{policy.k} {100 * metrics.accuracy.mean:.1f}\u00a0% (" in metrics_line(manifest)
    assert f"ROE {100 * metrics.roe.mean:.1f}\u00a0% (" in metrics_line(manifest)


@pytest.mark.parametrize(("psi", "said"), [(100, True), (40, False)])
def test_statement_says_if_no_candidate_lowers_accuracy(papers: Studied, psi: int, said: bool) -> None:
    rule = papers.found.policy.model_copy(update={"psi": psi})
    assert ("no percentile of Γ lowers" in statement(rule)) == said


def test_console_and_report_say_once_what_interval_allows(papers: Studied) -> None:
    record = papers.found.policy.unrestricted
    said = unrestricted(papers.found.policy).strip()
    assert said.startswith(f"If every similarity were a candidate, the interval would allow τ = {record.tau:.6f}, ")
    assert (
        f"keeps {100 * record.kept_fraction:.1f}\u00a0% of the results and loses {100 * record.loss:.1f}\u00a0%" in said
    )
    assert table(papers.manifest()).count(said) == 1
    assert papers.page().count(said) == 1


def test_statement_matches_manifest(papers: Studied, probability: Studied) -> None:
    assert statement(probability.found.policy) == probability.found.policy.guarantee
    assert statement(papers.found.policy).startswith(
        "This is the highest candidate of Γ at which the metric does not measurably fall"
    )
    bootstrap, certified = probability.found.manifest.alternatives
    assert statement(bootstrap) == statement(papers.found.policy)
    assert statement(certified) == certified.guarantee


def test_first_line_names_release_time_and_command(releases: Path, sample: Path, encoder: Path) -> None:
    release = find(releases)
    manifest = verify_searchable(release)
    made = datetime.fromisoformat(manifest.created_at)
    command = f"taugate calibrate {sample} --releases {releases} --encoder {encoder}"
    line = check((release / REPORT).read_text(encoding="utf-8")).text["headline"].strip().partition("\n")[0]
    assert line == (
        f"Release {release.name}, {manifest.state_in_words}, made {made:%Y-%m-%d %H:%M} UTC by {command}, encoder "
        f"{manifest.encoder.name}"
    )


def test_options_are_marked_in_text_alone() -> None:
    page = '<title>--a</title><style>a { --b: 1 }</style><p title="--c">x--d, --max-loss 0.1<svg><text>--e</text></svg>'
    marked = page.replace("--max-loss", '<span class="option">--max-loss</span>')
    assert with_whole_options(page) == marked


@pytest.fixture(scope="module")
def reports(papers: Studied, probability: Studied, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A first release, and one that is compared with it; both have warnings."""
    folder = tmp_path_factory.mktemp("reports")
    found = {"first": folder / "first.html", "compared": folder / "compared.html"}
    found["first"].write_text(papers.page(), encoding="utf-8")
    found["compared"].write_text(probability.page(papers.manifest()), encoding="utf-8")
    return found


@pytest.mark.parametrize("name", ["first", "compared"])
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "light"), (1280, "dark")])
@pytest.mark.slow
def test_page_has_no_accessibility_violations(
    browser: Browser, reports: dict[str, Path], name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, reports[name], width=width, scheme=scheme) as page:
        assert violations(page) == []


@pytest.mark.parametrize(("width", "height"), [(1280, 5000), (400, 8000)])
def test_folded_page_is_short_and_unfolds_by_link(
    browser: Browser, reports: dict[str, Path], width: int, height: int
) -> None:
    with opened(browser, reports["compared"], width=width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = false })")
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        assert not page.is_visible("#curves figure")
        page.click("nav a[href='#curves']")
        page.wait_for_selector("#curves figure", state="visible")  # the script follows the link


def test_questions_are_filtered_by_words(browser: Browser, reports: dict[str, Path]) -> None:
    visible = "nodes => nodes.filter(node => node.offsetParent !== null).map(node => node.textContent)"
    with opened(browser, reports["first"]) as page:
        before = page.locator("#questions tbody tr").evaluate_all(visible)
        page.fill("#questions input", "held KEPT")
        after = page.locator("#questions tbody tr").evaluate_all(visible)
    assert 0 < len(after) < len(before)
    assert after == [text for text in before if "held" in text.lower() and "kept" in text.lower()]


def test_phone_cuts_nothing_off(browser: Browser, reports: dict[str, Path]) -> None:
    """Only a wide table scrolls, in a region of its own that the keyboard reaches."""
    for report in reports.values():
        with opened(browser, report, width=400) as page:
            assert [each for each in cut_off(page) if not each.startswith("DIV wide")] == []
            assert page.evaluate("getComputedStyle(document.querySelector('p.soft')).fontSize") == "16px"


def test_print_cuts_nothing_off(browser: Browser, reports: dict[str, Path]) -> None:
    for report in reports.values():
        with opened(browser, report, width=A4_WIDTH, printed=True) as page:
            assert cut_off(page) == []
            assert not page.is_visible("nav")


def test_wide_table_says_that_it_scrolls(browser: Browser, reports: dict[str, Path]) -> None:
    hint = "(table) => parseFloat(getComputedStyle(table, '::before').height)"
    for report in reports.values():
        with opened(browser, report, width=400) as page:
            tables = page.locator(".wide").all()
            scrolls = [table.evaluate("node => node.scrollWidth > node.clientWidth + 1") for table in tables]
            assert {*scrolls} == {True, False}
            assert [table.evaluate(hint) > 0 for table in tables] == scrolls


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_contents_stay_in_view_and_options_are_whole(browser: Browser, reports: dict[str, Path], width: int) -> None:
    lines = "nodes => nodes.map(node => node.getClientRects().length)"
    for report in reports.values():
        with opened(browser, report, width=width) as page:
            assert {*page.locator(".option").evaluate_all(lines)} == {1}
            page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
            box = page.locator("nav").bounding_box()
            assert box is not None
            assert 0 <= box["y"] < 50


def test_outcome_is_more_prominent_than_threshold(browser: Browser, reports: dict[str, Path]) -> None:
    sizes = "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).fontSize))"
    widths = (
        "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).strokeWidth))"
    )
    for report in reports.values():
        with opened(browser, report) as page:
            outcome, threshold = page.evaluate(sizes, "h1")[0], page.evaluate(sizes, ".threshold")[0]
            assert outcome > threshold >= max(page.evaluate(sizes, "h2, p:not(.threshold), dd"))
            assert min(page.evaluate(widths, ".mark.tau")) > max(page.evaluate(widths, "path:not(.tau)"))
            boxes = [page.locator(name).first.bounding_box() for name in ("h1", ".warning", ".threshold")]
            tops = [box["y"] for box in boxes if box is not None]
            assert len(tops) == 3
            assert tops == sorted(tops)
