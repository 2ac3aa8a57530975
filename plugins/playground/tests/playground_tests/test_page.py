"""Use of the playground: search, move τ, judge, explain, copy; in both color schemes, on every screen size."""

import ast
import json
import math
import re
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pytest
from playwright.sync_api import Browser, Route, expect

from playground_tests.conftest import QUESTION, Playground, open_playground
from taugate.policy.policy import POLICIES
from taugate.release.queries import CalibrationQuestion
from taugate_playground.routes import page_files
from tests.browser import cut_off, violations
from tests.release.clones import SUMMARY, with_refusals
from tests.service_process import ServiceProcess

HOSTILE = "<img src=x onerror='window.ran=1'>"


def answered(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    """What the service replies to the question."""
    return service.http.post("/search", json={"query": QUESTION, **fields}).raise_for_status().json()


def computed(page: Playground, expression: str) -> Any:
    """What functions of the page return; `page` is its module."""
    return page.page.evaluate(f"import('/playground/app.js').then(page => {expression})")


def test_search_shows_kept_and_dropped(playground: Playground, service: ServiceProcess) -> None:
    playground.ask()
    plain, considered = answered(service), answered(service, min_results=5)["results"]
    kept = [each["id"] for each in plain["results"]]
    assert 0 < len(kept) < len(considered)
    shown = playground.results.locator(".rank").all_text_contents()
    assert shown == [str(each["rank"]) for each in considered]
    assert playground.page.locator("#kept .result").count() == len(kept)
    assert playground["dropped-title"].text_content() == f"Dropped: {len(considered) - len(kept)} of {len(considered)}"
    last = considered[-1]
    near = f"{last['score']:.3f} {plain['threshold'] - last['score']:.3f} below τ"
    assert near in (playground.results.last.text_content() or "")
    assert f"{len(kept)} of {len(considered)} results" in playground.verdict
    assert ". calibrated " in playground.verdict
    assert re.search(r"\d ms$", playground.verdict)
    playground.ask()
    assert playground.verdict.endswith("ms, from the cache")


def test_page_compares_what_the_service_compares(playground: Playground) -> None:
    scores, relevance = np.array([[0.9, 0.5, -0.1]], np.float32), np.array([[0.2, 0.7, 0.1]], np.float32)
    for kind, score in POLICIES.items():
        results = [
            {"score": float(one), "relevance": float(two)} for one, two in zip(scores[0], relevance[0], strict=True)
        ]
        shown = f"{json.dumps(results)}.map(result => page.compared(result, '{kind}', {scores[0, 0]}))"
        assert computed(playground, shown) == score.decide(scores, relevance)[0].tolist()


@pytest.mark.parametrize(("width", "visible", "first"), [(1280, 5, 500), (800, 4, 500), (400, 3, 500)])
def test_results_come_first_on_every_screen(playground: Playground, width: int, visible: int, first: int) -> None:
    playground.page.set_viewport_size({"width": width, "height": 900})
    playground.ask()
    boxes = [box for result in playground.results.all() if (box := result.bounding_box()) is not None]
    assert boxes[0]["y"] < first
    assert sum(box["y"] + box["height"] <= 900 for box in boxes) >= visible
    playground["questions"].scroll_into_view_if_needed()
    playground.page.evaluate("document.getElementById('compare').scrollIntoView()")
    drawing, below = playground["threshold"].bounding_box(), playground["compare"].bounding_box()
    assert drawing is not None
    assert below is not None
    assert drawing["y"] + drawing["height"] <= below["y"], "the drawing is beside results and questions alone"


def test_markdown_is_shown_as_elements(playground: Playground) -> None:
    text = "# Fees\n\nPay **at once** or `later`, see [the page](https://example.org/a) and <b>ask</b>."

    def written(route: Route) -> None:
        reply = route.fetch().json()
        for result in reply["results"]:
            result |= {"text": text + "\n\n- one\n- energy two\n\n```\n<i>x</i> = [1](javascript:run)\n```"}
        route.fulfill(json=reply)

    playground.page.route("**/search", written)
    playground.ask()
    playground.results.first.get_by_role("button", name="Why this one?").click()
    shown = playground.results.first.locator(".text")
    assert shown.locator("strong").all_text_contents() == ["Fees", "at once"]
    assert shown.locator("li").all_text_contents() == ["one", "energy two"]
    assert shown.locator("mark").first.text_content() == "energy"
    assert shown.locator("a").get_attribute("href") == "https://example.org/a"
    assert shown.locator("pre").text_content() == "<i>x</i> = [1](javascript:run)"
    assert "<b>ask</b>" in (shown.text_content() or "")
    assert shown.locator("b, i, a").count() == 1


def test_moved_threshold_is_shown_and_sent(playground: Playground, service: ServiceProcess) -> None:
    playground.ask()
    reference = service.http.get("/release/reference").json()
    slider, calibrated = playground["slider"], reference["threshold"]
    before = playground.page.locator("#kept .result").count()
    slider.press("PageUp")
    slider.press("ArrowRight")
    tau = float(slider.get_attribute("aria-valuenow") or "nan")
    assert math.isclose(tau, calibrated + 0.055, abs_tol=0.0011)
    effect = playground["effect"].text_content() or ""
    assert f"{tau:.3f}. {effect}" == slider.get_attribute("aria-valuetext")
    assert effect != service.http.get("/release").json()["manifest"]["summary"]
    considered = answered(service, min_results=5)["results"]
    passing = [each for each in considered if each["score"] >= tau or each["rank"] == 1]
    assert playground.page.locator("#kept .result").count() == len(passing) <= before
    assert "Not calibrated: τ was moved" in playground.verdict
    assert f'"threshold":{tau}' in (playground["snippet"].text_content() or "")
    assert f"--policy similarity --tau {tau:.3f} --refuse" in (playground["command-tau"].text_content() or "")
    assert "threshold" not in playground.sent("/search", playground.ask)
    playground["tau-reset"].click()
    playground["verdict"].get_by_text("calibrated", exact=True).wait_for()
    assert playground.page.locator("#kept .result").count() == before


def test_threshold_follows_mouse_and_keys(playground: Playground) -> None:
    slider, box = playground["slider"], playground["figure"].bounding_box()
    assert box is not None
    low, high = (float(slider.get_attribute(f"aria-value{end}") or "nan") for end in ("min", "max"))
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
    playground.page.mouse.move(*middle)
    playground.page.mouse.down()
    assert float(slider.get_attribute("aria-valuenow") or "nan") == pytest.approx((low + high) / 2, abs=0.002)
    playground.page.mouse.move(middle[0] + 3000, middle[1])
    playground.page.mouse.up()
    playground.page.mouse.move(*middle)
    assert float(slider.get_attribute("aria-valuenow") or "nan") == high
    assert playground.page.evaluate("document.activeElement.id") == "slider"
    slider.press("Home")
    assert float(slider.get_attribute("aria-valuenow") or "nan") == low
    playground["tau"].fill("0.4")
    playground["tau"].press("Enter")
    assert slider.get_attribute("aria-valuenow") == "0.400"


def test_touch_moves_threshold(browser: Browser, service: ServiceProcess) -> None:
    with open_playground(browser, service, touch=True) as playground:
        slider, box = playground.loaded()["slider"], playground["figure"].bounding_box()
        assert box is not None
        low, high = (float(slider.get_attribute(f"aria-value{end}") or "nan") for end in ("min", "max"))
        playground.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
        assert float(slider.get_attribute("aria-valuenow") or "nan") == pytest.approx((low + high) / 2, abs=0.002)


def test_judgement_reaches_service(playground: Playground, service: ServiceProcess) -> None:
    def judged(outcome: str) -> float:
        found = re.search(rf'taugate_feedback_total{{outcome="{outcome}"}} (\S+)', service.http.get("/metrics").text)
        return float(found[1]) if found else 0.0

    before = judged("relevant"), judged("irrelevant")
    playground.ask()
    playground["judge-results"].click()
    playground.page.keyboard.press("y")  # and goes on to the next one
    playground.page.keyboard.press("n")
    playground.results.last.get_by_role("button", name="Not relevant").click()  # one that was dropped
    expect(playground.results.get_by_text(re.compile(r"^Judged (not )?relevant\.$"))).to_have_count(3)
    assert (judged("relevant"), judged("irrelevant")) == (before[0] + 1, before[1] + 2)


def test_missing_document_is_explained(playground: Playground, service: ServiceProcess) -> None:
    playground.ask()
    playground["document"].fill("tak-001")
    playground["document"].press("Enter")
    why = service.http.post("/explain", json={"query": QUESTION, "document_id": "tak-001"}).json()["why"]
    playground["explanation"].get_by_text(why).wait_for()
    playground["document"].fill("nowhere")
    playground["document"].press("Enter")
    playground["explanation"].get_by_text("no document with the id").wait_for()
    playground.results.last.get_by_role("button", name="Why this one?").click()
    playground.results.last.get_by_text("The threshold drops it").wait_for()


def test_unfolded_result_shows_parts_of_score(playground: Playground, service: ServiceProcess) -> None:
    assert "lexical" in service.http.get("/release").json()["manifest"]
    playground.ask()
    assert "shared words" not in (playground.results.first.text_content() or "")
    playground.results.first.get_by_role("button", name="Why this one?").click()
    playground.results.first.get_by_text("+ shared words").wait_for()
    result = answered(service, explain=True)["results"][0]
    parts, text = result["parts"], playground.results.first.text_content() or ""
    assert f"= similarity {parts['cosine']:.3f}+ shared words {parts['lexical']:.3f}" in text
    assert f"Words {', '.join(result['matched_words']) or 'none'}" in text
    for name, value in result["metadata"].items():
        assert f"{name}: {value}" in text


def test_invalid_filter_is_named(playground: Playground) -> None:
    playground.page.get_by_text("Options").click()
    playground["filter"].fill('{"categry": "tak"}')
    playground["question"].fill(QUESTION)
    playground["question"].press("Enter")
    playground["filter-error"].get_by_text("no document has the field categry; the fields are category").wait_for()
    playground["filter"].fill('{"category": ')
    playground["question"].press("Enter")
    playground["filter-error"].get_by_text("The filter is not JSON").wait_for()
    playground["filter"].fill('{"category": "takläggning"}')
    playground["k"].fill("3")
    playground.ask()
    assert "a filter is set" in playground.verdict
    assert playground["filter-error"].text_content() == ""
    assert playground.results.count() == 3


def test_code_equals_last_search(playground: Playground) -> None:
    playground["question"].fill("What's “new” in C:\\docs?")
    playground.page.get_by_text("Options").click()
    playground["filter"].fill('{"n": [1, true, null], "$not": {"a": "b"}}')
    playground["k"].fill("3")
    assert "'\\''s “new” in C:\\\\docs?" in (playground["snippet"].text_content() or "")
    playground.page.get_by_role("button", name="Python", exact=True).click()
    code = playground["snippet"].text_content() or ""
    call = ast.parse(code[code.index("taugate.search(") :].splitlines()[0], mode="eval").body
    assert isinstance(call, ast.Call)
    assert [ast.literal_eval(each) for each in call.args] == ["What's “new” in C:\\docs?"]
    named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    assert named == {"k": 3, "filter": {"n": [1, True, None], "$not": {"a": "b"}}}
    playground.page.get_by_role("button", name="LangChain").click()
    langchain = playground["snippet"].text_content() or ""
    for snippet in (code, langchain):
        compile(snippet, "snippet", "exec")
    assert f'TaugateRetriever(url="{playground.url}")' in langchain


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_axe_finds_no_violations(browser: Browser, service: ServiceProcess, scheme: Literal["light", "dark"]) -> None:
    def worst(route: Route) -> None:
        told = route.fetch().json()
        told["calibration"], told["drift"]["alarm"], told["drift"]["signals"] = "provisional", True, ["roe", "quality"]
        told["manifest"]["calibration"] |= {"state": "provisional", "reasons": ["generated_queries", "few_queries"]}
        route.fulfill(json=told)

    with open_playground(browser, service, scheme=scheme) as playground:
        playground.page.route("**/release", worst)
        playground.page.reload()
        playground.loaded().ask()
        playground["notice-drift"].get_by_text(
            "Drift alarm: random documents (ROE), replies with a relevant result"
        ).wait_for()
        playground["notice-provisional"].get_by_text("its queries were generated").wait_for()
        playground["slider"].press("PageUp")
        playground.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        for width in (400, 1280, 2560):
            playground.page.set_viewport_size({"width": width, "height": 900})
            assert violations(playground.page) == []
            assert cut_off(playground.page) == []
            playground.page.evaluate("scrollTo(0, document.body.scrollHeight)")
            notice = playground["notice-drift"].bounding_box()  # in sight, however far down the reader is
            assert notice is not None
            assert notice["y"] >= 0
            assert notice["y"] + notice["height"] < 600


def test_hostile_texts_are_escaped(playground: Playground) -> None:
    def hostile(route: Route) -> None:
        reply = route.fetch().json()
        for result in reply["results"]:
            result |= {"title": HOSTILE, "text": HOSTILE, "id": HOSTILE, "metadata": {HOSTILE: HOSTILE}}
        route.fulfill(json=reply)

    playground.page.route("**/search", hostile)
    playground.page.route("**/explain", lambda route: route.fulfill(status=404, json={"error": {"message": HOSTILE}}))
    playground.ask()
    playground["document"].fill(HOSTILE)
    playground["document"].press("Enter")
    playground["explanation"].get_by_text(HOSTILE).wait_for()
    assert playground.results.first.locator("h3").text_content() == HOSTILE
    playground.results.first.get_by_role("button", name="Why this one?").click()
    playground.results.first.locator(".text").get_by_text(HOSTILE).wait_for()
    assert playground.page.locator("img").count() == 0
    assert playground.page.evaluate("window.ran") is None


def test_endless_words_stay_within_page(playground: Playground) -> None:
    endless = "x" * 1000

    def long(route: Route) -> None:
        reply = route.fetch().json()
        for result in reply["results"]:
            result |= {"title": None, "text": endless, "id": endless, "metadata": {endless: endless}}
        route.fulfill(json=reply)

    playground.page.set_viewport_size({"width": 360, "height": 800})
    playground.page.route("**/search", long)
    playground.page.route("**/explain", lambda route: route.fulfill(status=404, json={"error": {"message": endless}}))
    playground.ask()
    playground.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    playground["document"].fill("missing")
    playground["document"].press("Enter")
    playground["explanation"].get_by_text(endless).wait_for()
    assert cut_off(playground.page) == []


@pytest.mark.parametrize(("kind", "named"), [("probability", "relevance"), ("relative", "shares of the best")])
def test_threshold_on_separate_scale(browser: Browser, service: ServiceProcess, kind: str, named: str) -> None:
    """What is compared is no similarity: the curve has the scale of τ, and the page says so."""

    def change(route: Route) -> None:
        told = route.fetch().json()
        policy = {"kind": kind, "tau": 0.25}
        if "manifest" in told:
            told["manifest"]["policy"] |= policy
            told["manifest"]["refusal"] = {"score": "model", "rho": 0.5}
        else:
            curve = [{"tau": 0.1, "kept": 1, "loss": 0}, {"tau": 0.25, "kept": 0.61, "loss": 0.018}]
            told |= {"policy": kind, "threshold": 0.25, "curve": curve}
        route.fulfill(json=told)

    with open_playground(browser, service) as playground:
        playground.page.route("**/release**", change)
        playground.page.reload()
        playground.loaded()
        assert named in (playground["scales"].text_content() or "")
        assert [playground["slider"].get_attribute(f"aria-value{end}") for end in ("min", "max")] == ["0", "1"]


def test_release_summary_and_refusal_are_shown(browser: Browser, service: ServiceProcess) -> None:
    def change(route: Route) -> None:
        reply = route.fetch().json()
        if "manifest" in reply:
            with_refusals(reply["manifest"])
        else:
            reply |= {
                "results": [],
                "dropped": 5,
                "reason": "unanswerable",
                "refusal": {"score": 0.21, "rho": 0.390625},
            }
        route.fulfill(json=reply)

    with open_playground(browser, service) as playground:
        playground.page.route("**/release", change)
        playground.page.reload()
        playground.loaded()
        assert playground["effect"].text_content() == SUMMARY
        assert "below ρ = 0.391" in (playground["release-facts"].text_content() or "")
        playground.page.route("**/search", change, times=1)  # the page asks again for what was dropped
        playground.ask()
        assert playground.verdict.startswith(
            "Refused: the documents seem to hold no answer. The question has 0.210, below ρ = 0.391."
        )


def test_compared_value_equals_service_value(playground: Playground) -> None:
    result = '{"score": -0.2, "relevance": 0.5}'
    for policy, best, wanted in (("similarity", 0.4, -0.2), ("probability", 0.4, 0.5), ("relative", 0.4, -0.5)):
        assert computed(playground, f"page.compared({result}, '{policy}', {best})") == pytest.approx(wanted)
    assert computed(playground, f"page.compared({result}, 'relative', -0.2)") == 0


def test_page_is_small_and_self_contained() -> None:
    files = {path: file.content.decode() for path, file in page_files().items()}
    assert sum(len(content.encode()) for content in files.values()) < 100_000
    for path, content in files.items():
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", content), path
    assert not re.search(r"localStorage|sessionStorage|indexedDB|document\.cookie", files["playground/app.js"])
    assert not re.search(r"<style|<script>|\son\w+=|\sstyle=", files[""])


def test_density_of_known_distribution(playground: Playground) -> None:
    """Quantiles of a normal distribution give its density, and any density has the area 1."""
    xs = np.linspace(-4, 4, 161)
    for quantiles in (_normal_quantiles(), [*np.linspace(0, 1, 101)], [0.5] * 101):
        found = computed(playground, f"page.density({json.dumps(quantiles)}, {xs.tolist()})")
        if quantiles[0] != quantiles[-1]:
            assert np.trapezoid(found, xs) == pytest.approx(1, abs=0.01)
        assert np.isfinite(found).all()
    normal = computed(playground, f"page.density({_normal_quantiles()}, {xs.tolist()})")
    assert np.abs(np.array(normal) - np.exp(-(xs**2) / 2) / math.sqrt(2 * math.pi)).max() < 0.03


def _normal_quantiles() -> list[float]:
    return [NormalDist().inv_cdf(min(max(share / 100, 0.001), 0.999)) for share in range(101)]


def test_numbers_are_formatted_consistently(playground: Playground) -> None:
    shown = computed(playground, "[0, .018, .0994, .0996, .6149, 1].map(page.percent)")
    assert shown == [f"{each}\u00a0%" for each in ("0", "1.8", "9.9", "10", "61", "100")]
    curve = [{"tau": 0.125, "kept": 1, "loss": 0}, {"tau": 0.25, "kept": 0.5, "loss": 0.2}]
    for tau, at in ((0.0, 0.125), (0.125, 0.125), (0.2, 0.25), (0.9, 0.25)):
        assert computed(playground, f"page.onCurve({json.dumps(curve)}, {tau}).tau") == at
    assert computed(playground, "page.onCurve([], .2)") is None
    assert computed(playground, "page.ticks(-.15, .9, 6).map(each => Math.round(each * 100) / 100)") == [
        0,
        0.2,
        0.4,
        0.6,
        0.8,
    ]
    reply = "{policy: 'relative', best_score: .8}"
    assert computed(
        playground, f"[.39, .41].map(score => page.isKept({{score}}, {reply}, {{tau: .5, rho: null}}))"
    ) == [False, True]


def test_moved_thresholds_do_what_calibration_says(playground: Playground) -> None:
    """Outcomes in the page are those of `CalibrationQuestion.outcome`, with and without τ and ρ."""
    rng = np.random.default_rng(0)
    questions = []
    for kind in ("answerable", "unanswerable", "off_topic") * 20:
        values = np.sort(rng.random(3).astype(np.float32))[::-1].tolist()
        rank = int(rng.integers(1, 4)) if kind == "answerable" and rng.random() < 0.7 else None
        score = float(np.float32(rng.random())) if rng.random() < 0.5 else None
        right = None if rank is None else values[rank - 1]
        questions.append(
            CalibrationQuestion(
                text="", kind=kind, heldout=False, values=values, best=values[0], refusal=score, rank=rank, right=right
            )
        )
    given = json.dumps([question.model_dump() for question in questions])
    for tau, rho in ((None, None), (0.5, None), (None, 0.5), (0.4, 0.6), (questions[0].values[1], questions[3].best)):
        at = json.dumps({"tau": tau, "rho": rho})
        outcomes = computed(playground, f"{given}.map((question) => page.outcomeOf(question, {at}))")
        assert outcomes == [question.outcome(tau, rho) for question in questions]
