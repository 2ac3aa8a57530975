// The page of /playground. It sends requests only to the server that it came from, stores
// nothing, and inserts every text into the page as text.

/** @typedef {{id: string, rank: number, score: number, relevance: ?number, below_threshold: boolean, title: ?string,
 *   text: ?string, metadata: Object, parts?: Object, matched_words?: string[]}} Result */
/** @typedef {{text: string, kind: string, heldout: boolean, values: number[], best: number, refusal: ?number,
 *   rank: ?number, right: ?number}} Question */
/** @typedef {{query: string, k?: number, group_by?: string, filter?: Object, threshold?: number}} Search */

export const fixed = (number) => (number === null ? "–" : number.toFixed(3));

const tauIs = (tau) => `τ\u00a0=\u00a0${fixed(tau)}`;

/** Write a share of 0…1 in per cent, with a decimal below ten: 61 %, 1.8 %. */
export function percent(share) {
  const shown = share * 100;
  return `${shown > 0 && shown < 9.95 ? shown.toFixed(1) : Math.round(shown)}\u00a0%`;
}

/** Return the words of a question that carry its subject: three letters or more, without case. */
export const wordsOf = (text) => new Set(text.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? []);

/** Write an interval of shares: 72–88 %. */
export const between = ({ lower, upper }) => `${percent(lower).replace("\u00a0%", "")}–\u2060${percent(upper)}`;

/** Write how far two similarities are apart. */
export const distance = (one, other) => Math.abs(one - other) < 0.001 ? "less than 0.001" : fixed(Math.abs(one - other));

/**
 * Estimate a density from quantiles: Gaussian kernels on 400 values drawn evenly from them, as wide as Silverman's rule
 * of thumb asks (Density Estimation, 1986, equation 3.31).
 * @param {number[]} quantiles of evenly spaced probabilities, 0 to 1 @param {number[]} xs where the density is computed
 */
export function density(quantiles, xs) {
  const at = (share) => {
    const place = share * (quantiles.length - 1), before = Math.min(Math.floor(place), quantiles.length - 2);
    return quantiles[before] + (place - before) * (quantiles[before + 1] - quantiles[before]);
  };
  const values = Array.from({ length: 400 }, (_, i) => at((i + 0.5) / 400));
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  const spread = Math.min(deviation, (at(0.75) - at(0.25)) / 1.34) || deviation || 0.01;
  const width = 0.9 * spread * quantiles.length ** -0.2, scale = values.length * width * Math.sqrt(2 * Math.PI);
  return xs.map((x) => values.reduce((sum, value) => sum + Math.exp(-(((x - value) / width) ** 2) / 2), 0) / scale);
}

/** Look up what a threshold keeps and loses: between two points of a curve, what the higher one does. */
export const onCurve = (curve, tau) => curve.find((point) => point.tau >= Math.fround(tau)) ?? curve.at(-1) ?? null;

/** Return what a policy compares with τ, in float32 as the service does. */
export const compared = ({ relevance, score }, policy, best) => POLICIES[policy].of(score, relevance, best);

/** Tell whether a score of a query as a whole is below ρ; null refuses nothing. What thresholds that were moved would do is
 * told by this and by `passes` alone; what the service decided is in its replies. */
const isBelow = (score, rho) => rho !== null && Math.fround(score) < Math.fround(rho);

/** Tell whether a value passes τ: with a ρ, the first result of a question that is not refused always does. */
const passes = (value, first, { tau, rho }) => tau === null || (rho !== null && first) || Math.fround(value) >= Math.fround(tau);

/** Tell whether a reply would be refused at ρ. */
export const isRefused = (reply, rho) => reply.reason === "unreadable" || isBelow(reply.refusal?.score ?? reply.best_score, rho);

/** Tell whether a result is kept at thresholds. handles: null is the verdict of the service. */
export const isKept = (result, reply, handles) => (handles === null ? !result.below_threshold : !isRefused(reply, handles.rho)
  && passes(compared(result, reply.policy, reply.best_score), result.rank === 1, handles));

const isQuestionRefused = ({ refusal, best }, rho) => isBelow(refusal ?? best, rho);

/** Tell what becomes of a calibration question at thresholds; null for one that is not in force. @param {Question} question */
export function outcomeOf(question, handles) {
  const { kind, rank, right, values } = question;
  if (isQuestionRefused(question, handles.rho)) return rank === null ? "refused" : "lost";
  if (kind !== "answerable") return handles.rho !== null || values.some((value) => passes(value, false, handles)) ? "answered" : "refused";
  if (rank === null) return "missed";
  return passes(right, rank === 1, handles) ? "kept" : "lost";
}

/** Count the results that a question keeps at thresholds. */
const keptOf = (question, handles) => (isQuestionRefused(question, handles.rho) ? 0
  : question.values.filter((value, i) => passes(value, i === 0, handles)).length);

/** Say in a sentence what thresholds do to the questions, of which held-out ones, if any are, tell what is lost and dropped. */
export function effectOf(questions, handles) {
  const answerable = questions.filter((question) => question.kind === "answerable");
  const heldout = answerable.filter((question) => question.heldout), measured = heldout.length ? heldout : answerable;
  const count = (group, outcome) => group.filter((question) => outcomeOf(question, handles) === outcome).length;
  const found = measured.filter((question) => question.rank !== null), sum = (of) => measured.reduce((total, question) => total + of(question), 0);
  const kept = sum((question) => keptOf(question, handles)) / (sum(({ values }) => values.length) || 1);
  const refused = [["off_topic", "off-topic"], ["unanswerable", "unanswerable"]].flatMap(([kind, name]) => {
    const group = questions.filter((question) => question.kind === kind);
    return group.length ? [`${count(group, "refused")} of ${group.length} ${name}`] : [];
  });
  return [`${count(found, "lost")} of ${found.length} ${heldout.length ? "held-out" : "calibration"} answers lost`,
    ...(refused.length ? [`${refused.join(" and ")} questions refused`] : []),
    `${Math.round(100 * (1 - kept))} % of the results dropped`].join("; ");
}

/** Return round numbers for an axis. */
export function ticks(low, high, most) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((size) => (high - low) / size <= most) ?? 1;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

const PYTHON_NAMES = new Map([[true, "True"], [false, "False"], [null, "None"]]);

/** Write a JSON value as a literal of Python. */
export function pythonLiteral(value) {
  if (PYTHON_NAMES.has(value)) return PYTHON_NAMES.get(value);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, item]) => `${pythonLiteral(name)}: ${pythonLiteral(item)}`).join(", ")}}`;
}

/** Write a search as code, in each language that the page offers; keyed: whether the service at the URL needs a key. */
export const languages = {
  curl(search, url, keyed) {
    const key = keyed ? ' \\\n  -H "Authorization: Bearer $TAUGATE_KEY"' : "";
    const body = JSON.stringify(search).replaceAll("'", "'\\''");
    return `curl -s ${url}/search${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  },
  Python({ query, ...options }, url, keyed) {
    return `${keyed ? KEY_NOTE : ""}from taugate_client import TaugateClient

with TaugateClient("${url}") as taugate:
    reply = taugate.search(${callWith(query, options)})
    for result in reply.results:
        print(result.score, result.text)
    if not reply.results:
        print("nothing found:", reply.reason)`;
  },
  LangChain({ query, group_by, ...options }, url, keyed) {
    const notes = (keyed ? KEY_NOTE : "") + (group_by ? "# This retriever counts chunks, not documents.\n" : "")
      + (options.threshold === undefined ? "" : "# Below the calibrated τ, a threshold changes nothing here.\n");
    return `${notes}from langchain_taugate import TaugateRetriever

retriever = TaugateRetriever(url="${url}")
for document in retriever.invoke(${callWith(query, options)}):
    print(document.metadata["score"], document.page_content)`;
  },
};
const KEY_NOTE = "# The key comes from the environment variable TAUGATE_KEY.\n";
const callWith = (query, options) =>
  [JSON.stringify(query), ...Object.entries(options).map(([name, value]) => `${name}=${pythonLiteral(value)}`)].join(", ");
