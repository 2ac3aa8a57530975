// The page of /playground, and of `taugate judge --web`. It asks only the server that it came from, keeps nothing after
// it is closed, and puts every text into the page as a text. From top to bottom: computing, building elements, asking
// the service, the views, judging, start.

/** @typedef {{tau: number, kept: number, loss: number}} CurvePoint */
/** @typedef {{id: string, document_id: string, rank: number, score: number, relevance: ?number, below_threshold: boolean,
 *   title: ?string, text: ?string, metadata: Object}} Result */
/** @typedef {{query: string, k?: number, group_by?: string, filter?: Object, threshold?: number}} Search */

// ---- Computing: functions of their arguments alone ----

export const fixed = (number, digits = 3) => (number === null || Number.isNaN(number) ? "–" : number.toFixed(digits));

/** Write a share of 0…1 in per cent, with a decimal below ten: 61 %, 1.8 %. */
export function percent(share) {
  const shown = share * 100;
  return `${shown > 0 && shown < 9.95 ? shown.toFixed(1) : Math.round(shown)}\u00a0%`;
}

/** Write an interval of shares: 72–88 %. */
export const between = ({ lower, upper }) => `${percent(lower).replace("\u00a0%", "")}–${percent(upper)}`;

/** Write how far two similarities are apart. */
export function distance(one, other) {
  const apart = Math.abs(one - other);
  return apart < 0.001 ? "less than 0.001" : apart.toFixed(3);
}

/**
 * Estimate a density from quantiles: Gaussian kernels on 400 values drawn evenly from them, as wide as Silverman's rule
 * of thumb asks (Density Estimation, 1986, equation 3.31).
 * @param {number[]} quantiles evenly spaced, of the probabilities 0 to 1
 * @param {number[]} xs where the density is wanted
 * @returns {number[]} the density at each of them
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

/**
 * Look up what a threshold keeps and loses: what the next higher point of the curve does, as the cut falls just below it.
 * @param {CurvePoint[]} curve by rising threshold @param {number} tau @returns {?CurvePoint} null without a curve
 */
export function onCurve(curve, tau) {
  return curve.find((point) => point.tau >= Math.fround(tau)) ?? curve.at(-1) ?? null;
}

/** Return what a policy compares with τ, in float32 as the service does. */
export function compared(result, policy, best) {
  if (policy === "probability") return result.relevance;
  return policy === "relative" ? Math.fround(result.score / best) : result.score;
}

/** Tell whether a result is kept; tau: null is the verdict of the service. */
export function isKept(result, reply, tau) {
  if (tau === null) return !result.below_threshold;
  return Math.fround(compared(result, reply.policy, reply.best_score)) >= Math.fround(tau);
}

/** Return round numbers for an axis. */
export function ticks(low, high, most) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1].find((each) => (high - low) / each <= most) ?? high - low;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

/** Read Prometheus's text format: {name: [{labels, value}]}. */
export function readMetrics(text) {
  const found = {};
  for (const [, name, labels, value] of text.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)) {
    const pairs = [...(labels ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((each) => [each[1], each[2]]);
    (found[name] ??= []).push({ labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return found;
}

const pythonName = new Map([[true, "True"], [false, "False"], [null, "None"]]);

/** Write a JSON value as a literal of Python. */
export function pythonLiteral(value) {
  if (pythonName.has(value)) return pythonName.get(value);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonLiteral(each)}`).join(", ")}}`;
}

const pythonArguments = (options) =>
  Object.entries(options).map(([name, value]) => `, ${name}=${pythonLiteral(value)}`).join("");

/**
 * Write a search as code, in each language that the page offers.
 * @param {Search} search @param {string} url of the service @param {boolean} keyed whether it needs a key
 */
export const languages = {
  curl(search, url, keyed) {
    const body = JSON.stringify(search).replaceAll("'", "'\\''");
    const key = keyed ? ' \\\n  -H "Authorization: Bearer $TAUGATE_KEY"' : "";
    return `curl -s ${url}/search${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  },
  Python({ query, ...options }, url, keyed) {
    return `${keyed ? "# The key is read from the environment variable TAUGATE_KEY.\n" : ""}from taugate_client import TaugateClient

with TaugateClient("${url}") as taugate:
    reply = taugate.search(${JSON.stringify(query)}${pythonArguments(options)})
    for result in reply.results:
        print(result.score, result.text)
    if not reply.results:
        print("nothing found:", reply.reason)`;
  },
  LangChain({ query, group_by, ...options }, url, keyed) {
    const notes = [
      keyed && "The key is read from the environment variable TAUGATE_KEY.",
      group_by && "This retriever counts chunks, not documents.",
      options.threshold !== undefined && "Here a threshold only tightens: below the calibrated one it changes nothing.",
    ];
    return `${notes.filter(Boolean).map((note) => `# ${note}\n`).join("")}from langchain_taugate import TaugateRetriever

retriever = TaugateRetriever(url="${url}")
for document in retriever.invoke(${JSON.stringify(query)}${pythonArguments(options)}):
    print(document.metadata["score"], document.page_content)`;
  },
};

// ---- Building elements ----

const part = (id) => document.getElementById(id);
const SVG = document.querySelector("svg")?.namespaceURI;

/** Make a function that builds elements: attributes by name, `on…` a listener; null and false leave one out. */
const builder = (create) => (tag, attributes = {}, ...children) => {
  const element = create(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};
const make = builder((tag) => document.createElement(tag));
const draw = builder((tag) => document.createElementNS(SVG, tag));

const button = (words, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, words);
const hint = (words) => make("p", { class: "hint" }, words);
const figures = (...pairs) =>
  make("p", { class: "figures" }, ...pairs.filter(Boolean).map(([name, value]) => make("span", {}, `${name} `, make("b", {}, value))));

/** Build a table; rows: cells, of which an element stands in the column that is drawn. */
function table(caption, head, rows) {
  const cell = (value, i) =>
    i === 0 ? make("th", { scope: "row" }, value) : make("td", { class: value instanceof Element ? "drawn" : null }, value);
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))))));
}

/** Draw an interval with its mean on a line from 0 to 1. */
const interval = ({ mean, lower, upper }) =>
  draw("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { class: "grid", x1: 0, x2: 100, y1: 7, y2: 7 }),
    draw("rect", { class: "area correct", x: 100 * lower, width: Math.max(100 * (upper - lower), 0.5), y: 3, height: 8 }),
    draw("rect", { class: "dot in", x: 100 * mean - 0.4, width: 0.8, y: 2, height: 10 }));

/**
 * Show a notice above everything else, or take it away where there are no words.
 * @param {"warn"|"bad"|"plain"} tone @param {string} [aside] changes often, so that it is not read out
 * @param {[string, Function]} [action] words of a button, and what it does
 */
function notice(name, tone, words, aside = "", action) {
  let shown = part(`notice-${name}`);
  if (!words) return shown?.remove();
  if (shown?.dataset.words !== words) {
    shown?.remove();
    const said = make("p", {}, make("span", {}, words), make("span", { "aria-hidden": "true" }));
    const role = tone === "plain" ? "status" : "alert";
    const attributes = { id: `notice-${name}`, class: "notice", role, "data-tone": tone, "data-words": words };
    shown = make("div", attributes, said, action && button(...action));
    part("notices").append(shown);
  }
  shown.querySelector("p").lastElementChild.textContent = aside && ` ${aside}`;
}

// ---- Asking the service ----

const BASE = new URL(".", location.href);
const SLOW_SECONDS = 2, LOST_SECONDS = 30, PAUSES = [1, 2, 4, 8]; // the service itself gives up after 5 s by default
let key = ""; // in this variable alone: no storage, no address, no cookie has it

class Refused extends Error {
  constructor(status, error, seconds) {
    super(error?.message ?? `the service answered with status ${status}`);
    Object.assign(this, { status, code: error?.code ?? "", seconds });
  }
}
class Unreachable extends Error {}

/** Send one request and return its JSON, or its text. Throws Refused, Unreachable, or that it was aborted. */
async function call(path, body, signal) {
  const began = performance.now(), lost = AbortSignal.timeout(LOST_SECONDS * 1000);
  const slow = setInterval(() => {
    const seconds = Math.round((performance.now() - began) / 1000);
    if (seconds >= SLOW_SECONDS) notice("slow", "plain", "The service is slow to answer. You need not do anything.", `Waiting for ${seconds} s.`);
  }, 1000);
  let reply, text;
  try {
    reply = await fetch(new URL(path, BASE), {
      method: body ? "POST" : "GET",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) },
      body: body && JSON.stringify(body), cache: "no-store", credentials: "omit",
      signal: signal ? AbortSignal.any([signal, lost]) : lost,
    });
    text = await reply.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(lost.aborted ? `no answer within ${LOST_SECONDS} seconds` : "no answer");
  } finally {
    clearInterval(slow);
    notice("slow");
  }
  const json = reply.headers.get("Content-Type")?.startsWith("application/json");
  if (reply.ok) return json ? JSON.parse(text) : text;
  const seconds = Number(reply.headers.get("Retry-After")) || undefined;
  throw new Refused(reply.status, json ? JSON.parse(text).error : undefined, seconds);
}

/** Call until there is an answer: after a pause where the service is away or busy, with another key where it asks for one. */
async function patiently(path, body, { signal, acting } = {}) {
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    try {
      const reply = await call(path, body, signal);
      service("ready");
      return reply;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) await anotherKey(error, acting);
      else if (error instanceof Unreachable || [429, 502, 503].includes(error.status)) {
        await pause(error, error.seconds ?? PAUSES[Math.min(attempt, PAUSES.length - 1)]);
      } else throw error;
    }
  }
}

let paused = null; // the pause that all wait for, and how to end it

function pause(error, seconds) {
  if (paused) return paused.promise;
  const away = error instanceof Unreachable || error.status === 502;
  service(away ? "away" : "busy");
  const words = away
    ? `The service at ${BASE.host} does not answer. What you typed is kept, and sent when it is back.`
    : `The service asks for patience: ${error.message}.`;
  const until = performance.now() + seconds * 1000;
  const tell = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    if (left <= 0) paused.end();
    else notice("connection", away ? "bad" : "warn", words, `Trying again in ${left} s.`, ["Try now", () => paused?.end()]);
  };
  const counting = setInterval(tell, 250);
  const promise = new Promise((resolve) => {
    paused = { end: () => { clearInterval(counting); paused = null; resolve(); } };
  });
  paused.promise = promise;
  tell();
  return promise;
}

let entered = null; // what waits for a key, and how to wake it

function anotherKey(error, acting) {
  service("key");
  const open = () => { part("access").open = true; part("key").focus(); };
  const words = `${error.message[0].toUpperCase()}${error.message.slice(1)}. What you typed is kept.`;
  notice("key", "bad", words, "", ["Enter a key", open]);
  if (acting) open();
  if (!entered) {
    entered = {};
    entered.promise = new Promise((resolve) => { entered.wake = () => { entered = null; resolve(); }; });
  }
  return entered.promise;
}

function useKey(event) {
  event.preventDefault();
  key = part("key").value.trim();
  part("key").value = "";
  part("access").open = false;
  notice("key");
  if (entered) entered.wake();
  else refresh();
}

function service(condition) {
  if (condition === "ready") notice("connection");
  const words = { ready: "Ready", away: "No answer", busy: "Busy", key: "Needs a key" }[condition];
  part("service").dataset.state = condition;
  const told = state.release && condition === "ready" ? `${words} · release ${state.release.release}` : words;
  if (part("service").textContent !== told) part("service").textContent = told;
}

// ---- What the page knows ----

const state = {
  release: null, reference: null, gauges: null, // as the service tells
  tau: null, // the threshold that was chosen; null is the calibrated one
  reply: null, all: null, // to the last search: as an application gets it, and with what was dropped
  search: null, judged: new Map(), fields: new Set(), language: "curl",
};
const calibratedTau = () => state.release?.manifest.policy.tau ?? null;
const tauInForce = () => state.tau ?? (state.search?.threshold === undefined ? state.reply?.threshold : null) ?? calibratedTau();
const policyKind = () => state.release?.manifest.policy.kind ?? "similarity";

const REASONS = {
  generated_queries: "its queries were generated, not asked by people",
  few_queries: "too few of its queries were asked and labelled by people",
  few_documents: "its corpus has no more documents than K",
};
const SIGNALS = {
  topk_similarity: "similarity of the top-K", roe: "random documents (ROE)", coe: "correct documents (COE)",
  empty_responses: "empty responses", dropped_share: "dropped results", canary: "golden queries",
};

/** Ask for the release and its gauges, and for its distributions where the release is new. */
async function refresh() {
  const ask = (path) => patiently(path).catch((error) => error);
  const release = await ask("release"), failed = release instanceof Error;
  const another = state.release === null || (!failed && release.release !== state.release.release);
  if (!failed) state.release = release;
  if (another) {
    const reference = await ask("release/reference"), hidden = reference instanceof Error;
    state.reference = hidden ? null : reference;
    if (hidden) part("effect").textContent = `The distributions cannot be shown: ${reference.message}.`;
    showRelease(release);
    showThreshold();
  }
  const metrics = await ask("metrics");
  state.gauges = metrics instanceof Error ? null : readMetrics(metrics);
  service("ready");
  showDrift(metrics);
  warn();
}

/** Say what nobody may overlook. */
function warn() {
  const { release, reply, gauges } = state, reasons = release?.manifest.calibration?.reasons ?? [];
  const why = reasons.map((reason) => REASONS[reason] ?? reason.replaceAll("_", " ")).join("; ");
  const provisional = (release?.calibration ?? reply?.calibration) === "provisional";
  notice("provisional", "warn", provisional && `Provisional: too little evidence stands behind this threshold${
    why && `, as ${why}`}. Do not rely on its figures.`);
  notice("uncut", "warn", release && policyKind() === "none"
    && "This release has no threshold: none could be certified. Nothing is dropped.");
  const signals = new Set(reply?.drift.alarm ? reply.drift.signals : []);
  for (const { labels, value } of gauges?.taugate_drift_alarm ?? []) if (value) signals.add(labels.signal);
  const named = [...signals].map((signal) => SIGNALS[signal] ?? signal).join(", ");
  notice("drift", "bad", named && `Drift alarm: ${named}. What was measured at calibration may not hold for this traffic.`,
    "", ["See the gauges", () => part("drift").scrollIntoView({ block: "center" })]);
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

/** Read the form, or say under the filter what is wrong with it and return null. */
function checkedSearch() {
  part("filter-error").textContent = "";
  try {
    return readSearch();
  } catch (error) {
    complain("filter", `The filter is not JSON: ${error.message}.`);
    return null;
  }
}

function complain(about, words) {
  const filter = about === "filter";
  if (filter) part("options").open = true;
  part(filter ? "filter-error" : "verdict").textContent = words;
}

let asking = new AbortController();

async function ask(event) {
  event?.preventDefault();
  const search = checkedSearch();
  if (!search) return;
  if (!search.query) {
    part("question").focus();
    return;
  }
  asking.abort(); // only the last question counts
  asking = new AbortController();
  const { signal } = asking, send = part("ask-form").querySelector("button.main");
  const find = (fields) => patiently("search", { ...search, explore: false, ...fields }, { signal, acting: true });
  send.textContent = "Asking …";
  try {
    const reply = await find({});
    // Once more, with what the threshold drops: the first reply is what an application gets.
    const all = reply.dropped ? await find({ min_results: reply.considered }) : reply;
    Object.assign(state, { reply, all, search });
    state.judged.clear();
    for (const result of all.results) for (const name of Object.keys(result.metadata)) state.fields.add(name);
    part("fields").textContent = state.fields.size ? `Fields of the results so far: ${[...state.fields].join(", ")}.` : "";
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
  const first = () => document.querySelector(".result").focus();
  part("verdict").replaceChildren(`${verdict(reply, kept)} `, chip(reply), " ",
    all.results.length ? button("Judge the results", first, { class: "link" }) : "");
}

/** Say in a sentence what came of a search. */
function verdict(reply, kept) {
  const tau = tauInForce(), n = reply.considered, at = tau === null ? "" : ` τ = ${fixed(tau)}`;
  if (!n) return "No document matches the filter.";
  if (reply.reason === "unanswerable" && state.tau === null) {
    return `Refused: the documents seem to hold no answer to this question. The best of ${n} results has ${fixed(reply.best_score)}.`;
  }
  if (!kept.length) {
    const best = compared(state.all.results[0], reply.policy, reply.best_score);
    return `Nothing passes the threshold${at}. The best of ${n} results has ${fixed(best)}, which is ${distance(best, tau)} below it.`;
  }
  if (reply.policy === "none" && state.tau === null) return `${n} results, none dropped: this release has no threshold.`;
  return `${kept.length} of ${n} results ${kept.length === 1 ? "passes" : "pass"} the threshold${at}.`;
}

function chip(reply) {
  const { filter, k } = state.search;
  const [tone, words] = reply.drift.alarm ? ["bad", "Drift alarm"]
    : reply.calibration === "provisional" ? ["warn", "Provisional"]
    : state.tau !== null ? ["plain", "Not calibrated: τ was moved"]
    : reply.calibrated ? ["good", "Calibrated"]
    : ["plain", `Not covered by the calibration${filter ? ": a filter is set" : k ? ": another k is set" : ""}`];
  return make("span", { class: "chip", "data-tone": tone }, words);
}

/** @param {Result} result @param {boolean} kept */
function resultItem(result, kept) {
  const value = compared(result, state.all.policy, state.all.best_score), tau = tauInForce(), passed = value >= tau;
  const margin = tau !== null && value !== null
    && [`${!kept && passed ? "refused, " : ""}${passed ? "above" : "below"} τ by`, distance(value, tau)];
  const [titled, texted] = ["title", "text"].map((name) => `result-${result.rank}-${name}`);
  const passage = make("p", { class: "passage", dir: "auto", id: texted }, result.text ?? "");
  const long = passage.textContent.length > 320 && button("Show all", () => {
    const cut = passage.classList.toggle("long");
    long.textContent = cut ? "Show all" : "Show less";
    long.setAttribute("aria-expanded", !cut);
  }, { class: "link", "aria-expanded": "false" });
  passage.classList.toggle("long", Boolean(long));
  const judge = (relevant, words) => button(words, () => judgeResult(result, relevant, item),
    { "aria-pressed": String(state.judged.get(result.id) === relevant), "data-relevant": relevant });
  const why = () => { part("document").value = result.id; explain(); part("why").scrollIntoView({ block: "nearest" }); };
  const known = [["id", result.id], ...Object.entries(result.metadata)];
  const item = make("article", { class: "result", tabindex: "0", "aria-labelledby": titled, "aria-describedby": texted,
    "aria-keyshortcuts": "y n", onkeydown: judgeByKey },
    make("h3", { dir: "auto", id: titled }, make("span", { class: "rank" }, `${result.rank}  `), result.title || result.id),
    passage, long,
    figures(["Score", fixed(result.score)], result.relevance !== null && ["Relevance", percent(result.relevance)], margin),
    make("p", { class: "chips" }, ...known.map(([name, each]) =>
      make("span", { class: "chip" }, `${name}: ${Array.isArray(each) ? each.join(", ") : each}`))),
    make("div", { class: "actions" }, judge(true, "Relevant"), judge(false, "Not relevant"),
      !kept && button("Why?", why, { class: "link" }), make("span", { role: "status", class: "quiet" })));
  return make("li", {}, item);
}

function judgeByKey(event) {
  if (event.target !== event.currentTarget || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  const relevant = { y: true, n: false }[event.key.toLowerCase()];
  if (relevant === undefined) return;
  event.preventDefault();
  event.target.querySelector(`[data-relevant=${relevant}]`).click();
  const items = [...document.querySelectorAll(".result")];
  items[items.indexOf(event.target) + 1]?.focus();
}

/** Send a judgement; one that is sent twice counts once, so it may be sent again after a broken connection. */
async function judgeResult(result, relevant, item) {
  const before = state.judged.get(result.id), { query_id } = state.all;
  const press = (verdict) => {
    state.judged.set(result.id, verdict);
    for (const each of item.querySelectorAll("[data-relevant]")) {
      each.setAttribute("aria-pressed", String(each.dataset.relevant === String(verdict)));
    }
  };
  const said = item.querySelector("[role=status]");
  press(relevant);
  said.textContent = "Sending …";
  try {
    await patiently("feedback", { query_id, document_id: result.id, relevant }, { acting: true });
    said.textContent = relevant ? "Judged relevant." : "Judged not relevant.";
  } catch (error) {
    press(before);
    said.textContent = error.status === 404 ? "This reply is too old to be judged: ask again." : `Not judged: ${error.message}.`;
  }
}

// ---- The threshold, on the distributions of the release ----

const SETS = [["correct", "Correct documents"], ["topk", "Top-K results"], ["random", "Random documents"]];
const LINES = [["kept-line", "Results kept", "kept"], ["loss-line", "Queries that lose their answer", "loss"]];
const PAD = 22; // pixels beside the drawing

/** Tell whether the policy compares something else than similarity, from 0 to 1. */
const compares = () => ["relative", "probability"].includes(policyKind());

/** Return the range of τ: that of all similarities, or of the curve where the policy compares something else. */
function tauRange() {
  const { reference } = state, values = (state.all?.results ?? []).map((each) => each.score);
  if (compares()) return [0, 1];
  values.push(...SETS.flatMap(([name]) => [reference[name][0], reference[name].at(-1)]));
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
  const effect = tau === null ? "No threshold is in force. Move the slider to try one."
    : point ? `At τ = ${fixed(tau)} you keep ${percent(point.kept)} of the results and lose the answers to ${
      percent(point.loss)} of the calibration queries.`
    : `τ = ${fixed(tau)}. This release does not tell what other thresholds keep.`;
  part("effect").textContent = effect;
  if (document.activeElement !== part("tau")) part("tau").value = fixed(set);
  part("tau-reset").disabled = state.tau === null;
  const values = { valuemin: low, valuemax: high, valuenow: set.toFixed(3), valuetext: effect };
  for (const [name, value] of Object.entries(values)) part("slider").setAttribute(`aria-${name}`, value);
  drawFigure(low, high, set);
  showFigureTable();
}

/** Draw the densities, the results of the last search as dots, and what thresholds keep and lose, with τ through all. */
function drawFigure(low, high, tau) {
  const { reference, all } = state, own = compares(), sets = SETS.map(([name]) => reference[name]);
  const width = part("figure").clientWidth || 320, [tall, short] = width > 420 ? [150, 76] : [116, 60];
  const base = 24 + tall, top = base + (own ? 62 : 34), bottom = top + short, height = bottom + 44, above = own ? top : 24;
  const scale = (from, to) => (x) => PAD + ((x - from) / (to - from)) * (width - 2 * PAD);
  const ends = own ? [Math.min(...sets.flat()), Math.max(...sets.flat())] : [low, high];
  const x = scale(low, high), similarityX = scale(...ends), calibrated = calibratedTau(), inForce = tauInForce() !== null;
  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
  const line = (name, x1, y1, x2, y2) => draw("line", { class: name, x1, y1, x2, y2 });
  const write = (words, at, y, anchor, name) => draw("text", { x: at, y, "text-anchor": anchor, class: name }, words);
  const axis = (y, from, to, place) => [line("axis", PAD, y, width - PAD, y), ...ticks(from, to, width / 60).map((value) =>
    write(value.toFixed(to - from < 0.2 ? 2 : 1), place(value), y + 34, "middle"))];

  const xs = Array.from({ length: 141 }, (_, i) => ends[0] + ((ends[1] - ends[0]) * i) / 140);
  const densities = sets.map((each) => density(each, xs)), peak = Math.max(...densities.flat());
  const hills = SETS.flatMap(([name], i) => {
    const hill = path(densities[i].map((y, j) => [similarityX(xs[j]), base - (tall * y) / peak]));
    return [draw("path", { class: `area ${name}`, d: `${hill}V${base}H${PAD}Z` }), draw("path", { class: `curve ${name}`, d: hill })];
  });
  const points = [low, ...reference.curve.map((point) => point.tau).filter((each) => each > low && each < high), high]
    .map((each) => ({ ...onCurve(reference.curve, each), tau: each }));
  const lines = !reference.curve.length ? [] : LINES.map(([name, , field]) =>
    draw("path", { class: `curve ${name}`, d: path(points.map((point) => [x(point.tau), bottom - short * point[field]])) }));
  const labels = !lines.length ? [] : [write("results kept", PAD + 4, top + 16, "start"),
    write("answers lost", width - PAD, bottom - short * points.at(-1).loss - 6, "end")];
  const dots = (all?.results ?? []).map((each) => draw("circle",
    { class: `dot${isKept(each, all, state.tau) ? " in" : ""}`, cx: similarityX(each.score), cy: base + 14, r: 5 }));

  const at = x(tau), shade = { class: "below", x: PAD, y: above, width: Math.max(at - PAD, 0), height: bottom - above };
  const marks = !inForce ? [] : [line("tau-line", at, above - 8, at, bottom),
    write(`τ ${fixed(tau)}`, Math.min(Math.max(at, PAD + 24), width - PAD - 24), above - 12, "middle", "strong")];
  if (state.tau !== null && calibrated !== null) marks.unshift(line("tau-calibrated", x(calibrated), above - 6, x(calibrated), bottom));
  part("figure").querySelector("svg").replaceWith(draw("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" },
    ...hills, inForce && draw("rect", shade), ...(own ? axis(base, ...ends, similarityX) : [line("axis", PAD, base, width - PAD, base)]),
    ...dots, ...[0.5, 1].map((share) => line("grid", PAD, bottom - short * share, width - PAD, bottom - short * share)),
    ...lines, ...labels, ...axis(bottom, low, high, x), ...marks));
  Object.assign(part("slider").style, { left: `${at}px`, top: `${bottom - 22}px` });
}

/** Fill the table that says what the drawing shows. */
function showFigureTable() {
  const { reference } = state, rows = [1, 5, 25, 50, 75, 95, 99];
  const step = Math.max(1, Math.ceil(reference.curve.length / 12));
  part("figure-table").replaceChildren(part("figure-table").firstElementChild,
    table("Percentiles of the similarities at calibration", ["Percentile", ...SETS.map(([, words]) => words)],
      rows.map((row) => [String(row), ...SETS.map(([name]) => fixed(reference[name][row]))])),
    table("What a threshold keeps and loses", ["τ", ...LINES.map(([, words]) => words)],
      reference.curve.filter((_, i) => i % step === 0)
        .map((point) => [fixed(point.tau), percent(point.kept), percent(point.loss)])));
}

function moveByKey(event) {
  const [low, high] = tauRange(), now = tauInForce() ?? low;
  const by = { ArrowLeft: -0.005, ArrowDown: -0.005, ArrowRight: 0.005, ArrowUp: 0.005, PageDown: -0.05, PageUp: 0.05 };
  const to = { Home: low, End: high }[event.key] ?? (event.key in by ? now + by[event.key] : undefined);
  if (to === undefined) return;
  event.preventDefault();
  setTau(to);
}

function moveByPointer(event) {
  if (event.type === "pointerdown") {
    event.currentTarget.setPointerCapture(event.pointerId);
    part("slider").focus({ preventScroll: true });
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
  for (const each of part("languages").children) each.setAttribute("aria-pressed", String(each.textContent === state.language));
}

async function copy() {
  try {
    await navigator.clipboard.writeText(part("snippet").textContent);
    part("copied").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(part("snippet"));
    part("copied").textContent = "Selected: press Ctrl+C to copy.";
  }
  setTimeout(() => { part("copied").textContent = ""; }, 4000);
}

const METRICS = [["accuracy", "Accuracy, uncut"], ["accuracy_at_tau", "Accuracy at τ"], ["ndcg", "NDCG, uncut"], ["ndcg_at_tau", "NDCG at τ"], ["coe", "COE"], ["roe", "ROE"]];

function showRelease(release) {
  if (release instanceof Error) return void part("release-facts").replaceChildren(hint(`The release cannot be shown: ${release.message}.`));
  const { manifest } = release, { policy } = manifest, held = manifest.metrics.heldout;
  const number = (value) => value.toLocaleString("en");
  const facts = {
    State: make("span", { class: "chip", "data-tone": release.calibration === "provisional" ? "warn" : "good" }, release.calibration),
    Release: release.release, Documents: number(manifest.data.documents),
    Threshold: policy.tau === null ? "none" : `τ = ${fixed(policy.tau)}, on ${policy.kind}, for K = ${policy.k}`,
    Method: policy.method, Evidence: policy.guarantee, Encoder: `${manifest.encoder.name} (${release.precision})`,
    Queries: `${number(manifest.data.answerable)} with an answer, ${number(manifest.data.unanswerable)} without`,
    "Tried beside it": release.shadow, Loaded: new Date(release.loaded_at).toLocaleString(),
  };
  const shares = (name, measured) => {
    const found = measured?.[name];
    return found ? `${percent(found.mean)} (${between(found)})` : "–";
  };
  part("release-facts").replaceChildren(
    make("dl", { class: "facts" }, ...Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    table("Measured at calibration, with 95 % intervals", ["Metric", "", "Calibration", ...(held ? ["Held out"] : [])],
      METRICS.filter(([name]) => manifest.metrics.calibration[name]).map(([name, words]) =>
        [words, interval(manifest.metrics.calibration[name]), shares(name, manifest.metrics.calibration), ...(held ? [shares(name, held)] : [])])));
}

function showDrift(metrics) {
  const drift = state.gauges, of = (name, label) => drift?.[`taugate_${name}`]?.find((each) => Object.values(each.labels).includes(label))?.value;
  if (!drift?.taugate_drift_alarm) {
    const why = metrics instanceof Error ? `The gauges cannot be shown: ${metrics.message}.` : "Drift is not watched here (TAUGATE_DRIFT is false).";
    return void part("gauges").replaceChildren(hint(`${why} Alarms of a reply are shown above all the same.`));
  }
  const evidence = (signal) => Math.min(Math.max(of("drift_evidence", signal) ?? 0, 0), 1);
  const bar = (signal) => draw("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { class: "grid", x1: 0, x2: 100, y1: 7, y2: 7 }), draw("rect", { class: "dot in", x: 0, y: 4, height: 6, width: 100 * evidence(signal) }));
  const overlap = ["coe", "roe"].map((name) => {
    const band = Object.fromEntries(["lower", "mean", "upper"].map((bound) => [bound, of(`${name}_reference`, bound) ?? 0]));
    const live = drift[`taugate_${name}`]?.[0]?.value ?? NaN;
    return [name.toUpperCase(), interval(band), between(band), Number.isNaN(live) ? "not yet" : percent(live)];
  });
  part("gauges").replaceChildren(
    table("Evidence of drift: 100 % raises an alarm", ["Signal", "", "Evidence", "Alarm"], drift.taugate_drift_alarm.map(({ labels: { signal }, value }) =>
      [SIGNALS[signal] ?? signal, bar(signal), percent(evidence(signal)), value ? make("b", { class: "chip", "data-tone": "bad" }, "on") : "off"])),
    table("How well the encoder tells documents apart", ["Metric", "", "At calibration", "Now"], overlap));
}

function startPlayground() {
  part("legend").replaceChildren(...SETS.map(([name, words]) =>
    make("li", {}, draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, draw("line", { class: `curve ${name}`, x1: 0, x2: 26, y1: 6, y2: 6 })), words)));
  part("languages").replaceChildren(...Object.keys(languages).map((name) => button(name, () => { state.language = name; showCode(); })));
  const listen = (id, type, listener) => part(id).addEventListener(type, listener);
  listen("ask-form", "submit", ask);
  listen("ask-form", "input", showCode);
  listen("question", "input", ({ target }) => { target.style.height = "auto"; target.style.height = `${target.scrollHeight + 2}px`; });
  listen("question", "keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event); });
  listen("key-form", "submit", useKey);
  listen("why-form", "submit", explain);
  listen("copy", "click", copy);
  listen("slider", "keydown", moveByKey);
  listen("figure", "pointerdown", moveByPointer);
  listen("figure", "pointermove", moveByPointer);
  listen("tau", "input", ({ target }) => { if (!Number.isNaN(target.valueAsNumber)) setTau(target.valueAsNumber); });
  listen("tau-reset", "click", () => { part("slider").focus(); setTau(null); });
  new ResizeObserver(() => { if (state.reference) drawFigure(...tauRange(), tauInForce() ?? tauRange()[0]); }).observe(part("threshold"));
  showCode();
  refresh();
  setInterval(() => { if (!document.hidden && !paused && !entered) refresh(); }, 15_000);
}

// ---- Judging: one result after the other, and the key that the judge pressed ----

function startJudging() {
  document.title = "Judge results";
  let shown = null; // what the server said last
  let waiting = false; // for its answer: a second key would be about a result that nobody has read

  async function send(path, body) {
    const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const reply = await fetch(path, options);
    if (!reply.ok) throw new Error(`${reply.status}`);
    return reply.json();
  }

  const fill = (element, segments) =>
    element.replaceChildren(...segments.map(([text, matched]) => (matched ? make("mark", {}, text) : text)));

  function show(next) {
    const before = shown, asked = next.message === undefined;
    shown = next;
    part("progress").textContent = next.progress;
    part("remark").textContent = next.remark ?? "";
    part("message").textContent = next.message ?? "";
    for (const id of ["asked", "query", "passage"]) part(id).hidden = !asked;
    if (asked) {
      part("query").textContent = next.query;
      part("heading").textContent = next.heading;
      fill(part("title"), next.title);
      fill(part("text"), next.text);
    }
    const keys = Object.entries(next.stopped ? {} : next.keys).filter(([letter]) => asked || "uq".includes(letter));
    part("keys").replaceChildren(...keys.map(([letter, action]) =>
      make("button", { type: "button", class: "yn".includes(letter) ? "judges" : null, "aria-keyshortcuts": letter, onclick: () => press(letter) },
        action[0].toUpperCase() + action.slice(1), make("kbd", {}, letter))));
    part("letters").parentElement.hidden = Boolean(next.stopped);
    if (before && asked) {
      scrollTo(0, 0);
      part("passage").focus({ preventScroll: true }); // so that a screen reader reads it
    }
  }

  async function press(letter) {
    if (waiting || !shown || shown.stopped) return;
    waiting = true;
    try {
      show(await send("key", { key: letter, pair: shown.pair ?? "" }));
    } catch {
      part("remark").textContent = "No answer from taugate judge. Is it still running? All earlier judgements are kept.";
    } finally {
      waiting = false;
    }
  }

  addEventListener("keydown", (event) => {
    const own = event.ctrlKey || event.altKey || event.metaKey || event.repeat || !part("letters").checked;
    const letter = event.key.toLowerCase();
    if (own || !(letter in (shown?.keys ?? {}))) return;
    event.preventDefault();
    press(letter);
  });

  send("state").then(show).catch(() => {
    part("progress").textContent = "No answer from taugate judge. Start it again, and open the address that it prints.";
  });
}

if (document.body.dataset.mode === "judge") startJudging();
else startPlayground();
