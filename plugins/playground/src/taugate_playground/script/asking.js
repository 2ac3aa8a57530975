const state = {
  release: null, reference: null, questions: [], // from the service
  tau: null, rho: null, // the thresholds that were moved; null are the calibrated ones
  search: null, reply: null, all: null, // the last search, its reply, and the reply with what the threshold dropped
  judged: new Map(), fields: new Set(), language: "curl", recent: [],
};
/** Return the policy of the release; τ is null if no result is dropped, which a certified release writes as the lowest float32. */
const policy = () => {
  const { kind, tau, ...others } = { kind: "similarity", tau: null, ...state.release?.manifest.policy };
  return { ...others, kind, tau: tau === null || tau < -3.4e38 ? null : tau };
};
/** Return what refuses queries as a whole, with its score and ρ, or null. */
const refusal = () => (state.release?.manifest.refusal?.rho === undefined ? null : state.release.manifest.refusal);
const tauInForce = () => state.tau ?? state.reply?.threshold ?? policy().tau; // a reply has that of its stratum
const rhoInForce = () => state.rho ?? refusal()?.rho ?? null;
const isMoved = () => state.tau !== null || state.rho !== null;
const handles = () => ({ tau: tauInForce(), rho: rhoInForce() });

const REASONS = {
  generated_queries: "its queries were generated, not written by people", few_documents: "its corpus has at most K documents",
  few_queries: "too few of its queries were written and labelled by people",
};
const SIGNALS = {
  topk_similarity: "similarity of the top-K", roe: "random documents (ROE)", quality: "replies with a relevant result",
  empty_responses: "empty responses", dropped_share: "dropped results", canary: "golden queries",
};
const RECENT = 20; // questions to go back to

const named = (signals) => signals.map((signal) => SIGNALS[signal] ?? signal).join(", ");

/** Fetch the release and its drift, and its distributions and questions if the release is new. */
async function refresh() {
  const ask = (path) => patiently(path).catch((error) => error);
  const release = await ask("release"), failed = release instanceof Error;
  const another = state.release === null || (!failed && release.release !== state.release.release);
  const shadow = state.release?.shadow;
  if (!failed) state.release = release;
  if (another) {
    const reference = await ask("release/reference"), hidden = reference instanceof Error;
    state.reference = hidden ? null : reference;
    if (hidden) part("effect").textContent = `The distributions cannot be shown: ${reference.message}.`;
    else state.questions = await allQuestions("current").catch(() => []);
    showExamples();
    showThreshold();
    showAnswer();
  }
  if (another || (!failed && release.shadow !== shadow)) prepareComparison();
  tellService("ready");
  showRelease(release);
  showDrift(release);
  warn();
}

/** Fetch the questions of a release, page by page. @returns {Promise<Question[]>} */
async function allQuestions(release) {
  const questions = [];
  for (let total = 1; questions.length < total;) {
    const page = await patiently(`playground/questions?release=${release}&offset=${questions.length}`);
    questions.push(...page.questions);
    total = page.questions.length ? page.total : 0;
    Object.assign(questions, { release: page.release, handles: { tau: page.threshold, rho: page.rho } });
  }
  return questions;
}

/** Show the notices that must not be overlooked. */
function warn() {
  const { release, reply } = state, reasons = release?.manifest.calibration?.reasons ?? [];
  const why = reasons.map((reason) => REASONS[reason] ?? reason).join("; ");
  const provisional = (release?.calibration ?? reply?.calibration) === "provisional";
  notice("provisional", "warn", provisional && `Provisional: this threshold rests on too little evidence${
    why && `, as ${why}`}. Do not rely on its figures.`);
  notice("uncut", "warn", release && policy().tau === null
    && "No threshold could be certified for this release, so nothing is dropped.");
  const signals = new Set([release?.drift, reply?.drift].flatMap((drift) => (drift?.alarm ? drift.signals : [])));
  notice("drift", "bad", signals.size
    && `Drift alarm: ${named([...signals])}. The guarantees of the calibration may not hold for this traffic.`, "",
  ["See what is new", openNewQuestions]);
  showNewQuestions(signals.size > 0);
}

/** Read the form. Throws SyntaxError if the filter is not JSON. @returns {Search} */
function readSearch() {
  const search = { query: part("question").value.trim() };
  const k = part("k").valueAsNumber, filter = part("filter").value.trim();
  if (!Number.isNaN(k)) search.k = k;
  if (part("grouped").checked) search.group_by = "document";
  if (filter) search.filter = JSON.parse(filter);
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

/** Ask what the form has. added: whether the question becomes an entry of the browser's history. */
async function ask(event, { added = true } = {}) {
  event?.preventDefault();
  const search = checkedSearch();
  if (!search?.query) return search && part("question").focus();
  asking.abort(); // only the last question counts
  asking = new AbortController();
  const { signal } = asking, send = part("ask-form").querySelector("button.main");
  const find = (fields) => patiently("search", { ...search, explore: false, explain: true, ...fields }, { signal, acting: true });
  send.textContent = "Searching …";
  if (added) writeAddress({ query: search.query, added });
  try {
    const reply = await find({});
    // Search again, including what the threshold drops: the first reply is what an application gets.
    const all = reply.dropped ? await find({ min_results: reply.considered }) : reply;
    Object.assign(state, { search, reply, all });
    state.judged.clear();
    for (const result of all.results) for (const name of Object.keys(result.metadata)) state.fields.add(name);
    part("fields").textContent = `Fields of the results so far: ${[...state.fields].join(", ") || "none"}.`;
    remember(search.query);
    showAnswer();
    showThreshold();
    compare();
    refresh();
  } catch (error) {
    if (signal.aborted) return;
    complain(error.message.startsWith("filter") ? "filter" : "", `Search failed: ${error.message}.`);
  }
  send.textContent = "Ask";
}

/** Ask a question that was not typed. */
function askFor(query) {
  part("question").value = query;
  fitQuestion();
  scrollTo({ top: 0 });
  part("question").focus({ preventScroll: true });
  return ask();
}

// ---- The address: ?q=…&tau=…&rho=… ----

function writeAddress({ query = state.search?.query, added = false } = {}) {
  const fields = new URLSearchParams();
  if (query) fields.set("q", query);
  for (const name of ["tau", "rho"]) if (state[name] !== null) fields.set(name, state[name]);
  const address = `${location.pathname}${fields.size ? `?${fields}` : ""}`;
  if (address === location.pathname + location.search) return;
  history[added ? "pushState" : "replaceState"](null, "", address);
}

/** Show what the address says, when the page opens and when the reader goes back. */
function readAddress() {
  const fields = new URLSearchParams(location.search);
  for (const name of ["tau", "rho"]) {
    const value = Number.parseFloat(fields.get(name));
    state[name] = Number.isFinite(value) ? value : null;
  }
  part("question").value = fields.get("q") ?? "";
  fitQuestion();
  if (fields.get("q")) ask(null, { added: false });
  else {
    asking.abort();
    Object.assign(state, { search: null, reply: null, all: null });
    showAnswer();
    showThreshold();
  }
}

// ---- Questions to try, and to go back to ----

/** Show four questions with an answer, and two without. */
function showExamples() {
  const short = state.questions.filter(({ text }) => text.length <= 60);
  const spread = (group, count) => Array.from({ length: Math.min(count, group.length) }, (_, i) =>
    group[Math.floor(((i + 0.5) * group.length) / count)]);
  const answerable = short.filter(({ kind, rank }) => kind === "answerable" && rank === 1);
  const unanswered = short.filter(({ kind }) => kind !== "answerable");
  const shown = [...spread(answerable, 4), ...spread(unanswered, 2)];
  part("examples").hidden = !shown.length;
  part("examples").replaceChildren(...shown.map(({ text, kind }) => make("li", {},
    button(kind === "answerable" ? text : `Off topic: ${text}`, () => askFor(text), { class: "example", title: kind === "answerable" ? text : `${text} (no answer)` }))));
}

function remember(query) {
  state.recent = [query, ...state.recent.filter((before) => before !== query)].slice(0, RECENT);
  part("recent").hidden = false;
  part("recent-list").replaceChildren(...state.recent.map((before) =>
    make("li", {}, button(before, () => { part("recent").open = false; askFor(before); }, { class: "link" }))));
}

function fitQuestion() {
  const field = part("question");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
