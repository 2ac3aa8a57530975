"""Render report.html, a self-contained page that opens from a disk, from a mail or behind a firewall."""

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from taugate.calibration import progress
from taugate.calibration.encoding.encoder_fit import encoder_fit_warnings
from taugate.calibration.encoding.encoder_options import input_warnings, prompts_in_words
from taugate.calibration.provisional import outlook
from taugate.calibration.query_set.warnings import COPIED, truncation_warning
from taugate.calibration.report import gate, terminal, tradeoff
from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import drawn, metric_curves, reliability_figures, similarity_densities
from taugate.calibration.report.questions import OUTCOMES, label_errors, question_table
from taugate.calibration.study.outcomes import Calibrated
from taugate.data.labelled_queries import left_out_notes
from taugate.evidence.abstention.words import SCORES
from taugate.evidence.rules import MAX_EMPTY
from taugate.policy.policy import POLICIES
from taugate.policy.score_relevance import SCALES
from taugate.registry.writer import CREATED_AT, RELEASE_ID
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.release.promises import percent_at_most
from taugate.release.state import UpdateRecord
from taugate.release.summary import certificate_cost, summary_lines

# Tags and elements whose text is not prose, or an option of a command.
_OPTIONS = re.compile(
    r"(<style.*?</style>|<title.*?</title>|<svg.*?</svg>|<[^>]*>)|(?<![\w-])(--[a-z][\w-]*)", flags=re.DOTALL
)

_TEMPLATE = "page.html.j2"


@cache
def template(package: str, name: str, *filters: Callable[..., object]) -> Template:
    """Load a page's template with the macros, style sheet and number filters that all pages share.

    Values are escaped, because queries and documents are untrusted text.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("taugate.calibration.report", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (
        progress.fixed,
        progress.percent,
        progress.count,
        progress.signed,
        progress.limits,
        progress.alone,
        progress.estimate,
        progress.shift,
        *filters,
    )
    environment.filters |= {function.__name__: function for function in formats}
    return environment.get_template(name)


@cache
def page_script() -> tuple[Markup, str]:
    """Return the page's script, and its source for a content security policy."""
    script = files("taugate.calibration.report").joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(script), f"'sha256-{digest}'"  # noqa: S704 (a file of the package)


def with_whole_options(html: str) -> str:
    """Mark the options of commands in the text of a page, so that no line breaks within one: --max-loss.

    Tags, style sheets, titles and drawings stay as they are.
    """
    return _OPTIONS.sub(lambda match: match[1] or f'<span class="option">{match[2]}</span>', html)


def render(calibrated: Calibrated, parent: ReleaseManifest | None, command: str = "") -> str:
    """Render the page, which is the same for the same calibration: the writer of the release fills in its id and time.

    Args:
        command: The command line that made the release, empty if none did.
    """
    manifest, policy, shown = calibrated.manifest, calibrated.policy, tradeoff.shown_queries(calibrated)
    rules, bootstraps = tradeoff.rule_standings(calibrated, shown), calibrated.parts["calibration"].resamples.rows
    decision, relevance, texts = POLICIES[policy.kind], manifest.relevance, calibrated.texts
    corpus = None if texts is None else manifest.searchable
    adapted = manifest.adaptation
    measures = adapted and adapted.measures
    members = {name: len(calibrated.parts[name].members) for name in calibrated.parts}
    judged = [calibrated.scored.judged.take(calibrated.parts[name].members) for name in manifest.metrics]
    html: str = template("taugate.calibration.report", _TEMPLATE, gate.of_law, gate.gains).render(
        facts=manifest,
        corpus=corpus,
        release_id=RELEASE_ID,
        created_at=CREATED_AT,
        command=command,
        policy=policy,
        decision=decision,
        keeps=decision.keeps.format(score=calibrated.search.score_name),
        warnings=page_warnings(calibrated),
        parts=progress.PARTS,
        scales=SCALES,
        members=members,
        metrics=manifest.metrics,
        last=list(manifest.metrics)[-1],
        measured=progress.metrics_line(manifest),
        summary=summary_lines(manifest.summary or ""),
        certificate_cost=certificate_cost(manifest),
        labels=manifest.labels,
        few_labels=terminal,
        plain_accuracy=[progress.alone(float(part.accuracy().mean())) for part in judged],
        plain_ndcg=[progress.alone(float(part.ndcg().mean())) for part in judged],
        densities=similarity_densities(calibrated),
        curves=metric_curves(calibrated),
        bootstraps=(len(bootstraps), len(drawn(bootstraps))),
        shown=shown,
        rules=rules,
        tradeoff=tradeoff.tradeoff_figures(calibrated, shown, rules),
        statement=terminal.statement,
        unrestricted=terminal.unrestricted,
        refusal=manifest.refusal,
        refusal_sentence=manifest.refusal and terminal.refusal_sentence(manifest.refusal),
        answered=terminal.answered_sentences(manifest.refusal),
        refused_kinds=terminal.refused_kinds,
        scores=SCORES,
        most_refused=MAX_EMPTY,
        percent_at_most=percent_at_most,
        abstaining=tradeoff.abstention_figures(calibrated, shown),
        relevance=relevance,
        trust=[] if relevance is None else reliability_figures(relevance),
        checked=manifest.checked,
        lost=tradeoff.lost_queries(calibrated),
        questions=question_table(calibrated),
        outcomes=OUTCOMES,
        doubtful=label_errors(calibrated),
        wording=texts and texts.wording,
        copied=COPIED,
        prompts=corpus and _prompts(corpus),
        deep=corpus and calibrated.search.deep(calibrated.measured.members),
        adapted=measures and adapted,
        encoders=adapted and measures and gate.first_and_last(measures, adapted.recipe),
        separation_drawn=measures and gate.separation_figure(measures.separation),
        gate=corpus and corpus.gate,
        gate_used=corpus and gate.in_use(corpus),
        interval=gate.loss_interval(corpus.gate) if corpus and corpus.gate else None,
        retentions=corpus and gate.retentions(corpus),
        parent=parent,
        compared=[] if parent is None else compare_releases(parent, manifest),
        same_queries=parent is not None and same_queries(parent, manifest),
        script=page_script(),
    )
    return with_whole_options(html)


def _prompts(manifest: Manifest) -> str | None:
    answering = manifest.answering
    return prompts_in_words(answering) if answering.query_prompt or answering.document_prompt else None


@dataclass(frozen=True)
class PageWarning:
    """A warning at the top of the page."""

    title: str
    text: str  # what is wrong, and what to do about it


def page_warnings(calibrated: Calibrated) -> list[PageWarning]:
    """Collect the warnings, the most serious first."""
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
    corpus = manifest.searchable
    if corpus is not None:
        warnings += _text_warnings(corpus)
    if (refusal := manifest.refusal) is not None and refusal.limits is not None:
        if not refusal.certified:
            uncertified = "The requested limits could not be certified, so the release was not promoted."
            warnings.append(PageWarning("Limits not reached", uncertified))
        if refused := terminal.refusal_warning(refusal):
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
