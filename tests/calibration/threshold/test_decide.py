"""Who certifies: all queries a policy that fits nothing, the model those that it was not fitted on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.splits import FEWEST_CALIBRATING, QueryRoles
from taugate.calibration.relevance.model import estimate_relevance
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import alternatives, bootstrap_threshold, decide_policy
from taugate.calibration.threshold.policy_choice import CertifiablePolicy
from taugate.errors import InputError
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import relative
from taugate.retrieval.policy.relevance import features
from taugate.retrieval.release.manifest import PolicyRecord
from tests.calibration.relevance.test_relevance_fit import QUERIES, K, World, unit

AUTO = ThresholdRule("risk-control", "auto", max_loss=0.1)
EXPECTED = replace(AUTO, guarantee="expected-loss")
ALONE = SamplingUnits.from_labels(np.arange(QUERIES))  # no two queries share a document


def evidence(world: World, calibration: np.ndarray | None = None) -> CalibrationQueries:
    """As the study gathers it."""
    members = np.arange(QUERIES) if calibration is None else calibration
    parts = QueryRoles.draw(members, ALONE, 0) if len(members) >= FEWEST_CALIBRATING else None
    estimated, relevance = None, (None, None)
    if parts is not None:
        estimated = estimate_relevance(
            world.judged, world.queries, world.unanswerable, parts, world.documents, world.lengths
        )
        relevance = (estimated.answerable, estimated.unanswerable) if estimated else (None, None)
    scored = ScoredQueries(world.judged, world.unanswerable[0], *relevance)
    rows = np.random.default_rng(0).integers(0, len(members), size=(50, 40))
    return CalibrationQueries(scored, members, rows, parts, estimated, ALONE, 0)


@pytest.fixture(scope="module")
def known() -> CalibrationQueries:
    return evidence(World())


def decisions(given: CalibrationQueries, kind: str) -> np.ndarray:
    scores = given.scored.judged.top.scores
    if kind == "probability":
        assert given.scored.relevance is not None
        return given.scored.relevance
    return relative(scores) if kind == "relative" else scores


def literal_tau(
    given: CalibrationQueries, kind: str, members: np.ndarray, passes: Callable[[int, int], bool]
) -> float | None:
    """The largest decision score of a relevant result that `passes` with how many of `members` it loses."""
    grades, scores = given.scored.judged.grades, decisions(given, kind)
    best = [
        max(score for grade, score in zip(grades[q], scores[q].tolist(), strict=True) if grade >= 1)
        for q in members.tolist()
        if (grades[q] >= 1).any()
    ]
    ok = [tau for tau in sorted(set(best)) if passes(sum(not each >= tau for each in best), len(members))]
    return max(ok, default=None)


def exact(delta: float, error: float = 0.05) -> Callable[[int, int], bool]:
    return lambda lost, n: float(stats.binom.cdf(lost, n, delta)) <= error


def conformal(delta: float) -> Callable[[int, int], bool]:
    return lambda lost, n: (lost + 1) / (n + 1) <= delta + 1e-12


@pytest.mark.parametrize("kind", ["similarity", "relative"])
@pytest.mark.parametrize(("guarantee", "passes"), [("high-probability", exact(0.1)), ("expected-loss", conformal(0.1))])
def test_a_policy_named_beforehand_is_certified_by_every_calibration_query(
    known: CalibrationQueries, kind: str, guarantee: str, passes: Callable[[int, int], bool]
) -> None:
    found = decide_policy(ThresholdRule("risk-control", kind, guarantee=guarantee, max_loss=0.1), known)
    assert (found.kind, found.choice) == (kind, None)
    assert found.certificates[0].queries == QUERIES
    assert found.tau == literal_tau(known, kind, known.calibration, passes)


def test_probability_is_certified_by_those_that_did_not_fit_it(known: CalibrationQueries) -> None:
    found = decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), known)
    unseen = np.sort(np.concatenate([known.roles.choose, known.roles.certify]))
    assert set(unseen.tolist()).isdisjoint(known.roles.fit.tolist())
    assert (found.kind, found.choice, found.certificates[0].queries) == ("probability", None, len(unseen))
    assert found.tau == literal_tau(known, "probability", unseen, exact(0.1))


def divided(given: CalibrationQueries, delta: float) -> dict[str, tuple[np.ndarray, float]]:
    """Who certifies each of two policies, with which error: half for probability, what it cannot use for relative."""
    rest = given.roles.rest
    used = max((p for lost in range(len(rest)) if (p := stats.binom.cdf(lost, len(rest), delta)) <= 0.025), default=0.0)
    return {"probability": (rest, 0.025), "relative": (given.calibration, 0.05 - used)}


@pytest.mark.parametrize("delta", [0.06, 0.1, 0.2, 0.4])
def test_auto_certifies_two_policies_with_the_error_divided_and_takes_the_one_that_keeps_fewest(
    known: CalibrationQueries, delta: float
) -> None:
    found = decide_policy(replace(AUTO, max_loss=delta), known)
    taus, kept = {}, {}
    for kind, (members, error) in divided(known, delta).items():
        taus[kind] = literal_tau(known, kind, members, exact(delta, error))
        kept[kind] = (decisions(known, kind)[known.roles.rest] >= np.float32(taus[kind] or 0)).mean()
    assert found.kind == min(kept, key=kept.get)
    assert found.tau == taus[found.kind]
    said = {each.kind: each for each in found.choice.candidates}
    assert {kind: each.tau for kind, each in said.items()} == taus
    assert {kind: each.kept_fraction for kind, each in said.items()} == pytest.approx(kept)
    assert found.certificates[0].queries == found.choice.certify_queries == len(divided(known, delta)[found.kind][0])
    assert (found.choice.fit_queries, found.choice.choose_queries) == (len(known.roles.fit), 0)


def two_equal_policies(rng: np.random.Generator, queries: int) -> CalibrationQueries:
    """Either loses τ of all queries, whatever the other loses: the only relevant result is the second of two."""
    scores = np.column_stack([np.ones(queries), rng.random(queries)]).astype(np.float32)
    top = TopK(scores, np.zeros((queries, 2), dtype=np.int64))
    grades = np.tile([0, 1], (queries, 1))
    relevance = np.column_stack([np.ones(queries), rng.random(queries)]).astype(np.float32)
    units = SamplingUnits.from_labels(np.arange(queries))
    scored = ScoredQueries(JudgedQueries(top, grades, np.ones(queries), scores[:, 1]), top, relevance, relevance)
    parts = QueryRoles(np.arange(2), np.arange(2, 4), np.arange(4, queries), np.arange(2))
    return CalibrationQueries(scored, np.arange(queries), np.zeros((1, 1), np.int64), parts, None, units, 0)


def test_taking_the_policy_that_keeps_fewest_errs_no_more_often_than_promised() -> None:
    """Of two policies the one that looks best is the one that was lucky: undivided, the error would be nearly twice."""
    rng, trials, delta = np.random.default_rng(0), 400, 0.1
    auto, undivided = 0, 0
    for _ in range(trials):
        given = two_equal_policies(rng, 321)  # for which the exact test of one policy errs in .0499 of the cases
        auto += (decide_policy(AUTO, given).tau or 0.0) > delta
        alone = [CertifiablePolicy(kind, given.calibration, AUTO) for kind in ("relative", "probability")]
        undivided += max(each.certify(given)[0].tau or 0.0 for each in alone) > delta
    assert auto / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)
    assert undivided / trials > 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_what_one_policy_cannot_use_of_the_error_the_other_has() -> None:
    """With 30 of 40 queries to certify it, probability cannot pass at 6 %; relative then needs no more than alone."""
    given = evidence(World(), np.arange(60))
    found = decide_policy(replace(AUTO, max_loss=0.05), given)
    alone = decide_policy(replace(AUTO, max_loss=0.05, policy="relative"), given)
    assert (found.kind, found.tau, found.certificates) == ("relative", alone.tau, alone.certificates)
    assert found.tau is not None


def test_a_limit_that_cannot_be_passed_leaves_all_of_the_error_to_the_other_policy(known: CalibrationQueries) -> None:
    """63 queries are enough for a loss of 30 % and too few for 4 % of empty replies."""
    rule = replace(AUTO, max_loss=0.3, max_empty=0.04)
    found, alone = decide_policy(rule, known), decide_policy(replace(rule, policy="relative"), known)
    assert (found.kind, found.tau, found.certificates) == ("relative", alone.tau, alone.certificates)
    assert found.tau is not None


def test_auto_for_an_expected_loss_is_certified_by_the_third_part_alone(known: CalibrationQueries) -> None:
    """Nothing that errs can be divided: the choice is made before, by queries that certify nothing."""
    found = decide_policy(EXPECTED, known)
    sizes = (found.choice.fit_queries, found.choice.choose_queries, found.choice.certify_queries)
    assert sizes == (len(known.roles.fit), len(known.roles.choose), len(known.roles.certify))
    assert sum(sizes) == QUERIES
    assert found.certificates[0].queries == len(known.roles.certify)
    assert found.tau == literal_tau(known, found.kind, known.roles.certify, conformal(0.1))
    assert {each.kind for each in found.choice.candidates} == {"probability", "relative", "similarity"}


def roll(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = np.roll(world.judged.grades[rows], 1, axis=0)


def zero(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = 0


def reverse(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = world.judged.grades[rows][:, ::-1]


def everything_is_relevant(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = 1


@pytest.mark.parametrize("corrupt", [roll, reverse, everything_is_relevant])
def test_what_certifies_has_no_say_in_what_is_certified(known: CalibrationQueries, corrupt) -> None:
    """Other labels, other texts even, of the third part change neither the order of results nor the choice."""
    world = World()
    corrupt(world, world.parts.certify)
    rng = np.random.default_rng(0)
    world.queries[world.parts.certify] = unit(rng.standard_normal((len(world.parts.certify), world.queries.shape[1])))
    changed = evidence(world)
    before, after = decide_policy(EXPECTED, known), decide_policy(EXPECTED, changed)
    assert changed.estimated.fit.model.weights.tobytes() == known.estimated.fit.model.weights.tobytes()
    assert after.choice == before.choice
    if after.kind != "none":
        assert after.kind == before.kind
    assert (after.tau, after.certificates) != (before.tau, before.certificates)


def test_the_recalibration_changes_no_certified_cut(known: CalibrationQueries) -> None:
    """It was fitted on the queries that certify, too; without it the same results are kept, on the same evidence."""
    estimated, judged = known.estimated, known.scored.judged
    world = World()
    documents = estimated.relevance.background.documents[judged.top.positions]
    values = features(judged.top.scores, estimated.relevance.background.of_queries(world.queries), documents, K)
    raw = estimated.fit.model.probability(values).astype(np.float32)
    assert np.abs(raw - estimated.answerable).max() > 0.01
    unscaled = replace(
        known,
        estimated=replace(estimated, answerable=raw),
        scored=ScoredQueries(judged, known.scored.unanswerable, raw, None),
    )
    for policy in ("auto", "probability"):
        rule = ThresholdRule("risk-control", policy, max_loss=0.1)
        before, after = decide_policy(rule, unscaled), decide_policy(rule, known)
        assert (before.kind, before.certificates) == (after.kind, after.certificates)
        if before.kind == "probability":
            assert before.tau != after.tau
            assert ((raw >= np.float32(before.tau)) == (estimated.answerable >= np.float32(after.tau))).all()


@pytest.mark.parametrize("corrupt", [roll, reverse, everything_is_relevant])
def test_a_bad_choice_cannot_break_the_guarantee(known: CalibrationQueries, corrupt) -> None:
    """Labels of the first two parts may be nonsense: what is said of the third one remains true of it."""
    world = World()
    corrupt(world, np.concatenate([world.parts.fit, world.parts.choose]))
    changed = evidence(world)
    found = decide_policy(EXPECTED, changed)
    (certificate,) = found.certificates
    kept = decisions(changed, found.kind)[changed.roles.certify] >= np.float32(found.tau)
    relevant = world.judged.grades[changed.roles.certify] >= 1
    lost = int((relevant.any(axis=1) & ~(relevant & kept).any(axis=1)).sum())
    assert certificate.loss == lost / len(changed.roles.certify)
    assert conformal(0.1)(lost, len(changed.roles.certify))
    assert certificate.bound <= 0.1
    assert found.tau == literal_tau(changed, found.kind, changed.roles.certify, conformal(0.1))
    assert found.choice != decide_policy(EXPECTED, known).choice


def test_a_labelled_query_outside_of_calibration_changes_nothing() -> None:
    calibration = np.arange(0, QUERIES, 2)
    world = World()
    before = decide_policy(AUTO, evidence(world, calibration))
    everything_is_relevant(world, np.arange(1, QUERIES, 2))
    assert decide_policy(AUTO, evidence(world, calibration)) == before


def test_too_few_queries_give_no_policy_and_the_number_that_it_takes(known: CalibrationQueries) -> None:
    found = decide_policy(replace(AUTO, max_loss=0.01), known)
    assert (found.kind, found.tau, found.psi, found.k) == ("none", None, None, K)
    assert f"with {QUERIES} queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in found.guarantee
    assert (found.certificates[0].queries, found.certificates[0].queries_needed) == (QUERIES, 299)
    assert {each.tau for each in found.choice.candidates} == {None}
    named = decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.01), known)
    assert f"with {QUERIES} queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in named.guarantee


def test_fewer_than_30_queries_hold_no_model() -> None:
    """`probability` is refused with what to do; `auto` is `relative`, whichever way it is to be certified."""
    world = World()
    with pytest.raises(InputError) as refusal:
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), evidence(world, np.arange(29)))
    for part in ("--policy probability", "30", "29", "label more"):
        assert part in str(refusal.value)
    assert (
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.5), evidence(world, np.arange(30))).tau
        is not None
    )
    for rule in (ThresholdRule("risk-control", "auto", max_loss=0.2), replace(EXPECTED, max_loss=0.2)):
        auto = decide_policy(rule, evidence(world, np.arange(29)))
        named = decide_policy(replace(rule, policy="relative"), evidence(world, np.arange(29)))
        assert (auto.kind, auto.tau, auto.certificates) == ("relative", named.tau, named.certificates)
        assert auto.choice is None
    assert (
        decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.2), evidence(world, np.arange(29))).tau
        is not None
    )


@pytest.mark.parametrize("policy", ["auto", "similarity", "relative", "probability"])
def test_without_a_single_hit_there_is_nothing_to_certify(policy: str) -> None:
    world = World()
    zero(world, np.arange(QUERIES))
    with pytest.raises(InputError, match="none of the 90 calibration queries has a relevant document in its top 5"):
        decide_policy(ThresholdRule("risk-control", policy, max_loss=0.1), evidence(world))


def test_probability_is_refused_where_no_model_could_be_fitted() -> None:
    world = World()
    zero(world, world.parts.fit)
    given = evidence(world)
    assert given.estimated is None
    with pytest.raises(InputError, match="--policy probability"):
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), given)
    assert decide_policy(AUTO, given).kind in {"relative", "similarity"}


def test_auto_chooses_though_only_the_third_part_has_a_hit() -> None:
    """Nothing speaks for any policy: the preferred one of those that can be had, certified as ever."""
    world = World()
    zero(world, np.concatenate([world.parts.fit, world.parts.choose]))
    given = evidence(world)
    found = decide_policy(EXPECTED, given)
    assert found.kind == "relative"
    assert found.tau == literal_tau(given, "relative", world.parts.certify, conformal(0.1))
    assert {each.kind for each in decide_policy(AUTO, given).choice.candidates} == {"relative", "similarity"}


def test_where_the_third_part_has_no_hit_the_reason_is_not_its_size() -> None:
    """63 queries are enough for a loss of 10 %, for which it takes 9 on average: no shortage may be claimed."""
    world = World()
    zero(world, world.parts.certify)
    try:
        said = decide_policy(EXPECTED, evidence(world)).guarantee
    except InputError as error:
        said = str(error)
    assert "are needed" not in said


def test_a_cut_that_may_lose_everything_is_certified() -> None:
    """One hit in 90 queries, and one query in ten may be lost: its score passes, and it is the largest observed."""
    world = World()
    hit = int(np.flatnonzero(world.judged.accuracy())[0])
    zero(world, np.delete(np.arange(QUERIES), hit))
    given = evidence(world)
    found = decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.1), given)
    relevant = world.judged.grades[hit] >= 1
    assert found.tau == world.judged.top.scores[hit][relevant].max()


@pytest.mark.parametrize("policy", ["auto", "relative", "probability"])
def test_a_limit_on_empty_replies_holds_as_well(known: CalibrationQueries, policy: str) -> None:
    free = decide_policy(ThresholdRule("risk-control", policy, max_loss=0.3), known)
    rule = ThresholdRule("risk-control", policy, max_loss=0.3, max_empty=0.08)
    found = decide_policy(rule, known)
    members = known.roles.rest if policy == "probability" else known.calibration
    assert found.max_empty == 0.08
    assert [each.limit for each in found.certificates] == ["accuracy", "empty"]
    assert {each.queries for each in found.certificates} == {len(members)}
    empty = (decisions(known, found.kind)[members] < np.float32(found.tau)).all(axis=1).sum()
    assert found.certificates[1].loss == empty / len(members)
    assert exact(0.08)(int(empty), len(members))
    assert found.kind != free.kind or found.tau <= free.tau
    # A share of the best score leaves no query empty, so that it may go as far as the loss allows.
    assert found.kind == ("relative" if policy == "auto" else policy)


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [("non-inferiority", "high-probability"), ("risk-control", "high-probability"), ("risk-control", "expected-loss")],
)
def test_every_certified_statement_counts_repeated_documents(
    known: CalibrationQueries, method: str, guarantee: str
) -> None:
    rule = ThresholdRule(method, "similarity", guarantee=guarantee, max_loss=0.3)
    independent = decide_policy(rule, known)
    repeated = decide_policy(rule, replace(known, units=SamplingUnits.from_labels(np.arange(QUERIES) // 3)))
    passes = conformal(0.3) if guarantee == "expected-loss" else exact(0.3)
    assert independent.tau == literal_tau(known, "similarity", known.calibration, passes)
    assert independent.certificates[0].effective_queries == QUERIES
    assert repeated.tau < independent.tau
    assert repeated.certificates[0].effective_queries == QUERIES / 3
    assert (independent.evidence.unit, repeated.evidence.unit) == ("query", "document")


def test_queries_on_a_document_that_lose_together_count_as_fewer_though_their_hits_are_independent() -> None:
    """60 documents of 10 queries, whose scores are the document's and whose hits are nobody's; the truth is known."""
    rng, rule, delta = np.random.default_rng(0), ThresholdRule("non-inferiority", "similarity", max_loss=0.05), 0.05
    labels, above, naive = np.repeat(np.arange(60), 10), 0, 0
    for _ in range(200):
        scores = 0.95 * rng.normal(size=60).repeat(10) + 0.31 * rng.normal(size=600)
        grades = (rng.random(600) < 0.8).astype(np.int64)
        top = TopK(scores[:, None].astype(np.float32), np.zeros((600, 1), dtype=np.int64))
        judged = JudgedQueries(top, grades[:, None], np.ones(600), top.scores[:, 0])
        scored, by_document = ScoredQueries(judged, top, None, None), SamplingUnits.from_labels(labels)
        given = CalibrationQueries(scored, np.arange(600), np.zeros((1, 1)), None, None, by_document, 0)
        for each in (given, replace(given, units=SamplingUnits.from_labels(np.arange(600)))):
            tau = decide_policy(rule, each).tau
            over = tau is not None and 0.8 * stats.norm.cdf(tau) > delta
            above, naive = above + (over and each is given), naive + (over and each is not given)
    assert above / 200 <= delta + 2 * np.sqrt(delta * (1 - delta) / 200)
    assert naive / 200 > 0.2


@pytest.mark.parametrize("metric", ["accuracy", "ndcg"])
def test_the_papers_rule_is_what_it_was(known: CalibrationQueries, metric: str) -> None:
    found = decide_policy(ThresholdRule("bootstrap", "similarity", metric), known)
    literal = bootstrap_threshold(known.scored.judged.take(known.calibration), known.rows, metric)
    assert (found.kind, found.tau, found.psi, found.metric) == ("similarity", literal.tau, literal.psi, metric)
    assert (found.max_loss, found.max_empty, found.certificates, found.choice) == (None, None, [], None)
    assert found.guarantee.startswith("Nothing is certified")


def test_the_record_says_what_was_asked(known: CalibrationQueries) -> None:
    found = decide_policy(ThresholdRule("risk-control", "relative", "ndcg", max_loss=0.2, confidence=0.8), known)
    assert isinstance(found, PolicyRecord)
    assert (found.method, found.metric, found.max_loss, found.confidence) == ("risk-control", "ndcg", 0.2, 0.8)
    assert found.certificates[0].limit == "ndcg"
    assert found.certificates[0].bound <= 0.2


# The alternatives that the report shows beside the rule in force.


RULES = {
    "papers": ThresholdRule("bootstrap", "similarity", max_loss=0.1),
    "high": AUTO,
    "expected": replace(AUTO, guarantee="expected-loss"),
    "paired": replace(AUTO, method="non-inferiority"),
    "named": replace(AUTO, policy="relative"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_alternatives_are_the_other_rules(known: CalibrationQueries, name: str) -> None:
    rule = RULES[name]
    found = alternatives(rule, known, known.calibration)
    expected = [("bootstrap", None), ("risk-control", 0.1), ("risk-control", 0.1)]
    if name in {"papers", "high", "expected", "named"}:
        del expected[0 if name == "papers" else 1]
    assert [(each.method, each.max_loss) for each in found] == expected
    if name != "papers":
        assert (found[0].policy, found[0].psi) == ("similarity", decide_policy(RULES["papers"], known).psi)
    said = [each.guarantee for each in found if each.method == "risk-control"]
    assert [("expected loss" in guarantee) for guarantee in said] == {
        "papers": [False, True],
        "high": [True],
        "expected": [False],
        "paired": [False, True],
        "named": [True],
    }[name]


def test_each_alternative_says_what_it_would_keep_and_lose(known: CalibrationQueries) -> None:
    judged_on = np.arange(0, QUERIES, 3)
    for each in alternatives(RULES["paired"], known, judged_on):
        kept = decisions(known, each.policy)[judged_on] >= np.float32(each.tau)
        relevant = known.scored.judged.grades[judged_on] >= 1
        assert each.kept_fraction == pytest.approx(kept.mean())
        assert each.loss == pytest.approx((relevant.any(axis=1) & ~(relevant & kept).any(axis=1)).mean())


def test_an_alternative_that_cannot_be_certified_keeps_everything(known: CalibrationQueries) -> None:
    found = alternatives(replace(RULES["papers"], max_loss=0.01), known, known.calibration)
    assert [(each.policy, each.tau, each.kept_fraction, each.loss) for each in found] == [("none", None, 1.0, 0.0)] * 2


def test_too_few_queries_leave_the_alternatives_without_a_model() -> None:
    few = evidence(World(), np.arange(25))
    found = alternatives(replace(RULES["papers"], max_loss=0.2), few, few.calibration)
    assert [each.policy for each in found] == ["relative", "relative"]


def test_what_cannot_be_had_is_no_alternative() -> None:
    world = World()
    zero(world, np.arange(QUERIES))
    given = evidence(world)
    assert alternatives(RULES["papers"], given, given.calibration) == []
