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

/** Tell whether a result is kept; tau: null is the service's own verdict. */
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

/** Show a notice above everything else, or take it away; tone: warn, bad or plain; aside: not read out, as it changes. */
function notice(name, tone, words, aside = "", ...buttons) {
  let shown = part(`notice-${name}`);
  if (!words) return void shown?.remove();
  if (shown?.dataset.words !== words) {
    const fresh = make("div", { id: `notice-${name}`, class: "notice", role: tone === "plain" ? "status" : "alert", "data-tone": tone },
      make("p", {}, make("span", {}, words), make("span", { "aria-hidden": "true" })), ...buttons);
    fresh.dataset.words = words;
    if (shown) shown.replaceWith(fresh);
    else part("notices").append(fresh);
    shown = fresh;
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

let paused = null; // the pause that all wait for

function pause(error, seconds) {
  const away = error instanceof Unreachable || error.status === 502;
  service(away ? "away" : "busy");
  paused ??= new Promise((resolve) => {
    const until = performance.now() + seconds * 1000;
    const words = away
      ? `The service at ${BASE.host} does not answer. What you typed is kept, and sent when it is back.`
      : `The service asks for patience: ${error.message}.`;
    const end = () => { clearInterval(counting); paused = null; resolve(); };
    const tell = () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      if (left <= 0) return end();
      notice("connection", away ? "bad" : "warn", words, `Trying again in ${left} s.`, button("Try now", () => end()));
    };
    const counting = setInterval(tell, 250);
    tell();
    part("notice-connection").querySelector("button").onclick = end;
  });
  return paused;
}

let entered = null; // what waits for a key, and how to wake it

function anotherKey(error, acting) {
  service("key");
  const open = () => { part("access").open = true; part("key").focus(); };
  notice("key", "bad", `${error.message[0].toUpperCase()}${error.message.slice(1)}. What you typed is kept.`, "", button("Enter a key", open));
  if (acting) open();
  if (!entered) {
    let wake;
    entered = { promise: new Promise((resolve) => { wake = resolve; }), wake: () => { entered = null; wake(); } };
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
  judged: new Map(), language: "curl",
};
const calibratedTau = () => state.release?.manifest.policy.tau ?? null;
const tauInForce = () => state.tau ?? calibratedTau();
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
  const ask = async (path) => {
    try { return await patiently(path); } catch (error) { return error; }
  };
  const release = await ask("release");
  const another = state.release === null || release.release !== state.release.release;
  if (!(release instanceof Error)) {
    state.release = release;
    service("ready");
  }
  if (another) {
    state.tau = null;
    const reference = await ask("release/reference");
    state.reference = reference instanceof Error ? null : reference;
    part("effect").textContent = reference instanceof Error ? `The distributions cannot be shown: ${reference.message}.` : "";
    showRelease(release);
  }
  const metrics = await ask("metrics");
  state.gauges = metrics instanceof Error ? null : readMetrics(metrics);
  showDrift(metrics);
  warn();
  if (another) showThreshold();
}

/** Say what nobody may overlook. */
function warn() {
  const calibration = state.release?.manifest.calibration;
  const provisional = (state.release?.calibration ?? state.reply?.calibration) === "provisional";
  const why = (calibration?.reasons ?? []).map((reason) => REASONS[reason] ?? reason.replaceAll("_", " ")).join("; ");
  notice("provisional", "warn", provisional && `Provisional: too little evidence stands behind this threshold${why && ` (${why})`}. Do not rely on its figures.`);
  notice("uncut", "warn", state.release && policyKind() === "none" && "This release has no threshold: none could be certified. Nothing is dropped.");
  const signals = new Set(state.reply?.drift.alarm ? state.reply.drift.signals : []);
  for (const { labels, value } of state.gauges?.taugate_drift_alarm ?? []) if (value) signals.add(labels.signal);
  const named = [...signals].map((signal) => SIGNALS[signal] ?? signal).join(", ");
  notice("drift", "bad", named && `Drift alarm: ${named}. What was measured at calibration may not hold for this traffic.`, "",
    button("See the gauges", () => part("drift").scrollIntoView({ block: "center" })));
}

// ---- Ask ----

/** Read the form. Returns null, and says so under the filter, where that is not JSON. @returns {?Search} */
function readSearch() {
  const search = { query: part("question").value.trim() };
  const k = part("k").valueAsNumber, filter = part("filter").value.trim();
  if (!Number.isNaN(k)) search.k = k;
  if (part("grouped").checked) search.group_by = "document";
  part("filter-error").textContent = "";
  part("options-set").textContent = k || filter || search.group_by ? " (in use)" : "";
  try {
    if (filter) search.filter = JSON.parse(filter);
  } catch (error) {
    part("filter-error").textContent = `The filter is not JSON: ${error.message}.`;
    return null;
  }
  if (state.tau !== null) search.threshold = state.tau;
  return search;
}

let asking = new AbortController();

async function ask(event) {
  event?.preventDefault();
  const search = readSearch();
  if (!search) return void (part("options").open = true);
  if (!search.query) return void part("question").focus();
  asking.abort();
  asking = new AbortController();
  const { signal } = asking, send = part("ask-form").querySelector("button.main");
  send.textContent = "Asking …";
  try {
    const reply = await patiently("search", { ...search, explore: false }, { signal, acting: true });
    // The same search once more, with what it drops: the first reply is what an application gets.
    const all = reply.dropped ? await patiently("search", { ...search, explore: false, min_results: reply.considered }, { signal, acting: true }) : reply;
    Object.assign(state, { reply, all, search });
    state.judged.clear();
    for (const name of new Set(all.results.flatMap((each) => Object.keys(each.metadata)))) {
      if (![...part("fields").children].some((each) => each.value === name)) part("fields").append(make("option", { value: name }));
    }
    showAnswer();
    showThreshold();
    warn();
    if (!state.release || reply.release !== state.release.release || reply.drift.alarm) refresh();
  } catch (error) {
    if (signal.aborted) return;
    const about = error.message.startsWith("filter") ? "filter-error" : "verdict";
    if (about === "filter-error") part("options").open = true;
    part(about).textContent = `The service refused this: ${error.message}.`;
  }
  send.textContent = "Ask";
}

/** Add a condition of the small form to the filter. */
function addCondition() {
  const name = part("condition-field").value.trim(), operator = part("condition-operator").value, typed = part("condition-value").value.trim();
  if (!name || !typed) return void part(name ? "condition-value" : "condition-field").focus();
  let value = typed;
  try { value = JSON.parse(typed); } catch { /* a text */ }
  if (typeof value === "object") value = typed;
  const before = readSearch()?.filter ?? {}, bound = !["eq", "ne"].includes(operator);
  const same = bound && typeof before[name] === "object" && !Array.isArray(before[name]) ? before[name] : {};
  part("filter").value = JSON.stringify({ ...before, [name]: operator === "eq" ? value : { ...same, [operator]: value } });
  part("condition-value").value = "";
  showCode();
}

// ---- Results ----

const keptNow = () => state.all.results.filter((each) => isKept(each, state.all, state.tau));

function showAnswer() {
  const { reply, all } = state;
  if (!reply) return;
  const kept = keptNow(), dropped = all.results.filter((each) => !kept.includes(each));
  part("answer-hint").hidden = true;
  part("kept").replaceChildren(...kept.map((each) => resultItem(each, true)));
  part("dropped-part").hidden = !dropped.length;
  part("dropped-title").textContent = `Dropped: ${dropped.length} of ${all.results.length}`;
  part("dropped").replaceChildren(...dropped.map((each) => resultItem(each, false)));
  const asked = reply.threshold ?? null, unmoved = tauInForce() === null || asked === null || Math.fround(asked) === Math.fround(tauInForce());
  part("verdict").replaceChildren(`${verdict(reply, kept)} `, chip(reply, unmoved));
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

function chip(reply, unmoved) {
  const [tone, words] = reply.drift.alarm ? ["bad", "Drift alarm"]
    : reply.calibration === "provisional" ? ["warn", "Provisional"]
    : state.tau !== null || !unmoved ? ["plain", "Not calibrated: τ was moved"]
    : reply.calibrated ? ["good", "Calibrated"]
    : ["plain", `Not covered by the calibration${state.search.filter ? ": a filter is set" : state.search.k ? ": another k is set" : ""}`];
  return make("span", { class: "chip", "data-tone": tone }, words);
}

/** @param {Result} result */
function resultItem(result, kept) {
  const { policy, best_score } = state.all, value = compared(result, policy, best_score), tau = tauInForce();
  const text = result.text ?? "", long = text.length > 320;
  const passage = make("p", { class: `passage${long ? " long" : ""}`, dir: "auto" }, text);
  const more = long && button("Show all", () => {
    const cut = passage.classList.toggle("long");
    more.textContent = cut ? "Show all" : "Show less";
    more.setAttribute("aria-expanded", !cut);
  }, { class: "link", "aria-expanded": "false" });
  const refused = !kept && tau !== null && value >= tau; // the query as a whole was
  const margin = tau === null || value === null ? null : [kept && value >= tau ? "above τ by" : refused ? "refused, above τ by" : "below τ by", distance(value, tau)];
  const judge = (relevant, words) =>
    button(words, () => judgeResult(result, relevant, item), { "aria-pressed": String(state.judged.get(result.id) === relevant), "data-relevant": relevant });
  const said = make("span", { role: "status", class: "quiet" });
  const item = make("li", { class: "result", tabindex: "0", "aria-label": `Result ${result.rank}. Press y if it is relevant, n if not.`, onkeydown: judgeByKey },
    make("h3", { dir: "auto" }, make("span", { class: "rank" }, `${result.rank}  `), result.title || result.id),
    passage, more,
    figures(["Score", fixed(result.score)], result.relevance !== null && ["Relevance", percent(result.relevance)], margin),
    make("p", { class: "chips" }, ...[["id", result.id], ...Object.entries(result.metadata)].map(([name, each]) =>
      make("span", { class: "chip" }, `${name}: ${Array.isArray(each) ? each.join(", ") : each}`))),
    make("div", { class: "actions" }, judge(true, "Relevant"), judge(false, "Not relevant"),
      !kept && button("Why?", () => { part("document").value = result.id; explain(); part("why").scrollIntoView({ block: "nearest" }); }, { class: "link" }), said));
  item.said = said;
  return item;
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
    for (const each of item.querySelectorAll("[data-relevant]")) each.setAttribute("aria-pressed", String(each.dataset.relevant === String(verdict)));
  };
  press(relevant);
  item.said.textContent = "Sending …";
  try {
    await patiently("feedback", { query_id, document_id: result.id, relevant }, { acting: true });
    item.said.textContent = relevant ? "Judged relevant." : "Judged not relevant.";
  } catch (error) {
    press(before);
    item.said.textContent = error.status === 404 ? "This reply is too old to be judged: ask again." : `Not judged: ${error.message}.`;
  }
}

// ---- The threshold, on the distributions of the release ----

const SETS = [["correct", "Correct documents"], ["topk", "Top-K results"], ["random", "Random documents"]];
const LINES = [["kept-line", "Results kept"], ["loss-line", "Queries that lose their answer"]];
const PAD = 22;

/** Return the range of τ: that of all similarities, or of the curve where the policy compares something else. */
function tauRange() {
  const { reference } = state, values = (state.all?.results ?? []).map((each) => each.score);
  if (["relative", "probability"].includes(policyKind())) return [0, 1];
  values.push(...SETS.flatMap(([name]) => [reference[name][0], reference[name].at(-1)]));
  return [Math.floor(Math.min(...values) * 20) / 20, Math.ceil(Math.max(...values) * 20) / 20];
}

function setTau(value) {
  const [low, high] = tauRange(), calibrated = calibratedTau();
  const tau = Math.min(high, Math.max(low, Math.round(value * 1000) / 1000));
  state.tau = calibrated !== null && Math.abs(tau - calibrated) < 0.0006 ? null : tau;
  showThreshold();
  showAnswer();
}

function showThreshold() {
  showCode();
  const { reference } = state;
  for (const id of ["figure", "figure-table", "legend", "threshold-controls"]) part(id).hidden = !reference;
  if (!reference) return;
  const tau = tauInForce(), [low, high] = tauRange(), slider = part("slider");
  const point = tau === null ? null : onCurve(reference.curve, tau), set = tau ?? low;
  const effect = tau === null ? "No threshold is in force. Move the slider to try one."
    : point ? `At τ = ${fixed(tau)} you keep ${percent(point.kept)} of the results and lose the answers to ${percent(point.loss)} of the calibration queries.`
    : `τ = ${fixed(tau)}. The release does not tell what other thresholds keep.`;
  part("effect").textContent = effect;
  if (document.activeElement !== part("tau")) part("tau").value = fixed(set);
  Object.assign(part("tau"), { min: low, max: high });
  part("tau-reset").disabled = state.tau === null;
  for (const [name, value] of Object.entries({ valuemin: low, valuemax: high, valuenow: set.toFixed(3), valuetext: effect })) slider.setAttribute(`aria-${name}`, value);
  drawFigure(low, high, set);
  showFigureTable();
}

/** Draw the densities, the results of the last search as dots, and what thresholds keep and lose, with τ through all. */
function drawFigure(low, high, tau) {
  const { reference } = state, own = ["relative", "probability"].includes(policyKind());
  const width = part("figure").clientWidth || 320, tall = width > 420;
  const [dHigh, cHigh] = tall ? [150, 76] : [116, 60];
  const base = 24 + dHigh, top = base + (own ? 62 : 34), bottom = top + cHigh, height = bottom + 44;
  const scale = (from, to) => (x) => PAD + ((x - from) / (to - from)) * (width - 2 * PAD);
  const ends = own ? [Math.min(...SETS.map(([name]) => reference[name][0])), Math.max(...SETS.map(([name]) => reference[name].at(-1)))] : [low, high];
  const x = scale(low, high), similarityX = scale(...ends), above = own ? top : 24;
  const axis = (at, from, to, place) => ticks(from, to, width / 60).map((value) =>
    draw("text", { x: place(value), y: at, "text-anchor": "middle" }, value.toFixed(to - from < 0.2 ? 2 : 1)));

  const xs = Array.from({ length: 141 }, (_, i) => ends[0] + ((ends[1] - ends[0]) * i) / 140);
  const densities = SETS.map(([name]) => [name, density(reference[name], xs)]).reverse();
  const peak = Math.max(...densities.flatMap(([, ys]) => ys));
  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
  const curves = densities.flatMap(([name, ys]) => {
    const line = path(xs.map((each, i) => [similarityX(each), base - (dHigh * ys[i]) / peak]));
    return [draw("path", { class: `area ${name}`, d: `${line}V${base}H${PAD}Z` }), draw("path", { class: `curve ${name}`, d: line })];
  });
  const inside = reference.curve.filter((point) => point.tau >= low && point.tau <= high);
  const ends2 = [low, high].map((each) => ({ ...onCurve(reference.curve, each), tau: each }));
  const points = reference.curve.length ? [ends2[0], ...inside, ends2[1]] : [];
  const lines = LINES.map(([name], i) => points.length && draw("path", { class: `curve ${name}`,
    d: path(points.map((point) => [x(point.tau), bottom - cHigh * (i ? point.loss : point.kept)])) }));
  const dots = (state.all?.results ?? []).map((each) =>
    draw("circle", { class: `dot${isKept(each, state.all, state.tau) ? " in" : ""}`, cx: similarityX(each.score), cy: base + 14, r: 5 }));

  const calibrated = calibratedTau(), at = x(tau), shown = tauInForce() !== null;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" },
    ...curves,
    shown && draw("rect", { class: "below", x: PAD, y: above, width: Math.max(at - PAD, 0), height: bottom - above }),
    draw("line", { class: "axis", x1: PAD, x2: width - PAD, y1: base, y2: base }), ...dots,
    ...(own ? axis(base + 40, ...ends, similarityX) : []),
    ...[0, 0.5, 1].map((share) => draw("line", { class: "grid", x1: PAD, x2: width - PAD, y1: bottom - cHigh * share, y2: bottom - cHigh * share })),
    ...lines.filter(Boolean),
    draw("line", { class: "axis", x1: PAD, x2: width - PAD, y1: bottom, y2: bottom }), ...axis(bottom + 34, low, high, x),
    state.tau !== null && calibrated !== null && draw("line", { class: "tau-calibrated", x1: x(calibrated), x2: x(calibrated), y1: above - 6, y2: bottom }),
    shown && draw("line", { class: "tau-line", x1: at, x2: at, y1: above - 8, y2: bottom }),
    shown && draw("text", { class: "strong", x: Math.min(Math.max(at, PAD + 24), width - PAD - 24), y: above - 12, "text-anchor": "middle" }, `τ ${fixed(tau)}`));
  part("figure").querySelector("svg").replaceWith(svg);
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
      reference.curve.filter((_, i) => i % step === 0).map((point) => [fixed(point.tau), percent(point.kept), percent(point.loss)])));
}

function moveByKey(event) {
  const [low, high] = tauRange(), now = tauInForce() ?? low;
  const to = { ArrowLeft: now - 0.005, ArrowDown: now - 0.005, ArrowRight: now + 0.005, ArrowUp: now + 0.005,
    PageDown: now - 0.05, PageUp: now + 0.05, Home: low, End: high }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  setTau(to);
}

function moveByPointer(event) {
  if (event.type === "pointerdown") event.currentTarget.setPointerCapture(event.pointerId);
  else if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
  const box = part("figure").getBoundingClientRect(), [low, high] = tauRange();
  setTau(low + ((event.clientX - box.left - PAD) / (box.width - 2 * PAD)) * (high - low));
}

// ---- Why not this document?, code, release, drift ----

async function explain(event) {
  event?.preventDefault();
  const search = readSearch(), document_id = part("document").value.trim();
  if (!document_id) return void part("document").focus();
  if (!search?.query) return void part("explanation").replaceChildren(hint("Type the question first, at the top of the page."));
  part("explanation").replaceChildren(hint("Asking …"));
  try {
    const found = await patiently("explain", { ...search, document_id }, { acting: true });
    part("explanation").replaceChildren(...[make("p", {}, make("strong", {}, found.kept ? "It is among the results. " : "It is left out. "), found.why),
      found.truncated && make("p", {}, "Its text is longer than the encoder reads; the end of it cannot be found."),
      figures(found.rank !== null && ["Rank", `${found.rank} of ${found.ranked}`], found.score !== null && ["Score", fixed(found.score)],
        found.relevance !== null && ["Relevance", percent(found.relevance)], found.threshold !== null && ["τ", fixed(found.threshold)])].filter(Boolean));
  } catch (error) {
    part("explanation").replaceChildren(make("p", { class: "error" }, `${error.message}.`));
  }
}

function showCode() {
  const search = readSearch() ?? { query: part("question").value.trim() };
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
    return found ? `${percent(found.mean)} (${percent(found.lower)} to ${percent(found.upper)})` : "–";
  };
  part("release-facts").replaceChildren(
    make("dl", { class: "facts" }, ...Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    table("Measured at calibration, with 95 % intervals", ["", "0 to 1", "Calibration", ...(held ? ["Held out"] : [])],
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
    return [name.toUpperCase(), interval(band), `${percent(band.lower)} to ${percent(band.upper)}`, Number.isNaN(live) ? "not yet" : percent(live)];
  });
  part("gauges").replaceChildren(
    table("Evidence of drift: 100 % raises an alarm", ["Signal", "0 to 100 %", "Evidence", "Alarm"], drift.taugate_drift_alarm.map(({ labels: { signal }, value }) =>
      [SIGNALS[signal] ?? signal, bar(signal), percent(evidence(signal)), value ? make("b", { class: "chip", "data-tone": "bad" }, "on") : "off"])),
    table("How well the encoder tells documents apart", ["", "0 to 1", "At calibration", "Now"], overlap));
}

function startPlayground() {
  part("legend").replaceChildren(...[...SETS, ...LINES].map(([name, words]) =>
    make("li", {}, draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, draw("line", { class: `curve ${name}`, x1: 0, x2: 26, y1: 6, y2: 6 })), words)));
  part("languages").replaceChildren(...Object.keys(languages).map((name) => button(name, () => { state.language = name; showCode(); })));
  const listen = (id, type, listener) => part(id).addEventListener(type, listener);
  listen("ask-form", "submit", ask);
  listen("ask-form", "input", showCode);
  listen("question", "input", ({ target }) => { target.style.height = "auto"; target.style.height = `${target.scrollHeight + 2}px`; });
  listen("question", "keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event); });
  listen("condition-add", "click", addCondition);
  listen("key-form", "submit", useKey);
  listen("why-form", "submit", explain);
  listen("copy", "click", copy);
  listen("slider", "keydown", moveByKey);
  listen("figure", "pointerdown", moveByPointer);
  listen("figure", "pointermove", moveByPointer);
  listen("tau", "input", ({ target }) => { if (!Number.isNaN(target.valueAsNumber)) setTau(target.valueAsNumber); });
  listen("tau-reset", "click", () => { state.tau = null; part("slider").focus(); showThreshold(); showAnswer(); });
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
