"""Render report.html, a self-contained page that opens from a disk, from a mail or behind a firewall."""

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from taugate.calibration.abstention.words import SCORES
from taugate.calibration.charts.numbers import PARTS, metrics_line
from taugate.calibration.charts.template import template, with_whole_options
from taugate.calibration.encoding.encoder_fit import encoder_fit_warnings
from taugate.calibration.encoding.prompts import input_warnings, prompts_in_words
from taugate.calibration.provisional.words import outlook
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.report import few_labels
from taugate.calibration.report.abstaining import abstention_figures, shown_queries
from taugate.calibration.report.adapted import AdaptedSection
from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import (
    drawn,
    metric_curves,
    reliability_figures,
    similarity_densities,
)
from taugate.calibration.report.gate import gate_rows, retentions
from taugate.calibration.report.label_errors import label_errors
from taugate.calibration.report.questions import OUTCOMES, question_table, sorting_script
from taugate.calibration.report.table_lines import drift_lines, metric_lines, paper_lines, query_set_lines
from taugate.calibration.report.terminal import (
    answered_sentences,
    refusal_sentence,
    refusal_warning,
    refused_kinds,
    statement,
    unrestricted,
)
from taugate.calibration.report.tradeoff import lost_queries, rule_standings, tradeoff_figures
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.calibration.study.outcomes import Calibrated
from taugate.ingestion.dataset.own_documents import left_out_notes
from taugate.registry.writer import CREATED_AT, RELEASE_ID
from taugate.retrieval.policy.policy import POLICIES
from taugate.retrieval.policy.scales import SCALES
from taugate.retrieval.release.changed_documents import UpdateRecord
from taugate.retrieval.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.release.promises.promise import percent_at_most
from taugate.retrieval.release.summary import certificate_cost, summary_lines

_TEMPLATE = "page.html.j2"


def render(calibrated: Calibrated, parent: ReleaseManifest | None, command: str = "") -> str:
    """Render the page, which is the same for the same calibration: the writer of the release fills in its id and time.

    Args:
        calibrated: The study with its manifest.
        parent: Manifest of the current release, None if there is none.
        command: The command line that made the release, empty if none did.
    """
    sections = (
        _rules(calibrated) | _queries(calibrated) | _corpus(calibrated) | _comparison(parent, calibrated.manifest)
    )
    html: str = template("taugate.calibration.report", _TEMPLATE).render(
        facts=calibrated.manifest,
        release_id=RELEASE_ID,
        created_at=CREATED_AT,
        command=command,
        policy=calibrated.policy,
        warnings=page_warnings(calibrated),
        parts=PARTS,
        scales=SCALES,
        statement=statement,
        unrestricted=unrestricted,
        few_labels=few_labels,
        refused_kinds=refused_kinds,
        scores=SCORES,
        most_refused=MAX_EMPTY,
        percent_at_most=percent_at_most,
        script=sorting_script(),
        **sections,
    )
    return with_whole_options(html)


def _rules(calibrated: Calibrated) -> dict[str, Any]:
    """Return what the page says about the rule in force, its alternatives, and refusals."""
    manifest, policy, shown = calibrated.manifest, calibrated.policy, shown_queries(calibrated)
    rules, refusal = rule_standings(calibrated, shown), manifest.refusal
    last = list(manifest.metrics)[-1]
    return {
        "decision": POLICIES[policy.kind],
        "keeps": POLICIES[policy.kind].keeps.format(score=calibrated.search.score_name),
        "last": last,
        "shown": shown,
        "rules": rules,
        "tradeoff": tradeoff_figures(calibrated, shown, rules),
        "summary": summary_lines(manifest.summary or ""),
        "certificate_cost": certificate_cost(manifest),
        "checked": manifest.checked,
        "measured": metrics_line(manifest),
        "refusal": refusal,
        "refusal_sentence": refusal and refusal_sentence(refusal),
        "answered": answered_sentences(refusal),
        "abstaining": abstention_figures(calibrated, shown),
        "lost": lost_queries(calibrated),
        "questions": question_table(calibrated),
        "outcomes": OUTCOMES,
    }


def _queries(calibrated: Calibrated) -> dict[str, Any]:
    """Return what the page says about the queries and the model of relevance."""
    manifest, rows = calibrated.manifest, calibrated.parts["calibration"].resamples.rows
    members = {name: len(part.members) for name, part in calibrated.parts.items()}
    return {
        "members": members,
        "metrics": manifest.metrics,
        "labels": manifest.labels,
        "numbers": metric_lines(list(manifest.metrics.values()), calibrated.policy.k, _plain(calibrated)),
        "densities": similarity_densities(calibrated),
        "curves": metric_curves(calibrated),
        "bootstraps": (len(rows), len(drawn(rows))),
        "relevance": manifest.relevance,
        "trust": [] if manifest.relevance is None else reliability_figures(manifest.relevance),
        "doubtful": label_errors(calibrated),
        "drift": [] if manifest.drift is None else drift_lines(manifest.drift),
        "adapted": AdaptedSection.of(manifest.adaptation),
    }


def _plain(calibrated: Calibrated) -> list[tuple[float, float]]:
    """Return accuracy and NDCG of the queries of each part, each query once."""
    parts = [calibrated.scored.judged.take(calibrated.parts[name].members) for name in calibrated.manifest.metrics]
    return [(float(part.accuracy().mean()), float(part.ndcg().mean())) for part in parts]


def _corpus(calibrated: Calibrated) -> dict[str, Any]:
    """Return what the page says about the documents, the texts of the queries, and other ways to search."""
    manifest, texts = calibrated.manifest, calibrated.texts
    if not isinstance(manifest, Manifest) or texts is None:
        return {"corpus": None}
    queries, k = len(calibrated.parts["calibration"].members), calibrated.policy.k
    answering = manifest.answering
    return {
        "corpus": manifest,
        "query_set": query_set_lines(manifest.query_set, texts.wording, queries, k),
        "prompts": prompts_in_words(answering) if answering.query_prompt or answering.document_prompt else None,
        "papers": paper_lines(
            manifest.query_set, manifest.isotropy, calibrated.search.deep(calibrated.measured.members)
        ),
        "gate": gate_rows(manifest) if manifest.gate else [],
        "retentions": retentions(manifest),
    }


def _comparison(parent: ReleaseManifest | None, manifest: ReleaseManifest) -> dict[str, Any]:
    """Return the comparison with the current release, if there is one."""
    compared = [] if parent is None else compare_releases(parent, manifest)
    return {
        "parent": parent,
        "changed": [row for row in compared if row.changed],
        "unchanged": [row for row in compared if not row.changed],
        "by_group": lambda rows: [
            (name, list(rows_of_group)) for name, rows_of_group in groupby(rows, key=attrgetter("group"))
        ],
        "same_queries": parent is not None and same_queries(parent, manifest),
    }


@dataclass(frozen=True)
class PageWarning:
    """A warning at the top of the page.

    Attributes:
        title: Two or three words.
        text: What is wrong, and what to do about it.
    """

    title: str
    text: str


def page_warnings(calibrated: Calibrated) -> list[PageWarning]:
    """Collect the warnings, the most serious first.

    Args:
        calibrated: The study with its manifest.
    """
    manifest = calibrated.manifest
    k, record = calibrated.policy.k, manifest.calibration
    warnings = []
    if record is not None and record.state == "provisional":
        warnings.append(PageWarning("Provisional", _sentence(record.because(k))))
        if manifest.update is None:  # an update keeps this record, but may be measured on other queries
            metrics = [*manifest.metrics.values()][-1]
            expectation = outlook(record, calibrated.policy, metrics, refusing=calibrated.answer_rule is not None)
            warnings += [PageWarning("What to expect", expectation)] if expectation else []
    if calibrated.policy.tau is None:
        shortage, advice = calibrated.policy.shortage, "Label more queries, or allow a larger loss with --max-loss."
        if shortage is not None and (shortage.min_loss is not None or shortage.options):
            advice = f"Calibrate with {next(iter(shortage.options), 'a larger --max-loss')}."
        warnings.append(PageWarning("No threshold", f"{calibrated.policy.guarantee} {advice}"))
    if (update := manifest.update) is not None:
        warnings.append(PageWarning("Updated", update_words(update)))
    if record is not None and (chance_warning := record.chance_warning(k)):
        warnings.append(PageWarning("No better than chance", _sentence(chance_warning)))
    corpus = manifest if isinstance(manifest, Manifest) else None
    if corpus is not None:
        warnings += _text_warnings(corpus)
    if (refusal := manifest.refusal) is not None and refusal.limits is not None:
        if not refusal.certified:
            uncertified = "The requested limits could not be certified, so the release was not promoted."
            warnings.append(PageWarning("Limits not reached", uncertified))
        if refused := refusal_warning(refusal):
            warnings.append(PageWarning("Many refusals", _sentence(refused)))
    about_queries = [] if corpus is None else corpus.query_set.warnings
    return warnings + [PageWarning("Query set", _sentence(warning)) for warning in about_queries]


def _text_warnings(manifest: Manifest) -> list[PageWarning]:
    """Return the warnings about texts that are cut, left out, or do not suit the encoder."""
    data, encoder, warnings = manifest.data, manifest.encoder, []
    if truncated := data.truncated_documents:
        warning = truncation_warning(truncated, data.documents, encoder.max_length, encoder.name)
        warnings.append(PageWarning("Long documents", warning))  # ends with a command, so without a full stop
    notes = left_out_notes(data.empty_documents or 0, data.own_documents or 0)
    warnings += [PageWarning("Left out", _sentence(note)) for note in notes]
    answering = manifest.answering
    fit = encoder_fit_warnings(manifest.encoder_fit, answering.name, answering.query_window)
    fit += input_warnings(answering)
    return warnings + [PageWarning("Encoder", _sentence(warning)) for warning in fit]


def update_words(record: UpdateRecord) -> str:
    """Say which release an updated release's threshold comes from, and whether it still holds."""
    held = "still holds" if record.holds else "is not shown to hold"
    return (
        f"The threshold was chosen on the documents of {record.calibrated}, and any guarantee holds for those. "
        f"Documents since the parent release: {record.added:,} added, {record.changed:,} changed, {record.removed:,} "
        f"removed. The threshold {held}: accuracy at τ changed by {-100 * record.loss.mean:+.2f} points. The loss is "
        f"at most {100 * record.loss.upper:.2f} points ({100 * record.confidence:g} % confidence); "
        f"{100 * record.margin:.3g} are allowed."
    )


def _sentence(text: str) -> str:
    """Turn a message into a sentence with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
