async function explain(event) {
  event?.preventDefault();
  const search = checkedSearch(), document_id = part("document").value.trim();
  const tell = (...parts) => part("explanation").replaceChildren(...parts.filter(Boolean));
  if (!document_id) part("document").focus();
  if (!document_id || !search) return;
  if (!search.query) return tell(hint("First enter a question at the top of the page."));
  tell(hint("Searching …"));
  try {
    const result = await patiently("explain", { ...search, document_id }, { acting: true });
    tell(make("p", {}, make("strong", {}, result.kept ? "It is among the results. " : "It is not among the results. "), result.why),
      result.truncated && make("p", {}, "Its text is longer than the encoder can read, so its end cannot be found."),
      result.rank !== null && figures(["Rank", `${result.rank} of ${result.ranked}`], ["Score", fixed(result.score)],
        result.relevance !== null && ["Relevance", percent(result.relevance)], ["τ", fixed(result.threshold)]));
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
  setPressed(part("languages").children, (element) => element.textContent === state.language);
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
  accuracy: "Accuracy without threshold", accuracy_at_tau: "Accuracy at τ", ndcg: "NDCG without threshold", ndcg_at_tau: "NDCG at τ",
  coe: "COE", roe: "ROE",
};

function showRelease(release) {
  const show = (...shown) => part("release-facts").replaceChildren(...shown);
  if (release instanceof Error) return show(hint(`The release cannot be shown: ${release.message}.`));
  part("parts-switch").hidden = !release.manifest.lexical;
  part("summary").textContent = release.manifest.summary ?? "";
  const { manifest } = release, { calibration, heldout } = manifest.metrics;
  const { tau, kind, k, method, guarantee } = manifest.policy;
  const facts = {
    State: chip(release.calibration, release.calibration === "provisional" ? "warn" : "good"),
    Release: release.release, "Shadow release": release.shadow, Documents: manifest.data.documents.toLocaleString("en"),
    Threshold: tau === null ? "none" : `${tauIs(tau)}, on ${kind}, for K = ${k}`,
    Refusals: manifest.refusal && `below ρ = ${fixed(manifest.refusal.rho)}`,
    Method: method, Evidence: guarantee,
    Queries: `${manifest.data.answerable.toLocaleString("en")} with an answer, ${manifest.data.unanswerable} without`,
    Score: manifest.lexical && `similarity + ${manifest.lexical.weight} · share of common words`,
    Encoder: `${manifest.encoder.name} (${release.precision})`, Loaded: new Date(release.loaded_at).toLocaleString(),
  };
  const given = Object.entries(facts).filter(([, value]) => value);
  const measured = (interval) => (interval ? `${percent(interval.mean)} (${between(interval)})` : "–");
  const rows = Object.entries(METRICS).filter(([name]) => calibration[name]).map(([name, words]) =>
    [words, interval(calibration[name]), measured(calibration[name]), ...(heldout ? [measured(heldout[name])] : [])]);
  show(make("dl", { class: "facts" }, ...given.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    table("Measured, with 95 % intervals", ["Metric", "", "Calibration", ...(heldout ? ["Held out"] : [])], rows));
}

function showDrift(release) {
  const show = (...shown) => part("gauges").replaceChildren(...shown);
  if (release instanceof Error) return show(hint("Alarms in replies are still shown at the top of the page."));
  if (!release.drift) return show(hint("Drift detection is off (TAUGATE_DRIFT is false)."));
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
  listen("parts", "change", ({ target }) => (target.checked && state.search ? ask() : showAnswer()));
  listen("copy", "click", copy);
  for (const choice of part("languages").children) {
    choice.addEventListener("click", () => { state.language = choice.textContent; showCode(); });
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
