// ---- The calibration questions at the thresholds of the drawing ----

const OUTCOMES = {
  lost: "Lost: its answer is dropped or refused", refused: "Refused", answered: "Answered, though it has no answer", missed: "Not found in the top K",
  kept: "Kept",
};
const PAGE = 50; // rows at first, and with every further press
const COLUMNS = { // how each column is sorted
  Question: (question) => question.text.toLowerCase(),
  "Best score": (question) => question.best,
  "Right passage": (question) => question.rank ?? Infinity,
  Outcome: (question, outcome) => Object.keys(OUTCOMES).indexOf(isWanted(question, outcome) ? "kept" : outcome),
};
const listed = { sorted: "Outcome", descending: false, only: "", rows: PAGE, drawing: 0 };

/** Tell whether an outcome is what anybody hopes for: kept with an answer, refused without. */
const isWanted = ({ kind }, outcome) => outcome === (kind === "answerable" ? "kept" : "refused");

/** Show the table, once for all moves of a handle between two frames. */
function showQuestions() {
  part("questions").hidden = !state.questions.length;
  cancelAnimationFrame(listed.drawing);
  listed.drawing = requestAnimationFrame(drawQuestions);
}

function drawQuestions() {
  const at = handles(), rows = state.questions.map((question) => ({ question, outcome: outcomeOf(question, at) }));
  const key = ({ question, outcome }) => COLUMNS[listed.sorted](question, outcome), sign = listed.descending ? -1 : 1;
  const chosen = rows.filter(({ question, outcome }) => !listed.only || `${question.kind} ${outcome}` === listed.only);
  chosen.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    return sign * (a < b ? -1 : a > b ? 1 : 0) || Math.abs(margin(one.question, at)) - Math.abs(margin(other.question, at));
  });
  part("questions-body").replaceChildren(...chosen.slice(0, listed.rows).map(({ question, outcome }) => make("tr", {},
    make("th", { scope: "row", dir: "auto" }, button(question.text, () => askFor(question.text), { class: "link" }),
      question.kind !== "answerable" && make("span", { class: "hint" }, question.kind === "off_topic" ? " off topic" : " unanswerable"),
      question.heldout && make("span", { class: "hint" }, " held out")),
    make("td", {}, fixed(question.best)), make("td", {}, question.rank === null ? "–" : `${question.rank}, ${fixed(question.right)}`),
    make("td", {}, chip(OUTCOMES[outcome].split(/[:,]| in the/)[0], isWanted(question, outcome) ? "good" : outcome === "missed" ? "plain" : "warn")))));
  part("questions-more").hidden = chosen.length <= listed.rows;
  part("questions-count").textContent = `${Math.min(listed.rows, chosen.length)} of ${chosen.length} questions.`;
  showChoices(rows);
  for (const heading of part("questions-head").children) {
    const sorted = heading.textContent === listed.sorted;
    heading.setAttribute("aria-sort", sorted ? (listed.descending ? "descending" : "ascending") : "none");
  }
}

/** Return how far a question is from changing its outcome. */
const margin = ({ kind, refusal: score, best, right }, { tau, rho }) => Math.min(...[
  rho !== null && (score ?? best) - rho, tau !== null && kind === "answerable" && right !== null && right - tau,
].filter((distance) => distance !== false).map(Math.abs));

/** Offer the outcomes that there are, with their numbers, and keep the chosen one. */
function showChoices(rows) {
  const KINDS = { answerable: "", off_topic: "off topic: ", unanswerable: "unanswerable: " };
  const groups = Object.entries(KINDS).flatMap(([kind, words]) => Object.keys(OUTCOMES).map((outcome) => ({
    value: `${kind} ${outcome}`, words: `${words}${OUTCOMES[outcome]}`,
    count: rows.filter((row) => row.question.kind === kind && row.outcome === outcome).length })));
  part("only").replaceChildren(make("option", { value: "" }, `All ${rows.length} questions`),
    ...groups.filter(({ value, count }) => count || value === listed.only).map(({ value, words, count }) =>
      make("option", { value }, `${words[0].toUpperCase()}${words.slice(1)} (${count})`)));
  part("only").value = listed.only;
}

function startQuestions() {
  part("questions-head").replaceChildren(...Object.keys(COLUMNS).map((name) => make("th", { scope: "col" }, button(name, () => {
    Object.assign(listed, { sorted: name, descending: listed.sorted === name && !listed.descending, rows: PAGE });
    drawQuestions();
  }, { class: "link" }))));
  part("only").addEventListener("change", ({ target }) => { Object.assign(listed, { only: target.value, rows: PAGE }); drawQuestions(); });
  part("questions-more").addEventListener("click", () => { listed.rows += PAGE; drawQuestions(); });
}

// ---- The shadow release beside the current one ----

let shadowQuestions = [];

/** Show the part that compares two releases, and count the calibration questions that would change. */
async function prepareComparison() {
  const { shadow } = state.release ?? {};
  part("compare-form").hidden = !shadow;
  part("compare-hint").hidden = Boolean(shadow);
  part("compared").replaceChildren();
  if (!shadow) return;
  shadowQuestions = await allQuestions("shadow").catch(() => []);
  if (!shadowQuestions.length || !state.questions.length) return;
  part("changes").replaceChildren(...changesOf(state.questions, { tau: policy().tau, rho: refusal()?.rho ?? null },
    shadowQuestions, shadowQuestions.handles).map((words) => make("li", {}, words)));
}

/** Say how many questions of two releases change their outcome: a line for all, then one for every change. */
export function changesOf(current, currentAt, shadow, shadowAt) {
  const outcomes = (questions, at) => new Map(questions.map((question) => [question.text, outcomeOf(question, at)]));
  const before = outcomes(current, currentAt), after = outcomes(shadow, shadowAt), changes = new Map();
  const both = [...after].filter(([text]) => before.has(text));
  for (const [text, outcome] of both) {
    const change = `${before.get(text)} → ${outcome}`;
    if (before.get(text) !== outcome) changes.set(change, (changes.get(change) ?? 0) + 1);
  }
  const total = [...changes.values()].reduce((sum, count) => sum + count, 0);
  return [`${total} of ${both.length} calibration questions change.`, ...[...changes].map(([change, count]) => `${count}: ${change}`)];
}

/** Search the shadow release for the last question, and show both rankings. */
async function compare() {
  const { search, all, release } = state;
  if (!release?.shadow || !search || !part("compare-part").open) return;
  try {
    const { k, ...fields } = search;
    const shadow = await patiently("playground/shadow", { ...fields, ...(k && { k }), min_results: Math.min(k ?? policy().k, all.considered) }, { acting: true });
    const ranks = (reply) => new Map(reply.results.map((result) => [result.id, result.rank]));
    const column = (title, reply, other) => make("div", {}, make("h3", {}, title),
      hint(`τ = ${fixed(reply.threshold)}, ${reply.results.filter((result) => !result.below_threshold).length} kept`),
      make("ol", {}, ...reply.results.map((result) => make("li", { class: result.below_threshold && "dropped", dir: "auto" },
        result.title || result.id, make("span", { class: "hint" }, ` ${fixed(result.score)}, ${result.below_threshold ? "dropped" : "kept"}${
          !other.has(result.id) ? ", only here" : other.get(result.id) !== result.rank ? `, there ${other.get(result.id)}` : ""}`)))));
    part("compared").replaceChildren(column(`In service: ${all.release}`, all, ranks(shadow)), column(`Shadow: ${shadow.release}`, shadow, ranks(all)));
  } catch (error) {
    part("compared").replaceChildren(make("p", { class: "error" }, `${error.message}.`));
  }
}
