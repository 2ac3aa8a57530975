"""Render report.html: everything on one page that opens from a disk, in a mail or behind a firewall."""

from collections.abc import Mapping
from typing import Any

from taugate.calibration.abstention.words import SCORES, evidence, headline, most_percent
from taugate.calibration.charts.numbers import KEEPS, PARTS
from taugate.calibration.charts.template import template
from taugate.calibration.report.abstaining import abstention_figures, shown_queries
from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import drawn, metric_curves, reliability_figures, similarity_densities
from taugate.calibration.report.gate import gate_rows, retentions
from taugate.calibration.report.lost import MOST, lost_queries
from taugate.calibration.report.tables import drift_lines, metric_lines, query_set_lines
from taugate.calibration.report.tradeoff import rule_standings, tradeoff_figures
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.release.manifest import Manifest

_TEMPLATE = "page.html.j2"


def render(dataset: Dataset, facts: Mapping[str, Any], found: Findings, parent: Manifest | None) -> str:
    """Render the page; it holds no date, no id of its own and no path: same findings, same characters.

    dataset: texts of queries and documents; facts: the manifest less ids, times and files; found: findings of the
    study; parent: manifest of the release that was current, None without one.
    """
    queries = shown_queries(found)
    rules = rule_standings(found, queries)
    rows = found.parts["calibration"].resamples.rows
    members = {name: len(part.members) for name, part in found.parts.items()}
    html: str = template("taugate.calibration.report", _TEMPLATE).render(
        facts=facts,
        policy=found.policy,
        keeps=KEEPS[found.policy.kind],
        parts=PARTS,
        members=members,
        metrics=found.metrics,
        last=list(found.metrics)[-1],
        numbers=metric_lines(found.metrics, found.policy.k),
        densities=similarity_densities(found),
        curves=metric_curves(found),
        bootstraps=(len(rows), len(drawn(rows))),
        shown=queries,
        rules=rules,
        tradeoff=tradeoff_figures(found, queries, rules),
        headline=headline(found.no_answer),
        headline_evidence=evidence(found.no_answer),
        abstaining=abstention_figures(found, queries),
        scores=SCORES,
        most_refused=MAX_EMPTY,
        most_percent=most_percent,
        relevance=found.relevance,
        trust=[] if found.relevance is None else reliability_figures(found.relevance),
        lost=lost_queries(dataset, found),
        most_lost=MOST,
        drift=drift_lines(facts["drift"]),
        query_set=query_set_lines(found.query_set, members["calibration"], found.policy.k),
        gate=gate_rows(facts) if facts["gate"] else [],
        retentions=retentions(facts["gate"]) if facts["gate"] else [],
        parent=parent,
        comparison=[] if parent is None else compare_releases(parent, facts),
        same_queries=parent is not None and same_queries(parent, facts),
    )
    return html
