const state = {
  release: null, reference: null, // from the service
  tau: null, // the threshold that was chosen; null is the calibrated one
  search: null, reply: null, all: null, // the last search, its reply, and the reply with what the threshold dropped
  judged: new Map(), fields: new Set(), language: "curl",
};
const policy = () => state.release?.manifest.policy ?? { kind: "similarity", tau: null };
const requestedTau = () => (state.search?.threshold === undefined ? state.reply?.threshold : null); // of a stratum, it may be
const tauInForce = () => state.tau ?? requestedTau() ?? policy().tau;

const REASONS = {
  generated_queries: "its queries were generated, not written by people", few_documents: "its corpus has at most K documents",
  few_queries: "too few of its queries were written and labelled by people",
};
const SIGNALS = {
  topk_similarity: "similarity of the top-K", roe: "random documents (ROE)", coe: "correct documents (COE)",
  empty_responses: "empty responses", dropped_share: "dropped results", canary: "golden queries",
};

const named = (signals) => signals.map((signal) => SIGNALS[signal] ?? signal).join(", ");

/** Fetch the release and its drift, and its distributions if the release is new. */
async function refresh() {
  const ask = (path) => patiently(path).catch((error) => error);
  const release = await ask("release"), failed = release instanceof Error;
  const another = state.release === null || (!failed && release.release !== state.release.release);
  if (!failed) state.release = release;
  if (another) {
    const reference = await ask("release/reference"), hidden = reference instanceof Error;
    state.reference = hidden ? null : reference;
    if (hidden) part("effect").textContent = `The distributions cannot be shown: ${reference.message}.`;
    showThreshold();
  }
  tellService("ready");
  showRelease(release);
  showDrift(release);
  warn();
}

/** Show the notices that must not be overlooked. */
function warn() {
  const { release, reply } = state, reasons = release?.manifest.calibration?.reasons ?? [];
  const why = reasons.map((reason) => REASONS[reason] ?? reason).join("; ");
  const provisional = (release?.calibration ?? reply?.calibration) === "provisional";
  notice("provisional", "warn", provisional && `Provisional: this threshold rests on too little evidence${
    why && `, as ${why}`}. Do not rely on its figures.`);
  notice("uncut", "warn", release && policy().kind === "none"
    && "No threshold could be certified for this release, so nothing is dropped.");
  const signals = new Set([release?.drift, reply?.drift].flatMap((drift) => (drift?.alarm ? drift.signals : [])));
  const gauges = ["See the gauges", () => part("drift").scrollIntoView({ block: "center" })];
  notice("drift", "bad", signals.size
    && `Drift alarm: ${named([...signals])}. The guarantees of the calibration may not hold for this traffic.`, "", gauges);
}

/** Read the form. Throws SyntaxError if the filter is not JSON. @returns {Search} */
function readSearch() {
  const search = { query: part("question").value.trim() };
  const k = part("k").valueAsNumber, filter = part("filter").value.trim();
  if (!Number.isNaN(k)) search.k = k;
  if (part("grouped").checked) search.group_by = "document";
  if (filter) search.filter = JSON.parse(filter);
  if (state.tau !== null) search.threshold = state.tau;
  return search;
}

/** Read the form; if that fails, show the reason beside the filter and return null. */
function checkedSearch() {
  part("filter-error").textContent = "";
  try { return readSearch(); } catch (error) { return complain("filter", `The filter is not JSON: ${error.message}.`); }
}

function complain(about, words) {
  if (about === "filter") part("options").open = true;
  part(about === "filter" ? "filter-error" : "verdict").textContent = words;
  return null;
}

let asking = new AbortController();

async function ask(event) {
  event?.preventDefault();
  const search = checkedSearch();
  if (!search?.query) return search && part("question").focus();
  asking.abort(); // only the last question counts
  asking = new AbortController();
  const { signal } = asking, send = part("ask-form").querySelector("button.main");
  const fixedFields = { explore: false, ...(part("parts").checked && { explain: true }) };
  const find = (fields) => patiently("search", { ...search, ...fixedFields, ...fields }, { signal, acting: true });
  send.textContent = "Searching …";
  try {
    const reply = await find({});
    // Search again, including what the threshold drops: the first reply is what an application gets.
    const all = reply.dropped ? await find({ min_results: reply.considered }) : reply;
    Object.assign(state, { search, reply, all });
    state.judged.clear();
    for (const result of all.results) for (const name of Object.keys(result.metadata)) state.fields.add(name);
    part("fields").textContent = `Fields of the results so far: ${[...state.fields].join(", ") || "none"}.`;
    showAnswer();
    showThreshold();
    refresh();
  } catch (error) {
    if (signal.aborted) return;
    complain(error.message.startsWith("filter") ? "filter" : "", `Search failed: ${error.message}.`);
  }
  send.textContent = "Ask";
}
