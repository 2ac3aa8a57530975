"""What each path needs. A path that is not here is none: nothing is let through because a rule was forgotten."""

from dataclasses import dataclass

from taugate.service.access.keys import Scope

ADMIN, BATCH = "/admin/", "/search/batch"


@dataclass(frozen=True, slots=True)
class Rule:
    """open: needs no key; scope: what a key has to have, None where any will do.

    within: whether what is answered is within the filter of the key. A key with a filter has no other path.
    """

    path: str
    scope: Scope | None = None
    open: bool = False
    within: bool = False


RULES = {
    rule.path: rule
    for rule in (
        Rule("/search", "search", within=True),
        Rule("/search/batch", "search", within=True),
        Rule("/feedback", "feedback", within=True),
        Rule("/metrics", "metrics"),
        Rule("/admin/reload", "admin"),
        Rule("/release"),
        Rule("/livez", open=True),
        Rule("/readyz", open=True),
        Rule("/openapi.json", open=True),
    )
}
_ADMINISTRATION = Rule(ADMIN, "admin")


def rule_of(path: str) -> Rule | None:
    """The rule of a path, None where there is no such path.

    It is the path as it came, not the route it leads to: a route's pattern also takes a path with a line feed behind.
    """
    return RULES.get(path) or (_ADMINISTRATION if path.startswith(ADMIN) else None)
