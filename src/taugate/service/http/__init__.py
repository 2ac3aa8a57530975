"""How a request gets in: the table of endpoints, the steps before a handler, and the replies to refused requests."""
