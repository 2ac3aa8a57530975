// ---- Why not this document? ----

let finding = 0;

/** Show documents that match what is typed, shortly after the last key. */
function findDocuments() {
  clearTimeout(finding);
  const text = part("document").value.trim();
  if (!text) return part("matches").replaceChildren();
  finding = setTimeout(async () => {
    const { documents, complete } = await patiently("playground/documents", { text }).catch(() => ({ documents: [], complete: true }));
    if (part("document").value.trim() !== text) return;
    const words = wordsOf(text);
    part("matches").replaceChildren(...documents.map(({ id, title, text: beginning }) => make("li", {},
      button("", () => explain(id)), make("span", { class: "hint" }, ...snippet(beginning, words)))));
    [...part("matches").querySelectorAll("button")].forEach((element, i) => element.append(...marked(documents[i].title || documents[i].id, words)));
    part("matches-hint").textContent = complete ? "" : "Not all documents were searched: give the whole id of another one.";
  }, 200);
}

/** Explain what the last search does with a document: the one with an id, else the first match, else what is typed. */
async function explain(id) {
  const search = checkedSearch(), typed = part("document").value.trim();
  const tell = (...parts) => part("explanation").replaceChildren(...parts.filter(Boolean));
  if (!id && !typed) part("document").focus();
  if ((!id && !typed) || !search) return;
  if (!search.query) return tell(hint("First enter a question at the top of the page."));
  tell(hint("Searching …"));
  try {
    const result = await explained(search, id, typed);
    tell(make("p", {}, make("strong", {}, result.kept ? "It is among the results. " : "It is not among the results. "), result.why),
      result.truncated && make("p", {}, "Its text is longer than the encoder can read, so its end cannot be found."),
      result.rank !== null && figures(["Rank", `${result.rank} of ${result.ranked}`], ["Score", fixed(result.score)],
        result.relevance !== null && ["Relevance", percent(result.relevance)], ["τ", fixed(result.threshold)]));
  } catch (error) {
    tell(make("p", { class: "error" }, `${error.message}.`));
  }
}

async function explained(search, id, typed) {
  const about = (document_id) => patiently("explain", { ...search, ...(state.tau !== null && { threshold: state.tau }), document_id }, { acting: true });
  if (id) return about(id);
  try {
    return await about(typed);
  } catch (error) {
    if (error.status !== 404) throw error;
    const { documents } = await patiently("playground/documents", { text: typed }, { acting: true }).catch(() => ({ documents: [] }));
    if (!documents.length) throw error;
    return about(documents[0].id);
  }
}

function showCode() {
  let search;
  try { search = readSearch(); } catch { return; } // the filter is being typed
  part("options-set").textContent = search.k || search.filter || search.group_by ? " (in use)" : "";
  search.query ||= "How do I pay?";
  if (state.tau !== null) search.threshold = state.tau;
  part("snippet").textContent = languages[state.language](search, BASE.href.replace(/\/$/, ""), key !== "");
  setPressed(part("languages").children, (element) => element.textContent === state.language);
}

async function copy(source, status) {
  try {
    await navigator.clipboard.writeText(part(source).textContent.trim());
    part(status).textContent = "Copied.";
  } catch { // not allowed, or not encrypted
    getSelection().selectAllChildren(part(source));
    part(status).textContent = "Selected: press Ctrl+C to copy.";
  }
}

const METRICS = {
  accuracy: "Accuracy without threshold", accuracy_at_tau: "Accuracy at τ", ndcg: "NDCG without threshold", ndcg_at_tau: "NDCG at τ",
};

function showRelease(release) {
  const show = (...shown) => part("release-facts").replaceChildren(...shown);
  if (release instanceof Error) return show(hint(`The release cannot be shown: ${release.message}.`));
  const { manifest } = release, { calibration, heldout } = manifest.metrics;
  const { tau, kind, k, method, guarantee } = policy(), second = manifest.second_stage;
  const facts = {
    State: chip(stateInWords(release), release.calibration === "calibrated" ? "good" : "warn"),
    Release: release.release, "Shadow release": release.shadow, Documents: manifest.data.documents.toLocaleString("en"),
    Threshold: tau === null ? "none" : `${tauIs(tau)}, on ${kind}, for K = ${k}`,
    Refusals: refusal() && `below ρ = ${fixed(refusal().rho)}`,
    Method: method, Evidence: guarantee,
    Queries: `${manifest.data.answerable.toLocaleString("en")} with an answer, ${manifest.data.unanswerable} without`,
    Score: manifest.lexical && `similarity + ${manifest.lexical.weight} · share of common words`,
    "Second stage": second && `${second.name} (${second.kind}), best ${second.candidates}`,
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
  const show = (...shown) => part("gauges").replaceChildren(...shown.filter(Boolean));
  if (release instanceof Error) return show(hint("Drift alarms in replies are still shown at the top of the page."));
  if (!release.drift) return show(hint("Drift detection is off (TAUGATE_DRIFT is false)."));
  const { alarm, signals } = release.drift;
  show(make("p", {}, alarm ? chip("Drift alarm", "bad") : chip("No drift alarm", "good"), alarm && ` ${named(signals)}`));
}

