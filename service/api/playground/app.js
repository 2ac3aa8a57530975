// The page of /playground, and of `taugate judge --web`. It asks only the server that it came from, keeps nothing after
// it is closed, and puts every text into the page as a text.

/** @typedef {{id: string, rank: number, score: number, relevance: ?number, below_threshold: boolean, title: ?string,
 *   text: ?string, metadata: Object}} Result */
/** @typedef {{query: string, k?: number, group_by?: string, filter?: Object, threshold?: number}} Search */

// ---- Computing: functions of their arguments alone ----

export const fixed = (number) => (number === null ? "–" : number.toFixed(3));

const tauIs = (tau) => `τ\u00a0=\u00a0${fixed(tau)}`;

/** Write a share of 0…1 in per cent, with a decimal below ten: 61 %, 1.8 %. */
export function percent(share) {
  const shown = share * 100;
  return `${shown > 0 && shown < 9.95 ? shown.toFixed(1) : Math.round(shown)}\u00a0%`;
}

/** Write an interval of shares: 72–88 %. */
export const between = ({ lower, upper }) => `${percent(lower).replace("\u00a0%", "")}–\u2060${percent(upper)}`;

/** Write how far two similarities are apart. */
export const distance = (one, other) => Math.abs(one - other) < 0.001 ? "less than 0.001" : fixed(Math.abs(one - other));

/**
 * Estimate a density from quantiles: Gaussian kernels on 400 values drawn evenly from them, as wide as Silverman's rule
 * of thumb asks (Density Estimation, 1986, equation 3.31).
 * @param {number[]} quantiles of evenly spaced probabilities, 0 to 1 @param {number[]} xs where the density is wanted
 */
export function density(quantiles, xs) {
  const at = (share) => {
    const place = share * (quantiles.length - 1), before = Math.min(Math.floor(place), quantiles.length - 2);
    return quantiles[before] + (place - before) * (quantiles[before + 1] - quantiles[before]);
  };
  const values = Array.from({ length: 400 }, (_, i) => at((i + 0.5) / 400));
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / values.length);
  const spread = Math.min(deviation, (at(0.75) - at(0.25)) / 1.34) || deviation || 0.01;
  const width = 0.9 * spread * quantiles.length ** -0.2, scale = values.length * width * Math.sqrt(2 * Math.PI);
  return xs.map((x) => values.reduce((sum, each) => sum + Math.exp(-(((x - each) / width) ** 2) / 2), 0) / scale);
}

/** Look up what a threshold keeps and loses: between two points of a curve, what the higher one does. */
export const onCurve = (curve, tau) => curve.find((point) => point.tau >= Math.fround(tau)) ?? curve.at(-1) ?? null;

/** Return what a policy compares with τ, in float32 as the service does; nothing is close to a best score of 0 or less. */
export const compared = ({ relevance, score }, policy, best) =>
  policy === "probability" ? relevance : policy === "relative" ? Math.fround(best > 0 ? score / best : 0) : score;

/** Tell whether a result is kept; tau: null is the verdict of the service. */
export const isKept = (result, reply, tau) => tau === null ? !result.below_threshold
  : Math.fround(compared(result, reply.policy, reply.best_score)) >= Math.fround(tau);

/** Return round numbers for an axis. */
export function ticks(low, high, most) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((each) => (high - low) / each <= most) ?? 1;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

const PYTHON_NAMES = new Map([[true, "True"], [false, "False"], [null, "None"]]);

/** Write a JSON value as a literal of Python. */
export function pythonLiteral(value) {
  if (PYTHON_NAMES.has(value)) return PYTHON_NAMES.get(value);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${pythonLiteral(name)}: ${pythonLiteral(each)}`).join(", ")}}`;
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
  [JSON.stringify(query), ...Object.entries(options).map(([name, each]) => `${name}=${pythonLiteral(each)}`)].join(", ");

// ---- Building elements ----

const part = (id) => document.getElementById(id);
const SVG = document.querySelector("svg").namespaceURI;

/** Make a function that builds elements: attributes by name, `on…` a listener; what is null or false is left out. */
const builder = (create) => (tag, attributes = {}, ...children) => {
  const element = create(tag), given = (value) => value !== null && value !== undefined && value !== false;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (given(value)) element.setAttribute(name, value);
  }
  element.append(...children.filter(given));
  return element;
};
const make = builder((tag) => document.createElement(tag));
const draw = builder((tag) => document.createElementNS(SVG, tag));

const button = (words, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, words);
const press = (buttons, isOn) => [...buttons].forEach((each) => each.setAttribute("aria-pressed", String(isOn(each))));
const hint = (words) => make("p", { class: "hint" }, words);
const chip = (words, tone = "plain") => make("span", { class: "chip", "data-tone": tone }, words);
const figures = (...pairs) => make("p", { class: "figures" },
  ...pairs.filter(Boolean).map(([name, value]) => make("span", {}, `${name} `, make("b", {}, value))));

/** Build a table; an element among the cells of a row is a drawing. */
function table(caption, head, rows) {
  const cell = (value, i) => i === 0 ? make("th", { scope: "row" }, value)
    : make("td", { class: value instanceof Element && "drawn" }, value);
  const column = (name) => make(name ? "th" : "td", { scope: name ? "col" : null, class: !name && "drawn" }, name);
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map(column))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))))));
}

/** Draw an interval and its mean between 0 and 1. */
const interval = ({ mean, lower, upper }) =>
  draw("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { class: "grid", x1: 0, x2: 100, y1: 7, y2: 7 }),
    draw("rect", { class: "area correct", x: 100 * lower, width: 100 * (upper - lower), y: 3, height: 8 }),
    draw("rect", { class: "dot in", x: 100 * mean - 0.4, width: 0.8, y: 2, height: 10 }));

/**
 * Show a notice above everything else, or take it away where there are no words. tone: warn, bad or plain; aside:
 * changes often, so that it is not read out; action: words of a button, and what it does.
 */
function notice(name, tone, words, aside = "", action = null) {
  let shown = part(`notice-${name}`);
  if (shown?.dataset.words !== words) {
    shown?.remove();
    if (!words) return;
    const said = make("p", {}, make("span", {}, words), make("span", { "aria-hidden": "true" }));
    const role = tone === "plain" ? "status" : "alert";
    const attributes = { id: `notice-${name}`, class: "notice", role, "data-tone": tone, "data-words": words };
    shown = make("div", attributes, said, action && button(...action));
    part("notices").append(shown);
  }
  if (shown) shown.querySelector("p").lastElementChild.textContent = aside && ` ${aside}`;
}

// ---- Asking the service ----

const BASE = new URL(".", location.href);
const SLOW_SECONDS = 2, LOST_SECONDS = 30; // the service itself gives up after 5 s by default
const PAUSES = [1, 2, 4, 8]; // seconds before each new attempt, and the last for all that follow
let key = ""; // in this variable alone: no storage, no address and no cookie has it

/** Send one request and return its JSON. Throws an error with the status, 0 for no answer, or that it was aborted. */
async function call(path, body, signal) {
  const began = performance.now(), lost = AbortSignal.timeout(LOST_SECONDS * 1000);
  const slow = setInterval(() => {
    const seconds = Math.round((performance.now() - began) / 1000);
    if (seconds >= SLOW_SECONDS) notice("slow", "plain", "The service is slow to answer.", `Waiting for ${seconds} s.`);
  }, 1000);
  try {
    const reply = await fetch(new URL(path, BASE), {
      method: body ? "POST" : "GET",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) },
      body: body && JSON.stringify(body), cache: "no-store", credentials: "omit",
      signal: signal ? AbortSignal.any([signal, lost]) : lost,
    });
    const text = await reply.text(), json = reply.headers.get("Content-Type")?.startsWith("application/json");
    if (reply.ok) return JSON.parse(text);
    const told = (json && JSON.parse(text).error?.message) || `the service answered with status ${reply.status}`;
    const seconds = Number(reply.headers.get("Retry-After")) || undefined;
    throw Object.assign(new Error(told), { status: reply.status, seconds });
  } catch (error) {
    throw signal?.aborted || error.status ? error : Object.assign(error, { status: 0 });
  } finally {
    clearInterval(slow);
    notice("slow");
  }
}

/**
 * Call until there is an answer: after a pause where the service is away or busy, with another key where it refuses one.
 * acting: for somebody who waits for it.
 */
async function patiently(path, body, { signal, acting } = {}) {
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    try {
      const reply = await call(path, body, signal);
      tellService("ready");
      return reply;
    } catch (error) {
      if (error.status === 401) await anotherKey(error, acting);
      else if ([0, 429, 502, 503].includes(error.status)) await pause(error, error.seconds ?? PAUSES[attempt] ?? PAUSES.at(-1));
      else throw error;
    }
  }
}

let paused = null; // the pause that all wait for, and how to end it

function pause(error, seconds) {
  if (paused) return paused.promise;
  const away = [0, 502].includes(error.status), until = performance.now() + seconds * 1000;
  tellService(away ? "away" : "busy");
  const words = away
    ? `The service at ${BASE.host} does not answer. What you typed is kept, and sent when it is back.`
    : `The service asks for patience: ${error.message}.`;
  const tell = () => {
    const left = Math.ceil((until - performance.now()) / 1000), now = ["Try now", () => paused?.end()];
    if (left <= 0) paused.end();
    else notice("connection", away ? "bad" : "warn", words, `Trying again in ${left} s.`, now);
  };
  const counting = setInterval(tell, 250), { promise, resolve } = Promise.withResolvers();
  paused = { promise, end: () => { clearInterval(counting); paused = null; resolve(); } };
  tell();
  return promise;
}

let entered = null; // what waits for a key, and how to wake it

function openKeyForm() {
  part("access").open = true;
  part("key").focus();
}

const needKey = (words) => notice("key", "bad", words, "", ["Enter a key", openKeyForm]);

function anotherKey(error, acting) {
  tellService("key");
  needKey(`${error.message[0].toUpperCase()}${error.message.slice(1)}. What you typed is kept.`);
  if (acting) openKeyForm();
  entered ??= Promise.withResolvers();
  return entered.promise;
}

function useKey(event) {
  event.preventDefault();
  const typed = part("key").value.trim();
  part("key").value = "";
  if (/[^\x21-\x7e]/.test(typed)) { // no request can have it in its head: it would look like a lost connection
    needKey("That is no API key: it has a space, or a character other than the letters, digits and signs of ASCII.");
    return openKeyForm();
  }
  key = typed;
  part("access").open = false;
  notice("key");
  if (entered) entered.resolve();
  else refresh();
  entered = null;
  showCode();
}

function tellService(condition) {
  if (condition === "ready") notice("connection");
  const told = condition !== "ready" ? { away: "No answer", busy: "Busy", key: "Needs a key" }[condition]
    : `Ready${state.release ? ` · release ${state.release.release}` : ""}`;
  part("service").dataset.state = condition;
  if (part("service").textContent !== told) part("service").textContent = told;
}

// ---- What the page knows ----

const state = {
  release: null, reference: null, // as the service tells them
  tau: null, // the threshold that was chosen; null is the calibrated one
  search: null, reply: null, all: null, // the last search, its reply, and the reply with what the threshold dropped
  judged: new Map(), fields: new Set(), language: "curl",
};
const policy = () => state.release?.manifest.policy ?? { kind: "similarity", tau: null };
const asked = () => (state.search?.threshold === undefined ? state.reply?.threshold : null); // of a stratum, it may be
const tauInForce = () => state.tau ?? asked() ?? policy().tau;

const REASONS = {
  generated_queries: "its queries were generated, not asked by people", few_documents: "its corpus is no larger than K",
  few_queries: "too few of its queries were asked and labelled by people",
};
const SIGNALS = {
  topk_similarity: "similarity of the top-K", roe: "random documents (ROE)", coe: "correct documents (COE)",
  empty_responses: "empty responses", dropped_share: "dropped results", canary: "golden queries",
};

const named = (signals) => signals.map((signal) => SIGNALS[signal] ?? signal).join(", ");

/** Ask for the release and its drift, and for its distributions where the release is new. */
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

/** Say what nobody may overlook. */
function warn() {
  const { release, reply } = state, reasons = release?.manifest.calibration?.reasons ?? [];
  const why = reasons.map((reason) => REASONS[reason] ?? reason).join("; ");
  const provisional = (release?.calibration ?? reply?.calibration) === "provisional";
  notice("provisional", "warn", provisional && `Provisional: too little evidence stands behind this threshold${
    why && `, as ${why}`}. Do not rely on its figures.`);
  notice("uncut", "warn", release && policy().kind === "none"
    && "This release has no threshold: none could be certified. Nothing is dropped.");
  const signals = new Set([release?.drift, reply?.drift].flatMap((drift) => (drift?.alarm ? drift.signals : [])));
  const gauges = ["See the gauges", () => part("drift").scrollIntoView({ block: "center" })];
  notice("drift", "bad", signals.size
    && `Drift alarm: ${named([...signals])}. What was measured at calibration may not hold for this traffic.`, "", gauges);
}

// ---- Ask ----

/** Read the form. Throws SyntaxError where the filter is not JSON. @returns {Search} */
function readSearch() {
  const search = { query: part("question").value.trim() };
  const k = part("k").valueAsNumber, filter = part("filter").value.trim();
  if (!Number.isNaN(k)) search.k = k;
  if (part("grouped").checked) search.group_by = "document";
  if (filter) search.filter = JSON.parse(filter);
  if (state.tau !== null) search.threshold = state.tau;
  return search;
}

/** Read the form; where that fails, say why beside the filter and return null. */
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
  const find = (fields) => patiently("search", { ...search, explore: false, ...fields }, { signal, acting: true });
  send.textContent = "Asking …";
  try {
    const reply = await find({});
    // Once more, with what the threshold drops: the first reply is what an application gets.
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
    complain(error.message.startsWith("filter") ? "filter" : "", `Not answered: ${error.message}.`);
  }
  send.textContent = "Ask";
}

// ---- Results ----

function showAnswer() {
  const { reply, all, tau } = state;
  if (!reply) return;
  const [kept, dropped] = [true, false].map((side) => all.results.filter((each) => isKept(each, all, tau) === side));
  part("answer-hint").textContent = "To judge, press the buttons, or y and n on a result that has the focus.";
  part("kept").replaceChildren(...kept.map((each) => resultItem(each, true)));
  part("dropped-part").hidden = !dropped.length;
  part("dropped-title").textContent = `Dropped: ${dropped.length} of ${all.results.length}`;
  part("dropped").replaceChildren(...dropped.map((each) => resultItem(each, false)));
  const judge = () => document.querySelector(".result").focus();
  part("verdict").replaceChildren(`${verdict(reply, all, kept)} `, stateOf(reply), " ",
    all.results.length ? button("Judge the results", judge, { class: "link" }) : "");
}

/** Say in a sentence what came of a search. */
function verdict(reply, all, kept) {
  const tau = tauInForce(), n = reply.considered;
  if (!n) return "No document matches the filter.";
  const best = compared(all.results[0], reply.policy, reply.best_score);
  if (reply.reason === "unanswerable" && state.tau === null) {
    return `Refused: the documents seem to hold no answer. The best of ${n} results has ${fixed(best)}.`;
  }
  if (tau === null) return `${n} results, none dropped: this release has no threshold.`;
  const pass = kept.length === 1 ? "passes" : "pass";
  if (kept.length) return `${kept.length} of ${n} results ${pass} the threshold ${tauIs(tau)}.`;
  return `Nothing passes the threshold ${tauIs(tau)}. The best of ${n} has ${fixed(best)}, ${distance(best, tau)} below it.`;
}

function stateOf(reply) {
  if (reply.drift.alarm) return chip("Drift alarm", "bad");
  if (reply.calibration === "provisional") return chip("Provisional", "warn");
  if (state.tau !== null) return chip("Not calibrated: τ was moved");
  if (reply.calibrated) return chip("Calibrated", "good");
  const { filter, k } = state.search;
  return chip(`Not covered by the calibration${filter ? ": a filter is set" : k ? ": another k is set" : ""}`);
}

/** @param {Result} result @param {boolean} kept */
function resultItem(result, kept) {
  const value = compared(result, state.all.policy, state.all.best_score), tau = tauInForce(), passed = value >= tau;
  const margin = tau !== null && value !== null
    && [`${!kept && passed ? "refused, " : ""}${passed ? "above" : "below"} τ by`, distance(value, tau)];
  const [titled, texted] = ["title", "text"].map((name) => `result-${result.rank}-${name}`);
  const long = result.text?.length > 320;
  const passage = make("p", { class: `passage${long ? " long" : ""}`, dir: "auto", id: texted }, result.text ?? "");
  const unfold = ({ target }) => { target.textContent = passage.classList.toggle("long") ? "Show all" : "Show less"; };
  const judge = (relevant, words) => button(words, () => judgeResult(result, relevant, item),
    { "aria-pressed": String(state.judged.get(result.id) === relevant), "data-relevant": String(relevant) });
  const why = () => { part("document").value = result.id; explain(); part("why").scrollIntoView({ block: "nearest" }); };
  const item = make("article", { class: "result", tabindex: "0", "aria-labelledby": titled, "aria-describedby": texted,
    "aria-keyshortcuts": "y n", onkeydown: judgeByKey },
    make("h3", { dir: "auto", id: titled }, make("span", { class: "rank" }, `${result.rank}  `), result.title || result.id),
    passage, long && button("Show all", unfold, { class: "link" }),
    figures(["Score", fixed(result.score)], result.relevance !== null && ["Relevance", percent(result.relevance)], margin),
    make("p", { class: "chips" }, ...[["id", result.id], ...Object.entries(result.metadata)].map(([name, each]) =>
      chip(`${name}: ${Array.isArray(each) ? each.join(", ") : each}`))),
    make("div", { class: "actions" }, judge(true, "Relevant"), judge(false, "Not relevant"),
      !kept && button("Why?", why, { class: "link" }), make("span", { role: "status", class: "hint" })));
  return make("li", {}, item);
}

function judgeByKey(event) {
  if (event.target !== event.currentTarget || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  const pressed = event.target.querySelector(`[data-relevant=${{ y: true, n: false }[event.key.toLowerCase()]}]`);
  if (!pressed) return;
  event.preventDefault();
  pressed.click();
  const items = [...document.querySelectorAll(".result")];
  items[items.indexOf(event.target) + 1]?.focus();
}

/** Send a judgement; one that is sent twice counts once, so it may be sent again after a broken connection. */
async function judgeResult(result, relevant, item) {
  const before = state.judged.get(result.id), said = item.querySelector("[role=status]");
  const mark = (verdict) => {
    state.judged.set(result.id, verdict);
    press(item.querySelectorAll("[data-relevant]"), (each) => each.dataset.relevant === String(verdict));
  };
  mark(relevant);
  said.textContent = "Sending …";
  try {
    await patiently("feedback", { query_id: state.all.query_id, document_id: result.id, relevant }, { acting: true });
    said.textContent = relevant ? "Judged relevant." : "Judged not relevant.";
  } catch (error) {
    mark(before);
    said.textContent = `Not judged: ${error.status === 404 ? "this reply is too old, ask again" : error.message}.`;
  }
}

// ---- The threshold, on the distributions of the release ----

const SETS = [["correct", "Correct documents"], ["topk", "Top-K results"], ["random", "Random documents"]];
const LINES = [["kept", "Results kept"], ["loss", "Queries that lose their answer"]];
const PAD = 22; // pixels at both sides of the drawing

// What a policy compares that does not compare similarities: from 0 to 1, on a scale of its own.
const OWN_SCALES = { relative: "shares of the best similarity", probability: "relevance" };
const ownScale = () => OWN_SCALES[policy().kind];

/** Return the range that τ may be moved in. */
function tauRange() {
  if (ownScale()) return [0, 1];
  const scores = (state.all?.results ?? []).map((each) => each.score);
  const values = [...scores, ...SETS.flatMap(([name]) => state.reference[name])];
  return [Math.floor(Math.min(...values) * 20) / 20, Math.ceil(Math.max(...values) * 20) / 20];
}

/** Take another threshold; null: the calibrated one, for which the service is asked again, as it may refuse a query. */
function setTau(value) {
  const [low, high] = tauRange();
  state.tau = value === null ? null : Math.min(high, Math.max(low, Math.round(value * 1000) / 1000));
  if (value === null && state.search?.threshold !== undefined) ask();
  showThreshold();
  showAnswer();
}

function showThreshold() {
  showCode();
  const { reference } = state;
  for (const id of ["figure", "figure-table", "legend", "threshold-controls"]) part(id).hidden = !reference;
  if (!reference) return;
  const tau = tauInForce(), [low, high] = tauRange(), set = tau ?? low;
  const point = tau === null ? null : onCurve(reference.curve, tau);
  let effect = "No threshold is in force. Move the slider to try one.";
  if (tau !== null) effect = `At ${tauIs(tau)}, this release does not tell what is kept and lost.`;
  if (point) effect = `At ${tauIs(tau)} you keep ${percent(point.kept)} of the results, and lose the answers to ${
    percent(point.loss)} of the calibration queries.${
    state.release?.manifest.abstention ? " Queries that this release refuses as a whole are not counted." : ""}`;
  part("effect").textContent = effect;
  part("scales").hidden = !ownScale();
  part("scales").textContent = `Above: similarities. Below: ${ownScale()}, which τ is compared with.`;
  part("tau").value = fixed(set);
  part("tau-reset").disabled = state.tau === null;
  const values = { valuemin: low, valuemax: high, valuenow: fixed(set), valuetext: effect };
  for (const [name, value] of Object.entries(values)) part("slider").setAttribute(`aria-${name}`, value);
  drawFigure(low, high, set);
  const steps = reference.curve.filter((_, i) => i % Math.ceil(reference.curve.length / 12) === 0);
  part("figure-table").replaceChildren(part("figure-table").firstElementChild,
    table("Percentiles of the similarities at calibration", ["Percentile", ...SETS.map(([, words]) => words)],
      [1, 5, 25, 50, 75, 95, 99].map((row) => [String(row), ...SETS.map(([name]) => fixed(reference[name][row]))])),
    table("What a threshold keeps and loses", ["τ", ...LINES.map(([, words]) => words)],
      steps.map((each) => [fixed(each.tau), percent(each.kept), percent(each.loss)])));
}

/** Draw the densities, the results of the last search as dots, and what thresholds keep and lose, with τ through all. */
function drawFigure(low, high, tau) {
  const { reference, all } = state, own = ownScale(), sets = SETS.map(([name]) => reference[name]);
  const width = part("figure").clientWidth || 320, [tall, short] = width > 420 ? [150, 76] : [116, 60];
  const base = 24 + tall, top = base + (own ? 62 : 34), bottom = top + short, height = bottom + 44, above = own ? top : 24;
  const ends = own ? [Math.min(...sets.flat()), Math.max(...sets.flat())] : [low, high];
  const scale = (from, to) => (x) => PAD + ((x - from) / (to - from)) * (width - 2 * PAD);
  const x = scale(low, high), at = x(tau), similarityX = scale(...ends);
  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
  const line = (name, x1, y1, x2, y2) => draw("line", { class: name, x1, y1, x2, y2 });
  const write = (words, at, y, anchor, name) => draw("text", { x: at, y, "text-anchor": anchor, class: name }, words);
  const axis = (y, from, to, place) => [line("axis", PAD, y, width - PAD, y), ...ticks(from, to, width / 60).map((value) =>
    write(value.toFixed(to - from < 0.2 ? 2 : 1), place(value), y + 34, "middle"))];

  const xs = Array.from({ length: 141 }, (_, i) => ends[0] + ((ends[1] - ends[0]) * i) / 140);
  const densities = sets.map((each) => density(each, xs)), peak = Math.max(...densities.flat());
  const hills = SETS.flatMap(([name], i) => {
    const hill = path(densities[i].map((y, j) => [similarityX(xs[j]), base - (tall * y) / peak]));
    const area = draw("path", { class: `area ${name}`, d: `${hill}V${base}H${PAD}Z` });
    return [area, draw("path", { class: `curve ${name}`, d: hill })];
  });
  const dots = (all?.results ?? []).map((each) => draw("circle",
    { class: `dot${isKept(each, all, state.tau) ? " in" : ""}`, cx: similarityX(each.score), cy: base + 14, r: 5 }));

  const inside = reference.curve.map((point) => point.tau).filter((each) => each > low && each < high);
  const points = [low, ...inside, high].map((each) => ({ ...onCurve(reference.curve, each), tau: each }));
  const track = (name) => path(points.map((point) => [x(point.tau), bottom - short * point[name]]));
  const lines = !reference.curve.length ? [] : [
    ...LINES.map(([name]) => draw("path", { class: `curve ${name}`, d: track(name) })),
    write("results kept", at < PAD + 90 ? at + 6 : PAD + 4, top + 16, "start"), // not on the line of τ
    write("answers lost", width - PAD, bottom - short * points.at(-1).loss - 6, "end")];
  const grid = [0.5, 1].map((share) => line("grid", PAD, bottom - short * share, width - PAD, bottom - short * share));

  const shade = { class: "below", x: PAD, y: above, width: Math.max(at - PAD, 0), height: bottom - above };
  const marks = [], calibrated = policy().tau;
  const moved = state.tau !== null && calibrated !== null;
  if (moved) marks.push(line("tau-calibrated", x(calibrated), above - 6, x(calibrated), bottom));
  if (tauInForce() !== null) marks.push(line("tau-line", at, above - 8, at, bottom),
    write(`τ ${fixed(tau)}`, Math.min(Math.max(at, PAD + 24), width - PAD - 24), above - 12, "middle", "strong"));
  part("figure").querySelector("svg").replaceWith(
    draw("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" }, ...hills,
      tauInForce() !== null && draw("rect", shade), ...dots, ...grid, ...lines, ...axis(bottom, low, high, x),
      ...(own ? axis(base, ...ends, similarityX) : [line("axis", PAD, base, width - PAD, base)]), ...marks));
  Object.assign(part("slider").style, { left: `${at}px`, top: `${bottom - 22}px` });
}

function moveByKey(event) {
  const [low, high] = tauRange(), now = tauInForce() ?? low;
  const by = { ArrowLeft: -0.005, ArrowDown: -0.005, ArrowRight: 0.005, ArrowUp: 0.005, PageDown: -0.05, PageUp: 0.05 };
  const to = { Home: low, End: high }[event.key] ?? now + by[event.key];
  if (Number.isNaN(to) || event.ctrlKey || event.altKey || event.metaKey) return; // Alt and ← goes back a page
  event.preventDefault();
  setTau(to);
}

function moveByPointer(event) {
  if (event.type === "pointerdown") {
    event.currentTarget.setPointerCapture(event.pointerId);
    part("slider").focus({ preventScroll: true });
    event.preventDefault(); // which would give the focus away again
  } else if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
  const box = part("figure").getBoundingClientRect(), [low, high] = tauRange();
  setTau(low + ((event.clientX - box.left - PAD) / (box.width - 2 * PAD)) * (high - low));
}

// ---- Why not this document?, code, release, drift ----

async function explain(event) {
  event?.preventDefault();
  const search = checkedSearch(), document_id = part("document").value.trim();
  const tell = (...said) => part("explanation").replaceChildren(...said.filter(Boolean));
  if (!document_id) part("document").focus();
  if (!document_id || !search) return;
  if (!search.query) return tell(hint("Type the question first, at the top of the page."));
  tell(hint("Asking …"));
  try {
    const found = await patiently("explain", { ...search, document_id }, { acting: true });
    tell(make("p", {}, make("strong", {}, found.kept ? "It is among the results. " : "It is left out. "), found.why),
      found.truncated && make("p", {}, "Its text is longer than the encoder reads; the end of it cannot be found."),
      found.rank !== null && figures(["Rank", `${found.rank} of ${found.ranked}`], ["Score", fixed(found.score)],
        found.relevance !== null && ["Relevance", percent(found.relevance)], ["τ", fixed(found.threshold)]));
  } catch (error) {
    tell(make("p", { class: "error" }, `${error.message}.`));
  }
}

function showCode() {
  let search;
  try { search = readSearch(); } catch { return; } // the filter is being typed
  part("options-set").textContent = search.k || search.filter || search.group_by ? " (in use)" : "";
  search.query ||= "How do I pay?";
  part("snippet").textContent = languages[state.language](search, BASE.href.replace(/\/$/, ""), key !== "");
  press(part("languages").children, (each) => each.textContent === state.language);
}

async function copy() {
  try {
    await navigator.clipboard.writeText(part("snippet").textContent);
    part("copied").textContent = "Copied.";
  } catch { // not allowed, or not encrypted
    getSelection().selectAllChildren(part("snippet"));
    part("copied").textContent = "Selected: press Ctrl+C to copy.";
  }
}

const METRICS = {
  accuracy: "Accuracy, uncut", accuracy_at_tau: "Accuracy at τ", ndcg: "NDCG, uncut", ndcg_at_tau: "NDCG at τ",
  coe: "COE", roe: "ROE",
};

function showRelease(release) {
  const show = (...shown) => part("release-facts").replaceChildren(...shown);
  if (release instanceof Error) return show(hint(`The release cannot be shown: ${release.message}.`));
  const { manifest } = release, { calibration, heldout } = manifest.metrics;
  const { tau, kind, k, method, guarantee } = manifest.policy;
  const facts = {
    State: chip(release.calibration, release.calibration === "provisional" ? "warn" : "good"),
    Release: release.release, "Tried beside it": release.shadow, Documents: manifest.data.documents.toLocaleString("en"),
    Threshold: tau === null ? "none" : `${tauIs(tau)}, on ${kind}, for K = ${k}`,
    Method: method, Evidence: guarantee,
    Queries: `${manifest.data.answerable.toLocaleString("en")} with an answer, ${manifest.data.unanswerable} without`,
    Encoder: `${manifest.encoder.name} (${release.precision})`, Loaded: new Date(release.loaded_at).toLocaleString(),
  };
  const given = Object.entries(facts).filter(([, value]) => value);
  const measured = (found) => (found ? `${percent(found.mean)} (${between(found)})` : "–");
  const rows = Object.entries(METRICS).filter(([name]) => calibration[name]).map(([name, words]) =>
    [words, interval(calibration[name]), measured(calibration[name]), ...(heldout ? [measured(heldout[name])] : [])]);
  show(make("dl", { class: "facts" }, ...given.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    table("Measured, with 95 % intervals", ["Metric", "", "Calibration", ...(heldout ? ["Held out"] : [])], rows));
}

function showDrift(release) {
  const show = (...shown) => part("gauges").replaceChildren(...shown);
  if (release instanceof Error) return show(hint("An alarm of a reply is shown at the top of the page all the same."));
  if (!release.drift) return show(hint("Traffic is not watched here: TAUGATE_DRIFT is false."));
  const { alarm, signals, coe, coe_expected, roe } = release.drift, { calibration } = release.manifest.metrics;
  const live = [["COE, judged", "coe", coe], ["COE, expected", "coe", coe_expected], ["ROE", "roe", roe]];
  const rows = live.map(([words, name, now]) => [words, interval(now ?? calibration[name]), between(calibration[name]),
    now ? `${percent(now.mean)} (${between(now)})` : "not yet"]);
  show(make("p", {}, alarm ? chip("Alarm", "bad") : chip("No alarm", "good"), alarm && ` ${named(signals)}`),
    table("How well the encoder tells documents apart", ["Metric", "", "Calibration", "Now"], rows));
}

function startPlayground() {
  const listen = (id, type, listener) => part(id).addEventListener(type, listener);
  listen("ask-form", "submit", ask);
  listen("ask-form", "input", showCode);
  listen("question", "input", ({ target }) => {
    target.style.height = "auto";
    target.style.height = `${target.scrollHeight + 2}px`;
  });
  listen("question", "keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event);
  });
  listen("key-form", "submit", useKey);
  listen("why-form", "submit", explain);
  listen("copy", "click", copy);
  for (const each of part("languages").children) {
    each.addEventListener("click", () => { state.language = each.textContent; showCode(); });
  }
  listen("slider", "keydown", moveByKey);
  for (const type of ["pointerdown", "pointermove"]) listen("figure", type, moveByPointer);
  listen("tau", "change", ({ target }) => { if (!Number.isNaN(target.valueAsNumber)) setTau(target.valueAsNumber); });
  listen("tau-reset", "click", () => { part("slider").focus(); setTau(null); });
  new ResizeObserver(() => { if (state.reference) drawFigure(...tauRange(), tauInForce() ?? tauRange()[0]); })
    .observe(part("threshold"));
  showCode();
  refresh();
  setInterval(() => { if (!document.hidden && !paused && !entered) refresh(); }, 15_000);
}

// ---- Judging: one result after the other, and the key that the judge pressed ----

function startJudging() {
  document.title = "Judge results";
  let shown = null; // what the server said last
  let waiting = false; // for its answer: a second key would be about a result that nobody has read

  const fill = (id, segments) =>
    part(id).replaceChildren(...segments.map(([text, matched]) => (matched ? make("mark", {}, text) : text)));

  function show(next) {
    const before = shown, asks = next.message === undefined;
    shown = next;
    for (const id of ["progress", "remark", "message"]) part(id).textContent = next[id] ?? "";
    for (const id of ["asked", "query", "passage"]) part(id).hidden = !asks;
    if (asks) {
      for (const id of ["query", "heading"]) part(id).textContent = next[id];
      for (const id of ["title", "text"]) fill(id, next[id]);
    }
    const keys = Object.entries(next.stopped ? {} : next.keys).filter(([letter]) => asks || "uq".includes(letter));
    part("keys").replaceChildren(...keys.map(([letter, action]) => {
      const attributes = { class: "yn".includes(letter) && "judges", "aria-keyshortcuts": letter };
      const labelled = button(action[0].toUpperCase() + action.slice(1), () => press(letter), attributes);
      labelled.append(make("kbd", {}, letter));
      return labelled;
    }));
    part("letters").parentElement.hidden = Boolean(next.stopped);
    if (before && asks) {
      scrollTo(0, 0);
      part("passage").focus({ preventScroll: true }); // so that a screen reader reads it
    }
  }

  async function press(letter) {
    if (waiting || !shown || shown.stopped) return;
    waiting = true;
    await call("key", { key: letter, pair: shown.pair ?? "" }).then(show).catch(() => {
      part("remark").textContent = "No answer from taugate judge. Is it still running? All earlier judgements are kept.";
    });
    waiting = false;
  }

  addEventListener("keydown", (event) => {
    const own = event.ctrlKey || event.altKey || event.metaKey || event.repeat || !part("letters").checked;
    const letter = event.key.toLowerCase();
    if (own || !(letter in (shown?.keys ?? {}))) return;
    event.preventDefault();
    press(letter);
  });

  call("state").then(show).catch(() => {
    part("progress").textContent = "No answer from taugate judge. Start it again, and open the address that it prints.";
  });
}

if (document.body.dataset.mode === "judge") startJudging();
else startPlayground();
