"""What a threshold costs: where each rule stands, and which queries lose their answer."""

import numpy as np
import pytest

from taugate.calibration.report.tradeoff import lost_queries, min_kept, rule_standings, shortened, shown_queries
from taugate.policy.policy import keep
from tests.calibration.report.html_page import check
from tests.calibration.report.studies import Studied


def test_rule_standings_match_manifest(probability: Studied) -> None:
    manifest, found = probability.manifest(), probability.found
    in_force, *others = rule_standings(found, shown_queries(found))
    assert in_force.kept == manifest.metrics["heldout"].kept_fraction
    assert [(each.kept, each.loss) for each in others] == [
        (each.kept_fraction, each.loss) for each in manifest.alternatives
    ]
    assert [each.name for each in others] == ["The papers' rule (bootstrap)", "Risk control, with high probability"]
    assert in_force.name == "Risk control, on average"


def test_curves_pass_through_rules(probability: Studied) -> None:
    found = probability.found
    queries = shown_queries(found)
    for rule in rule_standings(found, queries):
        kind = rule.record.kind if rule.in_force else rule.record.policy
        if rule.record.tau is None:
            continue
        losses, kept = min_kept(queries.queries, kind, "accuracy", 1.0)
        at = int(np.searchsorted(losses, rule.loss + 1e-9, side="right")) - 1
        assert losses[at] == pytest.approx(rule.loss) and kept[at] <= rule.kept + 1e-9


def test_min_kept_is_minimal(papers: Studied) -> None:
    queries = shown_queries(papers.found).queries
    decisions = queries.decisions("similarity")
    losses, kept = min_kept(queries, "similarity", "accuracy", 1.0)
    masks = [keep(decisions, threshold) for threshold in np.unique(decisions)]
    lost_by = np.array([queries.judged.lost("accuracy", mask).mean() for mask in masks])
    share = np.array([mask.mean() for mask in masks])
    for loss, least in zip(losses[1:-2], kept[1:-2], strict=True):  # the last step is above every score
        assert least == pytest.approx(share[lost_by <= loss + 1e-9].min())


def test_lost_queries_match_brute_force(probability: Studied) -> None:
    found, dataset = probability.found, probability.found.search.dataset
    report = lost_queries(found)
    scored, tau = found.scored, found.threshold
    assert scored.relevance is not None and tau is not None
    expected = []
    for row, query in enumerate(dataset.answerable):
        positions = scored.judged.top.positions[row].tolist()
        hits = [rank for rank, position in enumerate(positions) if position in query.relevant]
        if hits and not any(scored.relevance[row, rank] >= tau for rank in hits):
            expected.append((-float(scored.judged.top.scores[row, hits[0]]), row, query.id))
    heldout = set(found.parts["heldout"].members.tolist())
    checked = found.manifest.checked
    assert checked is not None
    assert checked.lost == sum(row in heldout for _, row, _ in expected)
    ordered = sorted(expected, key=lambda lost: (lost[1] not in heldout, lost))
    assert len(expected) > 20
    assert [each.id for each in report] == [name for _, _, name in ordered[:20]]
    html = probability.page()
    assert f"{checked.lost} of {checked.answers} held-out queries" in check(html).text["lost"]
    assert html.split('<section id="lost">')[1].split("</section>")[0].count("<details>") == 20
    for each in report:
        assert (each.top is None) == (each.lost.rank == 1) and each.cause == "dropped"
        assert each.lost.relevance is not None and each.lost.relevance < float(tau)


def test_long_texts_are_cut_at_words() -> None:
    assert shortened("one\n two\x00three ") == "one two three"
    assert shortened("word " * 100, 12) == "word word …"
    assert shortened("x" * 400) == "x" * 300 + " …"
