"""The one sentence on what a release keeps, loses and refuses."""

from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import RefusalRecord, RefusedQuestions
from taugate.retrieval.release.summary import LostAnswers, summary_parts, summary_sentence

OFF_TOPIC = RefusedQuestions(queries=20, refused=19, lower=0.78)
LOST = LostAnswers(1, 151, 0.03101)


def refusal(*, provisional: bool = False, **kinds: RefusedQuestions) -> RefusalRecord:
    lost = Interval(mean=0.0, lower=0.0, upper=0.02)
    return RefusalRecord(
        score="best_similarity", rho=0.3, provisional=provisional, off_topic=OFF_TOPIC, lost=lost, **kinds
    )


def test_summary_names_every_kind() -> None:
    near_miss = RefusedQuestions(queries=20, refused=14, lower=0.49)
    request = RefusedQuestions(queries=100, refused=90, lower=0.83)
    refused = LostAnswers(3, 503, 0.0154)
    assert summary_sentence(4.71, 5, LOST, refusal(near_miss=near_miss, request=request), refused) == (
        "Keeps 4.7 of 5 results, loses 1 of 151 answers to τ (at most 3.2 %) and 3 of 503 to ρ (at most 1.6 %), "
        "refuses 19 of 20 off-topic questions, 90 of 100 short requests, 14 of 20 near misses."
    )


def test_summary_says_that_refusals_are_provisional() -> None:
    assert summary_sentence(5, 5, LOST, refusal(provisional=True)).endswith("off-topic questions (provisional).")


def test_summary_without_refusals_or_answers_is_short() -> None:
    assert summary_sentence(5, 5, LOST, None) == "Keeps 5.0 of 5 results, loses 1 of 151 answers (at most 3.2 %)."
    assert summary_sentence(2.5, 5, None, None) == "Keeps 2.5 of 5 results."


def test_parts_of_summary_are_its_clauses() -> None:
    near_miss = RefusedQuestions(queries=20, refused=14, lower=0.49)
    sentence = summary_sentence(4.71, 5, LOST, refusal(near_miss=near_miss, provisional=True))
    assert summary_parts(sentence) == {
        "Keeps": "4.7 of 5 results",
        "Loses": "1 of 151 answers (at most 3.2 %)",
        "Refuses": "19 of 20 off-topic questions, 14 of 20 near misses (provisional)",
    }
    assert summary_parts(summary_sentence(2.5, 5, None, None)) == {"Keeps": "2.5 of 5 results"}


def test_sentence_of_another_version_is_one_part() -> None:
    assert summary_parts("All is well.") == {"Result": "All is well."}
