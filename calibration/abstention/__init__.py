"""Whether a query has an answer in the corpus at all: a score for it, chosen and certified before any result is cut.

`retrieval.abstention.AnswerScore` scores a query, higher where an answer is more likely; `AnswerRule(score, tau)` is
the policy: a query is answered where its score ≥ τ in float32, else refused. What a user sees of it, and what the
calibration counts, is made by `retrieval.policy.keep_answered`: a refused query keeps nothing, an answered one keeps
what passes the cut and its best result at least.

- `choose.Side(texts, vectors, top, labels)`: n queries of one kind, answerable or not. texts: n; vectors: (n, d)
  float32; top: their (n, K) TopK; labels: (n,) int64 clusters, numbered jointly for both kinds.
- `choose.choose_score(answerable, unanswerable, corpus, calibration, empty, seed)` → `choose.Chosen`. corpus:
  `choose.Corpus(vectors, texts)`, (N, d) float32 and N encoded texts; calibration: positions of the answerable queries
  that may have a say, all but those held out; empty: γ, the share of answerable queries that may be refused.
- `Chosen`: `.score` the AnswerScore; `.answerable` (n,) and `.unanswerable` (u,) float32 scores of all queries;
  `.certify_answerable` and `.certify_unanswerable`, int64 positions of those that had no say, ascending; `.candidates`
  of `Candidate(name, auroc, answered, standard_error)`, `answered` the share of unanswerable queries that are answered
  where γ of the answerable ones are refused, on queries that the score was not fitted on; `.curves`, name to
  (answerable, unanswerable) scores of all queries, of the score chosen and of `best_similarity`, for a chart.
- `certify`: τ, with bounds on both errors. What it finds stands in `Findings.abstention`, None where nothing is
  refused, with `.rule` (AnswerRule) and `.record` (of the manifest).
"""
