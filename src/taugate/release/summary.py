"""The two lines on a release that are the same on every screen: what is certified, and what was checked."""

import re
from collections.abc import Iterator

from taugate.policy.policy import POLICIES
from taugate.release.evidence import Certificate
from taugate.release.manifest import ReleaseManifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.refusal_records import QuestionKind, RefusalRecord

# Names of the kinds of questions that should be refused; near misses are in the report alone.
_KINDS: dict[QuestionKind, str] = {"off_topic": "off-topic", "request": "short", "unanswerable": "unanswerable"}
_SHIPPED = {"off_topic", "request"}
_LINE = re.compile(r"^(Certified|Checked) +(\S.*)$", re.MULTILINE)
_COLUMNS = len("Certified") + 3
_NOTHING = "nothing; --max-loss 0.02 asks for it"
_SURE: dict[str | None, str] = {
    "expected-loss": "on average",
    "labels": "{:.4g} % confidence, estimated from few labels",
}
_WITHDRAWN = {
    "inherited": "nothing: the documents have changed since the calibration",
    "adjusted": "nothing: the threshold was given, not chosen",
}


def summary_of(manifest: ReleaseManifest) -> str:
    """Write both lines, from records that hold no summary yet."""
    lines = {"Certified": _certified(manifest), "Checked": _checked(manifest)}
    return "\n".join(f"{label:{_COLUMNS}}{text}" for label, text in lines.items())


def summary_lines(summary: str) -> dict[str, str]:
    """Return both lines by their labels; the sentence of an earlier version is returned whole, as "Summary"."""
    return dict(_LINE.findall(summary)) or ({"Summary": summary} if summary else {})


def certificate_cost(manifest: ReleaseManifest) -> str | None:
    """Say how many questions fewer are refused because a loss is certified, before → after; None without a loss."""
    counted = {} if manifest.refusal is None else manifest.refusal.evidence
    shown = [
        f"{kind.uncertified:,} → {kind.refused:,} of {kind.queries:,} {_KINDS[name]}"
        for name, kind in counted.items()
        if name in _SHIPPED and kind.uncertified is not None
    ]
    return f"{_listed(shown)} questions refused, without → with the certificate" if shown else None


def _certified(manifest: ReleaseManifest) -> str:
    if manifest.state in _WITHDRAWN:
        return _WITHDRAWN[manifest.state]
    policy = manifest.policy
    promises = [*_loss(manifest), *_refusals(manifest.refusal)]
    if not promises:
        failed = f"nothing: these labels cannot show a loss of {_percent(policy.max_loss or 0)}"
        return _NOTHING if policy.statement is None else failed
    of = "nothing about people's questions; of questions like these, " if manifest.state == "provisional" else ""
    return of + "; ".join(promises)


def _loss(manifest: ReleaseManifest) -> Iterator[str]:
    """Yield the certified limit of lost answers, and of empty replies if it was requested."""
    policy = manifest.policy
    if policy.statement is None or policy.tau is None:
        return
    # Estimates from few labels, and certificates beside limits of refusals, are of the cut alone.
    cut_alone = manifest.refusal is not None and manifest.refusal.comes_on_top(policy.statement)
    limits = " and ".join(_limit(limit, policy.k, " to τ" if cut_alone else "") for limit in policy.certificates)
    yield f"{limits} ({_evidence(policy)})"


def _evidence(policy: PolicyRecord) -> str:
    first = policy.certificates[0]
    sure = _SURE.get(policy.statement, "{:.4g} % confidence").format(100 * policy.confidence)
    cap = "" if first.count_at_most is None else f", at most {first.count_at_most:,} about a document"
    return f"{sure}, {first.queries:,} questions{cap}"


def _limit(certificate: Certificate, k: int, cause: str) -> str:
    share = f"at most {100 * certificate.most:.4g} of 100 questions"
    return {
        "accuracy": f"{share} lose their answer{cause}",
        "ndcg": f"NDCG@{k} falls by at most {certificate.most:.4g}",
        "empty": f"{share} with an answer get no result",
    }[certificate.limit]


def _refusals(record: RefusalRecord | None) -> Iterator[str]:
    """Yield the certified limits of both errors of refusing queries."""
    if record is None or record.limits is None or not record.certified:
        return
    answered, refused = record.limits.answered, record.limits.refused
    yield (
        f"at most {_percent(answered.promised)} of unanswerable questions answered and {_percent(refused.promised)} of "
        f"answerable ones refused ({100 * record.limits.confidence:.4g} % confidence, {answered.queries:,} and "
        f"{refused.queries:,} questions)"
    )


def _checked(manifest: ReleaseManifest) -> str:
    checked, clauses = manifest.checked, []
    if checked is not None:
        queries = "held-out" if checked.heldout else "calibration"
        clauses.append(f"{checked.lost:,} of {checked.answers:,} {queries} answers lost")
    if refused := _refused(manifest):
        clauses.append(refused)
    dropped = 1 - [*manifest.metrics.values()][-1].kept_fraction
    return "; ".join([*clauses, f"{_percent(dropped)} of the results dropped"])


def _refused(manifest: ReleaseManifest) -> str | None:
    """Count the refused questions of each kind that should be."""
    refusal = manifest.refusal
    if manifest.answer_threshold is None and (refusal is None or POLICIES[manifest.policy.kind].keeps_best):
        return "refuses nothing: every question gets a result"
    counted = {} if refusal is None else refusal.evidence
    kinds = [f"{kind.refused:,} of {kind.queries:,} {_KINDS[name]}" for name, kind in counted.items() if name in _KINDS]
    provisional = " (provisional)" if refusal is not None and refusal.provisional else ""
    return f"{_listed(kinds)} questions refused{provisional}" if kinds else None


def _listed(clauses: list[str]) -> str:
    *first, last = clauses
    return f"{', '.join(first)} and {last}" if first else last


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"
