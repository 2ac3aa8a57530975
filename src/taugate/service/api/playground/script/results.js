function showAnswer() {
  const { reply, all, tau } = state;
  if (!reply) return;
  const [kept, dropped] = [true, false].map((side) => all.results.filter((result) => isKept(result, all, tau) === side));
  part("answer-hint").textContent = "To judge, use the buttons, or press y or n on a focused result.";
  part("kept").replaceChildren(...kept.map((result) => resultItem(result, true)));
  part("dropped-part").hidden = !dropped.length;
  part("dropped-title").textContent = `Dropped: ${dropped.length} of ${all.results.length}`;
  part("dropped").replaceChildren(...dropped.map((result) => resultItem(result, false)));
  const judge = () => document.querySelector(".result").focus();
  part("verdict").replaceChildren(`${verdict(reply, all, kept)} `, stateOf(reply), " ",
    all.results.length ? button("Judge the results", judge, { class: "link" }) : "");
}

/** Describe the outcome of a search in a sentence. */
function verdict(reply, all, kept) {
  const tau = tauInForce(), n = reply.considered;
  if (!n) return "No document matches the filter.";
  const best = compared(all.results[0], reply.policy, reply.best_score);
  if (reply.reason === "unanswerable" && state.tau === null) {
    const { score, rho } = reply.refusal ?? {};
    return `Refused: the documents seem to hold no answer. ${rho === undefined
      ? `The best of ${n} results has ${fixed(best)}` : `The question has ${fixed(score)}, below ρ = ${fixed(rho)}`}.`;
  }
  if (reply.reason === "unreadable" && state.tau === null) {
    return "Refused: the encoder does not know the words of this question, so similarities are meaningless.";
  }
  if (tau === null) return `${n} results, none dropped: this release has no threshold.`;
  const pass = kept.length === 1 ? "passes" : "pass";
  if (kept.length) return `${kept.length} of ${n} results ${pass} the threshold ${tauIs(tau)}.`;
  return `Nothing passes the threshold ${tauIs(tau)}. The best of ${n} has ${fixed(best)}, ${distance(best, tau)} below it.`;
}

function stateOf(reply) {
  if (reply.drift.alarm) return chip("Drift alarm", "bad");
  if (reply.calibration === "provisional") return chip("Provisional", "warn");
  if (reply.truncated) return chip("Not calibrated: the question is longer than the encoder can read", "warn");
  if (reply.reason === "unreadable") return chip("Not calibrated: the encoder cannot read the question", "warn");
  if (state.tau !== null) return chip("Not calibrated: τ was moved");
  if (reply.calibrated) return chip("Calibrated", "good");
  const { filter, k } = state.search;
  return chip(`Not covered by the calibration${filter ? ": a filter is set" : k ? ": another k is set" : ""}`);
}

/** Return the figures of a score's parts and of the words behind the second. @param {Result} result */
function scoreParts({ parts, matched_words }) {
  if (!part("parts").checked || parts?.lexical === undefined) return [];
  return [["= similarity", fixed(parts.cosine)], ["+ shared words", fixed(parts.lexical)],
    ["Words", matched_words.join(", ") || "none"]];
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
    figures(["Score", fixed(result.score)], ...scoreParts(result), result.relevance !== null && ["Relevance", percent(result.relevance)], margin),
    make("p", { class: "chips" }, ...[["id", result.id], ...Object.entries(result.metadata)].map(([name, value]) =>
      chip(`${name}: ${Array.isArray(value) ? value.join(", ") : value}`))),
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
  const before = state.judged.get(result.id), status = item.querySelector("[role=status]");
  const mark = (verdict) => {
    state.judged.set(result.id, verdict);
    setPressed(item.querySelectorAll("[data-relevant]"), (element) => element.dataset.relevant === String(verdict));
  };
  mark(relevant);
  status.textContent = "Sending …";
  try {
    await patiently("feedback", { query_id: state.all.query_id, document_id: result.id, relevant }, { acting: true });
    status.textContent = relevant ? "Judged relevant." : "Judged not relevant.";
  } catch (error) {
    mark(before);
    status.textContent = `Not judged: ${error.status === 404 ? "this reply is too old; search again" : error.message}.`;
  }
}
