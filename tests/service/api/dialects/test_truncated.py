"""Dialects report that a query was too long or unreadable."""

from tests.fake_encoder import MAX_LENGTH
from tests.service.api.dialects.asking import QUERY, dify, openai
from tests.service_process import ServiceProcess

LONG = " ".join([QUERY] * (MAX_LENGTH + 1))
UNREADABLE = "ทีมฟุตบอลใดชนะเลิศ"


def test_openai_long_query_is_truncated(speaking: ServiceProcess) -> None:
    assert openai(speaking, query=LONG)["truncated"] is True
    assert openai(speaking, query=[QUERY, LONG])["truncated"] is True
    assert "truncated" not in openai(speaking, query=QUERY)


def test_dify_long_query_is_truncated(speaking: ServiceProcess) -> None:
    assert dify(speaking, query=LONG)["truncated"] is True
    assert "truncated" not in dify(speaking, query=QUERY)


def test_unreadable_query_returns_reason(speaking: ServiceProcess) -> None:
    page, reply = openai(speaking, query=UNREADABLE), dify(speaking, query=UNREADABLE)
    assert (page["data"], page["reason"]) == ([], "unreadable")
    assert (reply["records"], reply["reason"]) == ([], "unreadable")
