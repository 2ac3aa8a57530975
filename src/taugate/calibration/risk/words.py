"""A guarantee in one plain sentence, or what is missing where nothing could be certified."""

from collections.abc import Sequence

from taugate.calibration.metrics.clusters import documents_in_words
from taugate.calibration.settings.rules import ThresholdRule
from taugate.retrieval.release.evidence import Certificate, Level, StrataRecord

_LONGEST = 40  # characters of a metadata value that a sentence repeats
ACCURACY, NDCG, EMPTY = "accuracy", "ndcg", "empty"
FIXED = "Nothing is certified: the threshold was given, not chosen here."
WITHOUT_REFUSALS = "This counts what the cut drops; queries that are refused as a whole come on top of it."


def papers(k: int) -> str:
    """Say what the method bootstrap gives, at K = `k`."""
    return (
        f"Nothing is certified: the mean bootstrapped metric at K = {k} stays within its own 95 % interval, which "
        "is not being shown to be worse (thresholds paper §2.2)."
    )


def guarantee(rule: ThresholdRule, certificates: Sequence[Certificate], k: int) -> str:
    """Say what is guaranteed, to whom and by which test.

    Args:
        rule: That was certified.
        certificates: Of its limits, that of the metric first.
        k: K, results of a query.
    """
    what = " and ".join(_limit(certificate, k) for certificate in certificates)
    first = certificates[0]
    by_document = first.unit == "document" and first.units is not None
    effect = f"design effect {first.queries / first.effective_queries:.3g}"
    of = f" about {documents_in_words(first.units)} ({effect})" if first.units and by_document else ""
    queries = f"the {first.queries:,} queries{of} that certified it"
    sure = f"{100 * rule.confidence:.4g} % confidence"
    if rule.further_losses:
        losses = " and ".join(f"{100 * loss:.4g} %" for loss in (rule.max_loss, *rule.further_losses))
        sure += f" (for losses of {losses} at once)"
    if rule.statement == "expected-loss":
        return (
            f"On average over calibrations like this one, {what}, for queries drawn like {queries} (conformal risk "
            f"control, expected loss). {_at_most(rule, certificates)}"
        )
    test = "exact binomial" if rule.metric == "accuracy" else "Hoeffding–Bentkus for NDCG"
    if by_document:
        test = "e-value by document, which allows for documents lost with all their queries"
    if rule.method == "risk-control":
        return (
            f"With {sure}, {what}. This speaks of queries drawn like {queries} (Learn-then-Test, fixed sequence, "
            f"{test})."
        )
    return (
        f"With {sure}, {what}, against the same queries without the cut (paired non-inferiority on {queries}; {test})."
    )


def of_strata(strata: StrataRecord) -> str:
    """Say for which values of a field the guarantee holds by itself, and for which not.

    Args:
        strata: Their record.
    """
    held = ", ".join(_value(each.value) for each in strata.strata)
    others = ", ".join(map(_value, strata.other_values))
    said = f"The same holds by itself for each of these values of {strata.field}: {held}." if held else ""
    if strata.others is None:
        return said
    if strata.others.tau_without_filter is not None:
        return f"{said} It holds for these values of {strata.field} taken together: {others}.".lstrip()
    few = f"they have {strata.others.queries:,} queries in all, and {strata.others.queries_needed:,} are needed"
    return f"{said} Nothing is certified for these values of {strata.field}: {others}; {few}.".lstrip()


def shortage(rule: ThresholdRule, certificates: Sequence[Certificate], levels: Sequence[Level] = ()) -> str:
    """Say which limit could not be certified, and with how many queries it could be.

    Args:
        rule: That was tried.
        certificates: Of its limits.
        levels: Of each largest loss asked for, where there are several; a later one may be certified.
    """
    worst = max(certificates, key=lambda each: each.queries_needed - each.queries)
    what = "a share of empty replies" if worst.limit == EMPTY else "a loss"
    if rule.statement == "expected-loss":
        what, sure = f"an expected {what.removeprefix('a ')}", ""
    else:
        sure = f" at {100 * rule.confidence:.4g} %"
        if rule.further_losses:
            sure += " together with " + " and ".join(f"{100 * loss:.4g} %" for loss in rule.further_losses)
    about, like = "", ""
    if worst.unit == "document" and worst.units is not None:
        about, like = f" about {documents_in_words(worst.units)}", " like these"
    certified = [f"{100 * level.max_loss:.4g} %" for level in levels if level.tau is not None]
    instead = f". A loss of {' or of '.join(certified)} can be: name it first" if certified else ""
    return (
        f"with {worst.queries:,} {'query' if worst.queries == 1 else 'queries'}{about} {what} of "
        f"{100 * worst.most:.4g} % cannot be certified{sure}; "
        f"{worst.queries_needed:,}{like} are needed{instead}"
    )


def _at_most(rule: ThresholdRule, certificates: Sequence[Certificate]) -> str:
    """Say what this one cut may lose, beside the average of many: one-sided upper limits.

    Conformal risk control admits ⌊δ·(n + 1)⌋ − 1 losses among n queries, a number known beforehand. So the limit holds
    as that of Learn-then-Test does, where one limit on losses of 0 and 1 sets τ and no two scores are equal.
    """
    limits = [
        f"{'the share left empty' if each.limit == EMPTY else 'the loss'} is at most {100 * each.upper:.3g} %"
        for each in certificates
        if each.upper is not None
    ]
    return f"Of this one cut, with {100 * rule.confidence:.4g} % confidence, {' and '.join(limits)}."


def _value(value: str | int | float | bool | None) -> str:
    """Write a value of the metadata, cut short where it is long."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _limit(certificate: Certificate, k: int) -> str:
    share = f"{100 * certificate.most:.4g} %"
    if certificate.limit == EMPTY:
        return f"at most {share} of answerable queries are answered with nothing"
    if certificate.limit == NDCG:
        return f"NDCG@{k} is at most {certificate.most:.4g} lower than without the cut"
    lost = f"at most {share} of answerable queries"
    if certificate.found:  # δ is a share of all queries, also of those that find nothing and have nothing to lose
        lost += f" ({100 * certificate.most / certificate.found:.3g} % of those that find an answer)"
    return f"{lost} lose every relevant document of their top {k}"
