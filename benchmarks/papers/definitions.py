"""Where each definition of the papers is: command, file and equation; and what of their tables is not repeated."""

from benchmarks.checkout import ROOT
from benchmarks.markdown import table
from benchmarks.papers.plan import Plan

HEADING = "What is where"

_THRESHOLDS = "Towards Understanding Domain Adapted Sentence Embeddings for Document Retrieval"
_TELECOM = "Investigating Distributions of Telecom Adapted Sentence Embeddings for Document Retrieval"
_PCA = "More Than Efficiency: Embedding Compression Improves Domain Adaptation in Dense Retrieval"
_GENERATION = "Unsupervised Domain Adaption for Neural Information Retrieval"
_DIVERSITY = "Evaluating the Robustness of Dense Retrievers in Interdisciplinary Domains"

# Short name of the paper: its title, and by definition: place in the paper, command, file in src/taugate or of a plug-in.
DEFINITIONS: dict[str, tuple[str, tuple[tuple[str, str, str, str], ...]]] = {
    "thresholds": (f"{_THRESHOLDS}*; its later version, *{_TELECOM} (arXiv 2406.12336v3)", (
        ("bootstrapped accuracy, NDCG", "§2.1, arXiv §II-A", "calibrate", "evidence/measure.py"),
        ("Γ and τ(ψ)", "§2.2", "calibrate --method bootstrap", "evidence/threshold/decide.py"),
        ("COE, ROE", "§2.3, eq. 1 and 2", "calibrate; drift of the service", "drift/signals.py"),
        ("PT, FT, PT-FT, merged", "§2.4", "adapt --recipe pt, ft, pt-ft, merge", "plugins/adapt/src/taugate_adapt/recipes.py"),
        ("isotropy I_A, I_B", "§2.5, eq. 3 to 6", "calibrate, compare --measures", "calibration/metrics/embeddings.py"),
        ("standardising, whitening, removing top components", "§2.5", "compare --measures", "calibration/metrics/embeddings.py"),
        ("separation Δ_M", "§2.6", "adapt, compare --measures", "calibration/metrics/embeddings.py"),
        ("correlations of the measures", "Table 3", "compare", "calibration/job/compare.py"),
        ("forgetting on general questions", "§4.1, Table 4", "adapt, compare --measures", "calibration/comparison/measures.py"),
    )),
    "query-PCA": (_PCA, (
        ("query compression, x ↦ (x − μ)W; q ↦ qW; with documents; folds", "Algorithm 1, §4, Appendix B", "calibrate, key projection", "calibration/acceptance/projection.py"),
        ("retention `r`", "eq. 4", "calibrate, key retention", "calibration/acceptance/projection.py"),
        ("familiarity `TF`, `DF`; power law of the spectrum", "eq. 5 and 6, Appendix A", "adapt, compare --measures", "calibration/metrics/embeddings.py"),
    )),
    "generation": (_GENERATION, (
        ("independent cropping, word deletion", "§3, Table 1", "queries --method crop", "data/generation/generate.py"),
        ("questions of a language model", "§3, Appendix A", "queries --method local, endpoint", "plugins/label/src/taugate_label/questions.py"),
        ("Recall@100, Precision@10", "Table 8", "calibrate (report)", "evidence/measure.py"),
        ("lost questions", "§6.1", "queries", "data/generation/generate.py"),
        ("contrastive loss with in-batch negatives", "§4.1", "adapt", "plugins/adapt/src/taugate_adapt/training/fine_tuning.py"),
    )),
    "diversity": (_DIVERSITY, (
        ("cosine distance, silhouette, topic entropy", "§3.4.2, Table 2", "calibrate", "calibration/query_set/measure.py"),
        ("a share of the chunks of each document", "§3.1", "queries --per-document .3", "data/generation/generate.py"),
        ("no question if a document says too little", "§3.2.1", "queries --method endpoint", "plugins/label/src/taugate_label/questions.py"),
        ("hard negatives", "§3.2.2", "adapt", "plugins/adapt/src/taugate_adapt/pairs.py"),
    )),
}  # fmt: skip
# What of the papers is not built, or not repeated on this page, and why.
_LEFT_OUT = (
    ("Thresholds, Tables 2 and 4", "`bge_large` and `llm_embedder`, adapted", "No package has their weights; MiniLM [was adapted](../benchmarks/decisions.md#the-papers-comparison-pre-trained-fine-tuned-merged)."),
    ("Query-PCA, Tables 2, 5 to 8 and 14", "other sets and Sentence-T5", "Not at hand."),
    ("Query-PCA, Table 3", "PCA against fine-tuning and hashing", "No `Tas-B` and teacher at hand."),
    ("Query generation, §3", "crops of the document as well", "`adapt` trains against the searched documents."),
    ("Query generation, Tables 4 to 7", "other models, architectures and similarities", "Training on `MS MARCO` takes GPUs."),
    ("Diversity, Table 5", "six types of questions", "Their gain takes a larger model to measure."),
    ("Diversity, Tables 1, 3 and 4", "`ColBERTv2`, adapted", "Here late interaction is a second stage: an index of token vectors takes 100 times the memory."),
)  # fmt: skip


def section(plan: Plan) -> str:
    """List the definitions of each paper, and what is not repeated."""
    cells = [
        (what, f"{name}, {place}", f"`{command}`", f"`{file}`")
        for name, (_, rows) in DEFINITIONS.items()
        for what, place, command, file in rows
    ]
    missing = [
        file
        for *_, file in cells
        if not any((root / file.strip("`")).is_file() for root in (ROOT / "src" / "taugate", ROOT))
    ]
    if missing:
        raise FileNotFoundError(", ".join(missing))
    titles = "\n".join(f"- {name}: *{title}*" for name, (title, _) in DEFINITIONS.items())
    left_out = "\n".join(f"- {place}: {what}. {why}" for place, what, why in _LEFT_OUT)
    listed = table(("definition", "in the paper", "`taugate …`", "file in `src/taugate`"), cells)
    return f"{titles}\n\n{listed}\n\nNot repeated or not built:\n\n{left_out}"
