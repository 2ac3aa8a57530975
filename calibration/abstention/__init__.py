"""Whether a query has an answer in the corpus at all: a score for it, chosen and certified before any result is cut.

`choose` fits and chooses the score on queries that certify nothing, `certify` finds its threshold with limits on both
errors, `abstain` puts the two together for a calibration; `unanswerable` counts who is answered all the same. What
serves is `retrieval.abstention`, and `retrieval.policy.keep_answered` says what a user sees: a refused query keeps
nothing, an answered one keeps what passes the cut and its best result at least.
"""
