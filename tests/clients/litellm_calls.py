"""What LiteLLM makes of a Taugate service; runs where LiteLLM is installed, and Taugate need not be.

TAUGATE_URL: of the service; MODEL_URL: of a model that calls each tool it is given; OPENAI_API_KEY: a Taugate key.
"""

import asyncio
import json
import os
from typing import Any

import httpx
import litellm  # pyright: ignore[reportMissingImports]

SERVICE, MODEL = os.environ["TAUGATE_URL"], os.environ["MODEL_URL"]
QUESTION = "Who is liable for hidden defects?"
NULLS = {"filters": None, "max_num_results": None, "ranking_options": None, "rewrite_query": None}
sent: list[dict[str, Any]] = []  # bodies of all searches


def search(**fields: Any) -> dict[str, Any]:
    """Return the reply of /search to the question, without LiteLLM."""
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    body = {"query": QUESTION, "explore": False, **fields}
    found: dict[str, Any] = httpx.post(f"{SERVICE}/search", json=body, headers=headers, timeout=30).json()
    return found


def record() -> None:
    """Keep every body that LiteLLM sends to a vector store."""
    for kind in (httpx.Client, httpx.AsyncClient):
        build = kind.build_request

        def keep(self: Any, method: Any, url: Any, *args: Any, build: Any = build, **options: Any) -> Any:
            request = build(self, method, url, *args, **options)
            if "/vector_stores/" in str(url):
                sent.append(json.loads(request.content))
            return request

        kind.build_request = keep


def expect(what: str, got: object, wanted: object) -> None:
    """End the program where two values differ."""
    if got != wanted:
        raise SystemExit(f"{what}: got {got!r}, wanted {wanted!r}")
    print(f"{what}: as expected")  # noqa: T201 (a program)


def check_search(base: str) -> None:
    """Search a vector store, with and without options."""
    every = [each["id"] for each in search()["results"]]
    page = litellm.vector_stores.search(vector_store_id="current", query=QUESTION, api_base=base)
    expect("what a search finds", [each["file_id"] for each in page["data"]], every)
    expect("its body has explicit nulls", sent[-1], {"query": QUESTION, **NULLS})
    expect("its text", page["data"][0]["content"][0]["text"], search()["results"][0]["text"])
    few = litellm.vector_stores.search(
        vector_store_id="current",
        query=[QUESTION, QUESTION],
        max_num_results=2,
        ranking_options={"score_threshold": 0.0},
        api_base=base,
    )
    expect("a list of queries, two results", [each["file_id"] for each in few["data"]], every[:2])
    category = search()["results"][0]["metadata"]["category"]
    filters = {"type": "eq", "key": "category", "value": category}
    page = litellm.vector_stores.search(vector_store_id="current", query=QUESTION, filters=filters, api_base=base)
    expect("a filter", {each["attributes"]["category"] for each in page["data"]}, {category})
    strict = {"score_threshold": 1.0}
    page = litellm.vector_stores.search(
        vector_store_id="current", query=QUESTION, ranking_options=strict, api_base=base
    )
    expect("nothing above a threshold", (page["data"], page["reason"]), ([], "all_below_threshold"))
    try:
        litellm.vector_stores.search(vector_store_id="elsewhere", query=QUESTION, api_base=base)
    except Exception as error:  # noqa: BLE001 (whatever LiteLLM raises, it has to say what the service said)
        expect("another store is refused in words", "name `current`" in str(error), True)
    else:
        raise SystemExit("another store was searched")


async def check_file_search() -> None:
    """Let a model without a file search of its own use LiteLLM's."""
    answer = await litellm.aresponses(
        model="mistral/mock",
        input=QUESTION,
        tools=[{"type": "file_search", "vector_store_ids": ["current"]}],
        include=["file_search_call.results"],
        api_base=MODEL,
        api_key="none",
    )
    called, message = (each if isinstance(each, dict) else each.model_dump() for each in answer.output)
    found = search()["results"]
    expect("file_search asks", called["queries"], [QUESTION])
    results = called.get("search_results") or called.get("results")
    expect("file_search finds", [each["file_id"] for each in results], [each["id"] for each in found])
    content = message["content"][0]
    expect("the model read it", found[0]["text"] in content["text"], True)
    cited = [each["file_id"] for each in content["annotations"]]
    expect("and the answer cites it", cited, [each["id"] for each in found])


def main() -> None:
    """Run every check."""
    record()
    check_search(f"{SERVICE}/v1")
    os.environ["OPENAI_BASE_URL"] = f"{SERVICE}/v1"  # file_search takes no address of the store
    asyncio.run(check_file_search())
    print(f"LiteLLM sent {len(sent)} searches")  # noqa: T201


if __name__ == "__main__":
    main()
