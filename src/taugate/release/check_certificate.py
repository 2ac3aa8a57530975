"""Recompute the figures of a release from its evidence.json: python3 -I check_certificate.py RELEASE.

It needs Python 3.10 and nothing else, names the first figure that differs, and exits with 1 then. docs/proof.md says
what each function shows, and what none does. Scores are float32, and so are comparisons with them.
"""

import hashlib
import json
import math
import struct
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median, pstdev
from types import SimpleNamespace
from typing import Any

NO_CUT, NEVER = -3.4028234663852886e38, math.inf  # a τ that drops nothing; the value of a query that no τ loses
NEEDS_MODEL, OTHER, AVERAGE = (
    {"probability"},
    {True: "relative", False: "gap"},
    {"high-probability": False, "expected-loss": True},
)
BETS = ((1 - 1e-6, 0.5), (0.95, 0.3), (0.7, 0.2)), ((1 - 1e-6, 0.5), (0.1, 0.3), (0.03, 0.2))  # stakes, shares; δ ≥ .5
DECIDE = {  # what a policy compares with τ
    "probability": lambda query: query.relevance,
    "relative": lambda query: [f32(score / query.scores[0]) if query.scores[0] > 0 else 0.0 for score in query.scores],
    "gap": lambda query: [f32(score - query.scores[0]) for score in query.scores],
    **dict.fromkeys(("similarity", "none"), lambda query: query.scores),
}


def f32(value):
    """Round once to float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def root(rising, low, high):
    """Return where a function of low…high reaches 0, to the last bit."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def beta(a, b, x):
    """Return the regularized incomplete beta function I_x(a, b), by its continued fraction."""
    if x == 0:
        return 0.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d, m = 1.0, 1 / (1 - (a + b) * x / (a + 1)), 1
    value, change = d, 0.0
    while abs(change - 1) > 1e-15:
        for step in (m * (b - m) / (a + 2 * m - 1), -(a + m) * (a + b + m) / (a + 2 * m + 1)):
            c, d = 1 + step * x / (a + 2 * m) / c, 1 / (1 + step * x / (a + 2 * m) * d)
            value, change = value * c * d, c * d
        m += 1
    return math.exp(front) * value / a


class Loss:
    """The queries that τ loses: those with a lower value. Each is a draw, or with `clusters` all of one together."""

    def __init__(self, values, tau, clusters=None, cap=None):
        self.n, self.exact, self.documents, together = len(values), clusters is None, [], {}
        for cluster, value in zip(clusters or range(len(values)), values):
            together.setdefault(cluster, []).append(value)
        for group in together.values():
            size = min(len(group), cap or len(group))
            lost, losable = sum(value < tau for value in group), sum(value < NEVER for value in group)
            self.documents.append((lost * size / len(group), losable * size / len(group), size))
        self.lost, self.losable, self.total = map(sum, zip(*self.documents))
        self.largest = max(size for *_, size in self.documents)

    def log_e(self, delta, requested=1.0, lossless=False, times=1.0):
        """Return the logarithm of what three bets on "the mean loss is below δ" have won, from 1."""
        stake_unit, bets = (
            max(1e-9, *(losable - min(delta, requested) * size for _, losable, size in self.documents)),
            [],
        )
        for stake, share in BETS[delta >= 0.5]:
            gains = (delta * size - (0 if lossless else lost) for lost, _, size in self.documents)
            bets.append(math.log(share) + times * sum(math.log1p(stake / stake_unit * gain) for gain in gains))
        return max(bets) + math.log(sum(math.exp(bet - max(bets)) for bet in bets))

    def p_value(self, delta, requested=1.0):
        """Return the p-value of "the mean loss is above δ": binomial by query, 1 / e-value by document."""
        if not self.exact:
            return math.exp(-max(0.0, self.log_e(delta, requested)))
        return beta(self.n - self.lost, self.lost + 1, 1 - delta) if self.lost < self.n else 1.0

    def shows(self, delta, confidence, average):
        """Return whether these queries show a mean loss of at most δ, on average or with a confidence."""
        if average:
            return self.lost + self.largest * (1 - delta) <= delta * self.total + 1e-9
        return self.p_value(delta) <= (1 - confidence) * (1 + 1e-9)

    def upper(self, confidence=0.95, requested=1.0):
        """Return the upper limit of the mean loss: the largest δ that is not excluded."""
        mean, alpha, high, low = self.lost / self.total, 1 - confidence, 1 - 1e-9, 0.0
        if mean >= high or (not self.exact and self.p_value(high, requested) > alpha):
            return 1.0
        if not self.exact:  # the last change of a p-value that need not fall everywhere
            scanned = [mean + (high - mean) * (1 - place / 63) ** 3 for place in range(64)]
            last = next(
                place for place in range(1, 64) if place == 63 or self.p_value(scanned[place], requested) > alpha
            )
            low, high = scanned[last], scanned[last - 1]
        return root(lambda delta: alpha - self.p_value(delta, requested), low or 1e-300, high)

    def needed(self, delta, confidence, average):
        """Return with how many queries like these δ could be shown if none were lost."""
        if average:
            return max(1, math.ceil(self.n / self.total * self.largest * (1 / delta - 1) - 1e-9))
        if self.exact:
            return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-delta) - 1e-9))
        lacking = math.log(1 - confidence)
        return math.ceil(root(lambda times: self.log_e(delta, 1.0, True, times) + lacking, 0.0, 1e6) * self.n)


def effect(rows):
    """Return the design effect; above 1.1, queries about one document count as one draw."""
    return sum(size**2 for size in Counter(row.cluster for row in rows).values()) / len(rows)


def share(happened, rows, all_rows):
    """Return a share with its lower and upper 95 % limits, by document if queries of one kind share documents."""
    clusters = [row.cluster for row in rows] if effect(all_rows) > 1.1 else None
    lower, upper = (Loss([event != side for event in happened], 1, clusters).upper() for side in (False, True))
    return {"mean": sum(happened) / len(happened), "lower": 1 - lower, "upper": upper}


def kept(query, kind, tau, rho):
    """Return which results a user gets: none below ρ, else those not below τ, and with a ρ the first."""
    passed = [tau is None or value >= f32(tau) for value in DECIDE[kind](query)]
    return (
        passed
        if rho is None
        else [query.refusal >= rho and (passes or not place) for place, passes in enumerate(passed)]
    )


def hit(query, shown=None):
    """Return whether a right result is among those that are shown, else among all."""
    return any(grade >= 1 and passes for grade, passes in zip(query.grades, shown or query.grades))


def values(rows, kind, refuse, empty):
    """Return the value of each query below which τ, or without a kind ρ, loses it, or with `empty` leaves it empty."""
    decisions, thresholds = [DECIDE[kind or "none"](query) for query in rows], []
    top = -NO_CUT if kind is None else max(map(max, decisions))
    for query, decided in zip(rows, decisions):
        value = max((score for score, grade in zip(decided, query.grades) if empty or grade >= 1), default=NEVER)
        if refuse and value < NEVER and query.refusal < refuse[-1]:  # lost to ρ; or to a planned ρ, unless all are kept
            value = query.refusal if kind is None else -NEVER if query.refusal < refuse[0] else NO_CUT
        elif refuse and value < NEVER:  # the first result is kept
            value = top if kind is None or empty or query.grades[0] >= 1 else value
        thresholds.append(value)
    return thresholds


def certify_limits(policy, rows, kind, refuse, delta, confidence):
    """Return the largest τ that passes each limit, tested from the lowest, with the certificates; or so for ρ."""
    average, cap = AVERAGE[policy["statement"]], policy["certificates"][0].get("count_at_most")
    clusters = [query.cluster for query in rows] if policy["document"] else None
    limits = [("accuracy", delta, values(rows, kind, refuse, False))]
    if "max_empty" in policy:
        limits.append(("empty", policy["max_empty"], values(rows, kind, refuse, True)))
    candidates, tau = sorted({value for *_, column in limits for value in column if NO_CUT <= value < NEVER}), None

    def fails(tau):
        return not all(
            Loss(column, tau, clusters, cap).shows(delta, confidence, average) for _, delta, column in limits
        )

    if passed := bisect_left(candidates, True, key=fails):
        tau = candidates[passed - 1]
    certificates = []
    for name, limit, column in limits if kind else ():
        loss = Loss(column, NO_CUT if tau is None else tau, clusters, cap)
        upper, squares = loss.upper(confidence, limit), sum(size**2 for *_, size in loss.documents)
        bound = (loss.lost + loss.largest) / (loss.total + loss.largest) if average else upper
        figures = {"limit": name, "most": limit, "queries": loss.n, "units": len(loss.documents), "upper": upper}
        figures |= {"loss": loss.lost / loss.total, "bound": bound, "effective_queries": loss.n * loss.total / squares}
        figures |= {"found": None if name == "empty" else loss.losable / loss.total}
        certificates.append(figures | {"queries_needed": loss.needed(limit, confidence, average)})
    return tau, certificates


def choose(policy, rows, zero, refuse, fits):
    """Return the certified policy that keeps the fewest results, and the highest ρ that is certified without a τ."""
    kinds = [*(NEEDS_MODEL if rows[0].relevance else ()), OTHER[zero], "similarity"][:2]
    kinds, entries, rhos, error = kinds if "choice" in policy else [policy["kind"]], [], [], 1 - policy["confidence"]
    losses = [level["max_loss"] for level in policy["levels"]] or [policy["max_loss"]]
    unfitted = [query for query in rows if query.role == "c"]
    for kind in kinds:
        certifying = unfitted if kind in NEEDS_MODEL or fits else rows
        alpha = error / 5 if kind == kinds[0] != kinds[-1] else error  # a fifth for the first of two
        confidence = 1 - alpha / (1 if AVERAGE[policy["statement"]] else len(losses))
        levels = [certify_limits(policy, certifying, kind, refuse, delta, confidence) for delta in losses]
        error -= (1 - confidence) * sum(
            all(limit["queries_needed"] <= len(certifying) for limit in limits) for _, limits in levels
        )
        rhos += [certify_limits(policy, certifying, None, refuse, losses[0], confidence)[0]] if refuse else []
        tau, limits = levels[0]
        masks = [kept(query, kind, tau, refuse[0] if refuse and tau is not None else None) for query in unfitted]
        shares = [sum(mask) / len(mask) for mask in masks] or [1.0]
        entry = {
            "kind": kind,
            "tau": tau,
            "queries": len(certifying),
            "confidence": 1 - alpha,
            "kept_fraction": fmean(shares),
        }
        rank = fmean(shares) if tau is not None else max(limit["queries_needed"] / len(certifying) for limit in limits)
        entry["standard_error"] = pstdev(shares) / math.sqrt(len(shares))
        entries.append(((tau is None, rank), entry, levels))
    _, best, levels = min(entries, key=lambda entry: entry[0])
    several = [{"tau": tau, **{name: limits[0][name] for name in ("loss", "bound")}} for tau, limits in levels]
    sizes = {"fit_queries": sum(query.role == "f" for query in rows), "certify_queries": best["queries"]}
    return max((rho for rho in rhos if rho is not None), default=NEVER), {
        "kind": "none" if best["tau"] is None else best["kind"],
        "tau": best["tau"],
        "certificates": levels[0][1],
        "levels": several if policy["levels"] else [],
        "choice": sizes | {"candidates": [entry for _, entry, _ in entries]} if "choice" in policy else None,
    }


def student(tail, degrees):
    """Return the quantile of Student's distribution below which a share `tail` lies."""
    return root(lambda t: beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2 - tail, -1e9, 0.0)


def further_field(rows, rho):
    """Return a lower limit of the share below ρ in a field that is not among these: analysis of variance."""
    fields, mean = {}, fmean(row.refusal for row in rows)
    for row in rows:
        fields.setdefault(row.field, []).append(row.refusal)
    n, groups = len(rows), len(fields)
    within = sum((score - fmean(scores)) ** 2 for scores in fields.values() for score in scores) / (n - groups)
    between = sum(len(scores) * (fmean(scores) - mean) ** 2 for scores in fields.values()) / (groups - 1)
    of_field = (between - within) * (groups - 1) / (n - sum(len(scores) ** 2 for scores in fields.values()) / n)
    highest = mean - student(0.05, groups - 1) * math.sqrt(max(0.0, of_field) + between / n)
    return math.erfc((highest - rho) / math.sqrt(2 * within)) / 2


def lowest_rho(right, kinds, lost, without=None):
    """Return the lowest ρ that refuses nine in ten questions of each kind, or the highest that loses few right answers.

    Args: right, the queries with a right result; lost, their share that may be lost; without, a fold that is left out.
    """

    def choosing(rows):
        return sorted(row.refusal for row in rows if row.chooses and row.cluster % 50 != without)

    answers, named = choosing(right), ["off_topic", "request"]
    named += ["unanswerable"] if lost * (len(answers) + 1) >= 1 else []
    choosers = [scores[math.ceil(0.9 * len(scores)) - 1] for name in named if (scores := choosing(kinds.get(name, [])))]
    bits = [struct.unpack("<i", struct.pack("<f", score))[0] for score in choosers]  # the next float32 refuses it
    rho = max(
        (struct.unpack("<f", struct.pack("<i", bit + (1 if bit >= 0 else -1)))[0] for bit in bits), default=-NEVER
    )
    if len(answers) < 2:
        return rho
    if (place := math.floor(lost * (len(answers) + 1) + 1e-9)) > 0:
        return min(rho, answers[place - 1])
    below = [score - median(answers) for score in answers if score <= median(answers)]
    deviation = math.sqrt(sum(score**2 for score in below) / max(1, sum(score < 0 for score in below)))
    deviation *= math.sqrt(1 + 1 / len(answers))
    return min(rho, f32(min(answers[0], median(answers) + student(lost, max(2, len(answers) / 3 - 1)) * deviation)))


def refusing(right, kinds, lost, rho=None, fixed=False):
    """Return ρ as these queries choose it, and which are refused: those that choose, by the ρ of other folds."""
    chosen = lowest_rho(right, kinds, lost)
    used = f32(chosen if rho is None else rho)
    folds = [used if fixed else f32(lowest_rho(right, kinds, lost, fold)) for fold in range(50)]
    return chosen, lambda row: row.refusal < (folds[row.cluster % 50] if row.chooses else used)


def refusals(manifest, evidence, rows):
    """Return the planned ρ, and how many questions and right answers are refused."""
    policy, record, fixed = manifest["policy"], manifest["refusal"], evidence["given_rho"]
    kinds, certifies = (
        {name: rows_of(columns) for name, columns in evidence["questions"].items()},
        "statement" in policy,
    )
    limiting = "cf" if not certifies else "h" if "h" in evidence["answerable"]["role"] else "f"
    lost, enough = min(0.015, policy["max_loss"] / 16) if certifies else 0.015, not record["provisional"]
    right = [query for query in rows if hit(query)]
    for query in right:
        query.chooses = query.role in limiting and (certifies or enough)
    lowered = evidence["planned_rho"] is not None
    chosen, *tests = refusing(right, kinds, lost, record["rho"], fixed or lowered)
    if certifies and right and not fixed:  # what would be refused if no loss were certified
        usual = [SimpleNamespace(**vars(query) | {"chooses": enough and query.role in "cf"}) for query in right]
        tests.append(refusing(usual, kinds, 0.015)[1])
    counted = {
        name: [row for row in questions if not (row.field and row.chooses)] or questions
        for name, questions in kinds.items()
    }
    shipped, counts = [row for questions in counted.values() for row in questions if row.field], {}
    further = further_field(shipped, record["rho"]) if shipped else 1.0
    for name, questions in counted.items():
        gone = [[test(row) for row in questions] for test in tests]
        lower = share(gone[0], questions, kinds[name])["lower"]
        counts[name] = {
            "queries": len(questions),
            "refused": sum(gone[0]),
            "uncertified": sum(gone[1]) if gone[1:] else None,
        }
        counts[name]["lower"] = min(lower, further) if questions[0].field else lower
    nothing = {"mean": 0.0, "lower": 0.0, "upper": 1.0}
    lost = share([tests[0](query) for query in right], right, rows) if right else nothing
    return record["rho"] if fixed else chosen, {"evidence": counts, "lost": lost}


def kept_of_part(rows, empty, kind, tau, rho):
    """Return what is kept of a part of the queries, and how well its scores tell both kinds of query apart."""

    def ranked(queries):
        return sorted(max(DECIDE[kind](query)) if rho is None else query.refusal for query in queries)

    masks, answered, refused = [kept(query, kind, tau, rho) for query in rows], ranked(rows), ranked(empty)
    wins = sum(bisect_left(refused, score) + bisect_right(refused, score) for score in answered) / 2
    without_answer = ranked([*empty, *(query for query in rows if not hit(query))])
    both = sorted(answered + refused)
    risks = [
        (len(without_answer) - bisect_left(without_answer, score)) / (len(both) - bisect_left(both, score))
        for score in both
    ]
    shares = [
        1 - fmean(any(kept(query, kind, tau, rho)) for query in queries) if queries else None
        for queries in (rows, empty)
    ]
    figures = {"answerable_empty": shares[0], "unanswerable_empty": shares[1]}
    figures |= {"auroc": wins / len(rows) / len(empty), "aurc": fmean(risks)} if empty else {}
    return {"kept_fraction": fmean(is_kept for mask in masks for is_kept in mask), "abstention": figures}


def rows_of(columns):
    """Return the rows of columns, with None for a column that is missing; a missing result is below all others."""
    rows = [SimpleNamespace(**dict.fromkeys(columns)) for _ in columns["cluster"]]
    for name, column in columns.items():
        for row, value in zip(rows, column or ()):
            scores = value if isinstance(value, list) else [value]
            if name in ("scores", "relevance", "refusal"):
                scores = [-NEVER if score is None else f32(score) for score in scores]
            setattr(row, name, scores if isinstance(value, list) else scores[0])
    return rows


def derive(manifest, evidence):
    """Return all figures that can be recomputed, by their places in the manifest."""
    policy, refusal = manifest["policy"], manifest.get("refusal", {})
    rows, empty, planned = rows_of(evidence["answerable"]), rows_of(evidence["unanswerable"]), evidence["planned_rho"]
    calibration, heldout = ([query for query in rows if (query.role == "h") is out] for out in (False, True))
    tau, rho = policy.get("tau"), f32(refusal["rho"]) if "rho" in refusal else None
    tau, document, highest = None if tau == NO_CUT else tau, effect(rows) > 1.1, NEVER
    units = {"unit": "document" if document else "query", "design_effect": effect(rows)}
    units["units"] = len({query.cluster for query in rows}) if document else len(rows)
    derived = {"data": {"answerable": len(rows), "unanswerable": len(empty)}, "evidence": units, "metrics": {}}
    for name, part in (("calibration", calibration), ("heldout", heldout)):
        if part:
            derived["metrics"][name] = kept_of_part(part, empty, policy["kind"], tau, rho)
    default = rho is not None and "limits" not in refusal
    # A named policy without a τ does not say which it was; what an earlier release certified is not shown here.
    chose = ("tau" in policy or "choice" in policy) and not {"update", "strata"} & {*manifest}
    if chose and policy.get("statement") in AVERAGE and policy["metric"] == "accuracy":
        refuse = [rho, *([] if planned is None else [f32(planned)])] if default else []
        rule, fits = policy | {"document": document}, refuse and not heldout
        highest, derived["policy"] = choose(rule, calibration, evidence["zero"], refuse, fits)
    if default:
        chosen, derived["refusal"] = refusals(manifest, evidence, rows)
        derived["refusal"]["rho"] = min(chosen, highest)
    right = [query for query in heldout or rows if hit(query)]
    if right:
        lost = [not hit(query, kept(query, policy["kind"], tau, rho)) for query in right]
        counts = {"heldout": bool(heldout), "answers": len(lost), "lost": sum(lost)}
        derived["checked"] = share(lost, right, rows) | counts
    return derived


def unequal(place: str, ours: Any, stated: Any) -> Iterator[str]:
    """Yield each figure that differs from the stated one, beyond 1e-9 of it."""
    if isinstance(ours, list) and isinstance(stated, list) and len(ours) == len(stated):
        ours, stated = dict(enumerate(ours)), dict(enumerate(stated))
    if isinstance(ours, dict) and isinstance(stated, dict):
        for name in [name for name in ours if name in stated]:  # an earlier version does not state all
            yield from unequal(f"{place}.{name}", ours[name], stated[name])
    elif ours != stated:
        numbers = isinstance(ours, float) and isinstance(stated, int | float)
        if not numbers or abs(ours - stated) > max(1e-9 * abs(ours), 1e-14):
            yield f"{place}: stated {stated}, recomputed {ours}"


def recompute(release: Path) -> tuple[object, list[str]]:
    """Return the recomputed figures of a release, and a line for each one that differs."""
    manifest = json.loads((release / "manifest.json").read_bytes())
    if "evidence.json" not in manifest["files"]:
        return {}, ["evidence.json: missing, because an earlier version wrote the release; calibrate again"]
    content = (release / "evidence.json").read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest["files"]["evidence.json"]["sha256"]:
        return {}, ["evidence.json: not the file that the manifest names"]
    try:
        derived = derive(manifest, json.loads(content))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return {}, [f"evidence.json: nothing can be recomputed from it ({error!r})"]
    return derived, list(unequal("manifest", derived, manifest))


def leaves(derived: object) -> int:
    """Return the number of figures."""
    if isinstance(derived, dict):
        return sum(leaves(value) for value in derived.values())
    return sum(leaves(value) for value in derived) if isinstance(derived, list) else 1


if __name__ == "__main__":
    figures, different = recompute(Path(sys.argv[1]))
    print(different[0] if different else f"ok: {leaves(figures)} figures are those of the evidence")
    sys.exit(bool(different))
