function showAnswer() {
  const { reply, all } = state;
  part("answer-hint").hidden = Boolean(reply);
  part("judging").hidden = !all?.results.length;
  for (const id of ["kept", "dropped"]) if (!reply) part(id).replaceChildren();
  if (!reply) {
    part("dropped-part").hidden = true;
    return part("verdict").replaceChildren();
  }
  const at = isMoved() ? handles() : null;
  const [kept, dropped] = [true, false].map((side) => all.results.filter((result) => isKept(result, all, at) === side));
  part("kept").replaceChildren(...kept.map((result) => resultItem(result, true)));
  part("dropped-part").hidden = !dropped.length;
  part("dropped-title").textContent = `Dropped: ${dropped.length} of ${all.results.length}`;
  part("dropped").replaceChildren(...dropped.map((result) => resultItem(result, false)));
  const { milliseconds, cached } = timings.get(reply);
  part("verdict").replaceChildren(`${verdict(reply, all, kept)} `, stateOf(reply), " ",
    make("span", { class: "hint" }, `${milliseconds} ms${cached ? ", from the cache" : ""}`));
  showJudgements();
}

/** Describe the outcome of a search in a sentence. */
function verdict(reply, all, kept) {
  const { tau, rho } = handles(), n = reply.considered;
  if (!n) return "No document matches the filter.";
  const best = compared(all.results[0], reply.policy, reply.best_score);
  if (reply.reason === "unreadable") {
    return "Refused: the encoder does not know the words of this question, so similarities are meaningless.";
  }
  if (isMoved() ? isRefused(reply, rho) : reply.reason === "unanswerable") {
    const score = reply.refusal?.score ?? reply.best_score;
    return `Refused: the documents seem to hold no answer. ${rho === null
      ? `The best of ${n} results has ${fixed(best)}` : `The question has ${fixed(score)}, below ρ = ${fixed(rho)}`}.`;
  }
  if (tau === null) return `${n} results, none dropped: this release has no threshold.`;
  const pass = kept.length === 1 ? "is" : "are";
  if (kept.length) return `${kept.length} of ${n} results ${pass} kept at the threshold ${tauIs(tau)}.`;
  return `Nothing passes the threshold ${tauIs(tau)}. The best of ${n} has ${fixed(best)}, ${distance(best, tau)} below it.`;
}

/** Return the state as every screen shows it, of a reply or a release. */
const stateInWords = ({ calibration, certified }) => (certified ? `certified ${+(100 * certified.max_loss).toPrecision(4)} %` : calibration);

function stateOf(reply) {
  if (reply.drift.alarm) return chip("Drift alarm", "bad");
  if (reply.calibration !== "calibrated") return chip(reply.calibration, "warn");
  if (reply.not_comparable === "truncated") return chip("Not calibrated: the question is longer than the encoder can read", "warn");
  if (reply.not_comparable === "unreadable") return chip("Not calibrated: the encoder cannot read the question", "warn");
  if (reply.not_comparable === "precision") return chip("Not calibrated: the encoder has another precision", "warn");
  if (isMoved()) return chip(`Not calibrated: ${state.tau === null ? "ρ" : "τ"} was moved`);
  if (reply.calibrated) return chip(stateInWords(reply), "good");
  const { filter, k } = state.search;
  return chip(`Not covered by the calibration${filter ? ": a filter is set" : k ? ": another k is set" : ""}`);
}

/** Draw a value that is compared with τ as a bar, with τ across it. */
function scoreBar(value, tau) {
  const [low, high] = tauRange(), place = (at) => Math.min(100, Math.max(0, (100 * (at - low)) / (high - low || 1)));
  return draw("svg", { class: "bar-of-score", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "track", width: 100, y: 2, height: 8 }),
    draw("rect", { class: "value", width: place(value), y: 2, height: 8 }),
    tau !== null && draw("line", { class: "tau-line", x1: place(tau), x2: place(tau), y1: 0, y2: 12 }));
}

/** @param {Result} result @param {boolean} kept */
function resultItem(result, kept) {
  const value = compared(result, state.all.policy, state.all.best_score), tau = tauInForce();
  const words = new Set([...wordsOf(state.search.query), ...(result.matched_words ?? [])]);
  const [titled, texted, more] = ["title", "text", "more"].map((name) => `result-${result.rank}-${name}`);
  const judge = (relevant, mark, label) => button(mark, () => judgeResult(result, relevant, item),
    { "aria-label": label, title: label, "aria-pressed": String(state.judged.get(result.id) === relevant), "data-relevant": String(relevant) });
  const details = make("div", { id: more, class: "details", hidden: "" });
  const unfold = button("Why this one?", () => {
    details.hidden = !details.hidden;
    unfold.setAttribute("aria-expanded", String(!details.hidden));
    item.classList.toggle("open", !details.hidden);
    if (!details.hasChildNodes()) details.append(...resultDetails(result, kept, words));
  }, { class: "link", "aria-expanded": "false", "aria-controls": more });
  const item = make("article", { class: "result", tabindex: "0", "aria-labelledby": titled, "aria-describedby": texted,
    "aria-keyshortcuts": "y n", onkeydown: judgeByKey },
    make("span", { class: "rank" }, String(result.rank)),
    make("div", { class: "what" },
      make("h3", { dir: "auto", id: titled }, ...marked(result.title || result.id, words)),
      make("p", { class: "passage", dir: "auto", id: texted }, ...snippet(result.text ?? "", words))),
    make("div", { class: "score" }, scoreBar(value ?? result.score, tau),
      make("span", {}, make("b", {}, fixed(value ?? result.score)), make("span", { class: "margin" }, ` ${marginOf(value, tau, kept)}`)), unfold),
    make("div", { class: "marks" }, judge(true, "✓", "Relevant"), judge(false, "✗", "Not relevant")),
    make("span", { role: "status", class: "hint" }), details);
  return make("li", {}, item);
}

function marginOf(value, tau, kept) {
  if (tau === null || value === null) return "";
  const passed = Math.fround(value) >= Math.fround(tau);
  return `${!kept && passed ? "refused, " : kept && !passed ? "kept as the first, " : ""}${distance(value, tau)} ${passed ? "above" : "below"} τ`;
}

/** Build what a row leaves out: the whole text, what the score is made of, the metadata, and why it is kept or not. */
function resultDetails(result, kept, words) {
  const why = make("p", { role: "status" }, "Searching …");
  patiently("explain", { ...state.search, document_id: result.id }, { acting: true })
    .then((told) => { why.textContent = told.why; }, (error) => { why.textContent = `${error.message}.`; });
  const parts = result.parts?.lexical === undefined ? [] : [["= similarity", fixed(result.parts.cosine)],
    ["+ shared words", fixed(result.parts.lexical)], ["Words", result.matched_words.join(", ") || "none"]];
  return [make("div", { class: "text", dir: "auto" }, ...markdown(result.text ?? "", words)),
    figures(["Score", fixed(result.score)], ...parts, result.relevance !== null && ["Relevance", percent(result.relevance)]),
    ...(isMoved() ? [] : [why]),
    make("p", { class: "chips" }, ...[["id", result.id], ...Object.entries(result.metadata)].map(([name, value]) =>
      chip(`${name}: ${Array.isArray(value) ? value.join(", ") : value}`)))];
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
  const { query_id } = state.all, pair = `${state.search.query}\n${result.id}`; // of another question by the time of the reply
  const before = state.judged.get(result.id), status = item.querySelector("[role=status]");
  const mark = (verdict) => {
    state.judged.set(result.id, verdict);
    setPressed(item.querySelectorAll("[data-relevant]"), (element) => element.dataset.relevant === String(verdict));
  };
  mark(relevant);
  status.textContent = "Sending …";
  try {
    await patiently("feedback", { query_id, document_id: result.id, relevant }, { acting: true });
    status.textContent = relevant ? "Judged relevant." : "Judged not relevant.";
    judgements.set(pair, relevant);
    showJudgements();
  } catch (error) {
    mark(before);
    status.textContent = `Not judged: ${error.status === 404 ? "this reply is too old; search again" : error.message}.`;
  }
}

const judgements = new Map(); // of this visit, by question and document
const ENOUGH = 30; // questions of people that a calibrated release needs (MIN_QUERIES in release/records.py)

/** Say how far the judgements made here lead to a calibrated release. */
function showJudgements() {
  const questions = new Set([...judgements].filter(([, relevant]) => relevant).map(([pair]) => pair.split("\n")[0]));
  const human = state.release?.manifest.calibration?.human ?? 0, total = human + questions.size;
  const enough = total >= ENOUGH ? "" : ` “Calibrated” needs ${ENOUGH} questions of people with a relevant result, and has ${total}.`;
  part("judged").textContent = judgements.size
    ? `${judgements.size} judged here, for ${questions.size} questions with a relevant result; taugate traffic LOG --to DATA makes labels of them.${enough}` : enough;
}
