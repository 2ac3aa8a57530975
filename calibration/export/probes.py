"""Texts on which an exported encoder is compared with PyTorch: short, long, cut off, and of several scripts.

Fixed, and not taken from the corpus, so that one model gives one exported encoder whatever it is first used for.
"""

_SENTENCE = "The threshold of a retrieval system decides which of the passages it has found are worth reading. "

PROBES = [
    "?",
    "threshold",
    "What is the warranty period for a new roof?",
    "cosine similarity of two unit vectors",
    "Who pays when a contractor goes bankrupt before the house is finished, and which documents prove it?",
    "def keep(scores, tau):\n    return [score for score in scores if score >= tau]",
    "HIV-1 mother-to-child transmission; DC-SIGNR p.Arg198Gln, n = 197, 95 % CI 1.2–3.4",
    "Vad kostar en bergvärmepump för en villa på 150 kvadratmeter?",
    "¿Cuándo empezó la crisis del petróleo?",
    "Какая температура кипения воды?",
    "検索の閾値はどのように決めますか。",
    "ما هي عتبة التشابه؟",
    "naïve café — “quoted” … 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🙂",
    *(_SENTENCE * repeats for repeats in (1, 2, 4, 8, 16, 64)),
]
