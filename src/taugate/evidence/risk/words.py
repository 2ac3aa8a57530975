"""Sentences that state a guarantee, or what is missing if nothing could be certified; the manifest holds them."""

from collections.abc import Sequence

from taugate.evidence.clusters import documents_phrase
from taugate.evidence.rules import ThresholdRule
from taugate.release.evidence import Certificate, Drawn, Level, StrataRecord
from taugate.release.names import METHODS

_MAX_CHARACTERS = 40  # of a metadata value in a sentence
ACCURACY, NDCG, EMPTY = "accuracy", "ndcg", "empty"
FIXED = "Nothing is certified: the threshold was given, not chosen here."
WITHOUT_REFUSALS = "This counts what the cut drops; queries that are refused as a whole come on top of it."
WITH_REFUSALS = "A query that is refused as a whole counts as lost."


def papers(k: int) -> str:
    """State what the method `bootstrap` gives at K = `k`."""
    return (
        f"Nothing is certified: the mean bootstrapped metric at K = {k} stays within its own 95 % interval, which "
        "is not being shown to be worse (thresholds paper §2.2)."
    )


def guarantee(rule: ThresholdRule, certificates: Sequence[Certificate], k: int, drawn: Drawn | None = None) -> str:
    """State what is guaranteed, for which queries and by which test.

    The first certificate is that of the metric. `drawn` says how the labels were drawn, None if documents are assumed.
    """
    first = certificates[0]
    limits = capped(first) + " and ".join(_limit(certificate, k) for certificate in certificates)
    by_document = first.unit == "document" and first.units is not None
    effect = f"design effect {first.queries / first.effective_queries:.3g}"
    of = f" about {documents_phrase(first.units)} ({effect})" if first.units and by_document else ""
    queries = f"the {first.queries:,} queries{of} that certified it"
    if drawn == "queries":
        queries += ", which were drawn one by one"
    sure = f"{100 * rule.confidence:.4g} % confidence"
    if rule.further_losses:
        losses = " and ".join(f"{100 * loss:.4g} %" for loss in (rule.max_loss, *rule.further_losses))
        sure += f" (for losses of {losses} at once)"
    if rule.on_average:
        return (
            f"On average over calibrations like this one, {limits}, for queries drawn like {queries} (conformal risk "
            f"control, expected loss). {_at_most(rule, certificates)}"
        )
    test = "exact binomial" if rule.metric == "accuracy" else "e-value"
    if by_document:
        test = "e-value by document, which allows for documents lost with all their queries"
    if not METHODS[rule.method].paired:
        return (
            f"With {sure}, {limits}. This speaks of queries drawn like {queries} (Learn-then-Test, fixed sequence, "
            f"{test})."
        )
    comparison = "against the same queries without the cut"
    return f"With {sure}, {limits}, {comparison} (paired non-inferiority on {queries}; {test})."


def of_strata(strata: StrataRecord) -> str:
    """State for which values of a field the guarantee holds by itself, and for which it does not."""
    certified = ", ".join(_value(stratum.value) for stratum in strata.strata)
    other_values = ", ".join(map(_value, strata.other_values))
    sentence = f"The same holds by itself for each of these values of {strata.field}: {certified}." if certified else ""
    if strata.others is None:
        return sentence
    if strata.others.tau_without_filter is not None:
        return f"{sentence} It holds for these values of {strata.field} taken together: {other_values}.".lstrip()
    missing = f"they have {strata.others.queries:,} queries in all, and {strata.others.queries_needed:,} are needed"
    return f"{sentence} Nothing is certified for these values of {strata.field}: {other_values}; {missing}.".lstrip()


def shortage(rule: ThresholdRule, certificates: Sequence[Certificate], levels: Sequence[Level] = ()) -> str:
    """State which limit could not be certified, and how many queries would be needed.

    There is a level for each requested largest loss, if there are several; a later one may be certified.
    """
    worst = max(certificates, key=lambda certificate: certificate.queries_needed - certificate.queries)
    quantity = _quantity(worst)
    if rule.on_average:
        quantity, sure = f"an expected {quantity.removeprefix('a ')}", ""
    else:
        sure = f" at {100 * rule.confidence:.4g} %"
        if rule.further_losses:
            sure += " together with " + " and ".join(f"{100 * loss:.4g} %" for loss in rule.further_losses)
    about, like = "", ""
    if worst.unit == "document" and worst.units is not None:
        about, like = f" about {documents_phrase(worst.units)}", " like these"
        if worst.count_at_most is not None:
            about += f" (each counted for at most {_queries(worst.count_at_most)})"
    certified = [f"{100 * level.max_loss:.4g} %" for level in levels if level.tau is not None]
    instead = f". A loss of {' or of '.join(certified)} can be: name it first" if certified else ""
    return (
        f"with {_queries(worst.queries)}{about} {quantity} of "
        f"{100 * worst.most:.4g} % cannot be certified{sure}; "
        f"{worst.queries_needed:,}{like} are needed{instead}"
    )


def impossible(
    rule: ThresholdRule,
    certificates: Sequence[Certificate],
    documents: int,
    largest: float | None,
    *,
    by_any_test: bool,
) -> str:
    """State that a limit cannot be certified with the documents of a corpus, however many queries are labelled.

    Documents that share queries count as one. `largest` is the largest share of the queries that are about one
    document; None if equal shares would not be enough. `by_any_test`: no test can certify it; else Taugate's cannot.
    """
    worst = min(certificates, key=lambda certificate: certificate.most)
    test = "no test can" if by_any_test else "the test by document cannot"
    reason = "they are too few" if largest is None else f"one of them has {100 * largest:.3g} % of the queries"
    return (
        f"Nothing is certified: with the {documents:,} documents of this corpus, {test} certify {_quantity(worst)} of "
        f"{100 * worst.most:.4g} % at {100 * rule.confidence:.4g} %, however many queries are labelled: a document may "
        f"lose all its queries, and {reason}."
    )


def capped(certificate: Certificate) -> str:
    """State for how many queries a document counts, as the beginning of a statement; "" without a cap."""
    cap = certificate.count_at_most
    return "" if cap is None else f"counting each document for at most {_queries(cap)}, "


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _quantity(certificate: Certificate) -> str:
    return "a share of empty replies" if certificate.limit == EMPTY else "a loss"


def _at_most(rule: ThresholdRule, certificates: Sequence[Certificate]) -> str:
    """State the one-sided upper limits of the losses of this one cut, in addition to the average of many."""
    # Conformal risk control allows ⌊δ·(n + 1)⌋ − 1 losses among n queries, a number known in advance. So if one limit
    # on losses of 0 and 1 sets τ and no two scores are equal, the limit holds as that of Learn-then-Test does.
    limits = [
        f"{'the share left empty' if item.limit == EMPTY else 'the loss'} is at most {100 * item.upper:.3g} %"
        for item in certificates
        if item.upper is not None
    ]
    return f"Of this one cut, with {100 * rule.confidence:.4g} % confidence, {' and '.join(limits)}."


def _value(value: str | int | float | bool | None) -> str:
    """Write a metadata value, truncated if it is long."""
    text = str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _limit(certificate: Certificate, k: int) -> str:
    share = f"{100 * certificate.most:.4g} %"
    if certificate.limit == EMPTY:
        return f"at most {share} of answerable queries are answered with nothing"
    if certificate.limit == NDCG:
        return f"NDCG@{k} is at most {certificate.most:.4g} lower than without the cut"
    lost = f"at most {share} of answerable queries"
    if certificate.found:  # δ is a share of all queries, including those that have nothing to lose
        lost += f" ({100 * certificate.most / certificate.found:.3g} % of those that find an answer)"
    return f"{lost} lose every relevant document of their top {k}"
