const LINES = [["kept", "Results kept"], ["loss", "Queries that lose their answer"]];
const PAD = 22; // pixels at both sides of the drawing
const DEFAULT_K = 5; // of taugate calibrate
const MIN_UNANSWERED = 5; // questions without an answer that are enough for a curve

/** Return the curves: name, words, and quantiles of what each shows. */
function sets() {
  const best = state.questions.filter(({ kind }) => kind !== "answerable").map((question) => question.best).sort((a, b) => a - b);
  const { correct, topk, random } = state.reference;
  return [["correct", "Correct documents", correct], ["topk", "Top-K results", topk],
    best.length >= MIN_UNANSWERED ? ["random", "Questions without an answer (first result)", best] : ["random", "Random documents", random]];
}

/** Return the values that the policy compares instead of similarities, on a separate scale; "" for similarities. */
const ownScale = () => POLICIES[policy().kind].scale;

/** Return the range that τ may be moved in. */
function tauRange() {
  return ownScale() ? POLICIES[policy().kind].span : similarityRange();
}

function similarityRange() {
  const scores = (state.all?.results ?? []).map((result) => result.score);
  const values = [...scores, ...(state.reference ? sets().flatMap(([, , quantiles]) => quantiles) : [0, 1])];
  return [Math.floor(Math.min(...values) * 20) / 20, Math.ceil(Math.max(...values) * 20) / 20];
}

// The two handles: τ is on the scale of the policy, ρ on that of the best similarity.
const HANDLES = {
  tau: { slider: "slider", range: tauRange, now: tauInForce },
  rho: { slider: "rho-slider", range: similarityRange, now: rhoInForce },
};
/** Tell whether ρ can be moved: other scores of questions than the best similarity have a scale of their own. */
const hasRho = () => (refusal()?.score ?? "best_similarity") === "best_similarity";

/** Set a threshold; null means the calibrated one. */
function setHandle(name, value) {
  const [low, high] = HANDLES[name].range();
  state[name] = value === null ? null : Math.min(high, Math.max(low, Math.round(value * 1000) / 1000));
  showThreshold();
  showAnswer();
  clearTimeout(setHandle.writing);
  setHandle.writing = setTimeout(writeAddress, 300); // browsers limit how often the address may change
}

function showThreshold() {
  showCode();
  const { reference, questions } = state, shown = reference !== null;
  for (const id of ["figure", "figure-table", "legend", "threshold-controls", "making"]) part(id).hidden = !shown;
  if (!shown) return;
  const { tau, rho } = handles(), point = tau === null ? null : onCurve(reference.curve, tau);
  let effect = "There is no threshold. Move the slider to try one.";
  if (tau !== null) effect = `At ${tauIs(tau)}, this release does not record what is kept and lost.`;
  if (point) effect = `At ${tauIs(tau)} you keep ${percent(point.kept)} of the results, and lose the answers to ${
    percent(point.loss)} of the calibration queries.${refusal() ? " Refused queries are not counted." : ""}`;
  if (questions.length) effect = `At these thresholds: ${effectOf(questions, handles())}.`;
  const summary = state.release?.manifest.summary ?? "";
  if (summary && !isMoved()) effect = summary; // whose counts did not choose the thresholds
  part("summary").textContent = summary && isMoved() ? `As calibrated:\n${summary}` : "";
  part("effect").textContent = effect;
  part("scales").hidden = !ownScale();
  part("scales").textContent = `Top: similarities. Bottom: ${ownScale()}, which are compared with τ.`;
  const curves = sets();
  part("legend").replaceChildren(...curves.map(([name, words]) => make("li", {},
    draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, draw("line", { class: `curve ${name}`, x1: 0, x2: 26, y1: 6, y2: 6 })), words)));
  for (const [name, { slider, range, now }] of Object.entries(HANDLES)) {
    const [low, high] = range(), value = now();
    part(name).value = value === null ? "" : fixed(value);
    const words = value === null ? `no ${name === "tau" ? "τ" : "ρ"}` : `${fixed(value)}. ${effect}`;
    const values = { valuemin: low, valuemax: high, valuenow: fixed(value ?? low), valuetext: words };
    for (const [attribute, text] of Object.entries(values)) part(slider).setAttribute(`aria-${attribute}`, text);
  }
  part("rho-slider").hidden = part("rho").parentElement.hidden = !hasRho();
  part("tau-reset").disabled = !isMoved();
  const { encoder } = state.release?.manifest ?? {}, { k } = policy();
  const command = ["taugate calibrate DATA", "--releases DIR", encoder && `--encoder ${encoder.name}`, k !== DEFAULT_K && `--k ${k}`, tau !== null && `--policy ${policy().kind}`, tau !== null && `--tau ${fixed(tau)}`,
    tau !== null && rho !== null && hasRho() && `--refuse ${fixed(rho)}`].filter(Boolean);
  part("command-tau").replaceChildren(...command.join(" ").split(/(--\S+ )/).map((words, i) => (i % 2 ? make("span", { class: "whole" }, words) : words)));
  drawFigure();
  const table7 = table("Percentiles", ["Percentile", ...curves.map(([, words]) => words)],
    [1, 5, 25, 50, 75, 95, 99].map((row) => [String(row), ...curves.map(([, , quantiles]) =>
      fixed(quantiles[Math.round((row * (quantiles.length - 1)) / 100)]))]));
  part("figure-table").replaceChildren(part("figure-table").firstElementChild, table7);
  showQuestions();
}

/** Draw the densities with ρ, the results of the last search as dots, and what thresholds keep and lose with τ. */
function drawFigure() {
  const { reference, all } = state, own = ownScale(), curves = sets(), { tau, rho } = handles();
  const width = part("figure").clientWidth || 320, [tall, short] = width > 420 ? [120, 70] : [84, 56];
  const base = 30 + tall, top = base + (own ? 56 : 28), bottom = top + short, height = bottom + 52;
  const scale = ([from, to]) => (x) => PAD + ((Math.min(to, Math.max(from, x)) - from) / (to - from)) * (width - 2 * PAD);
  const x = scale(tauRange()), similarityX = scale(similarityRange());
  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
  const line = (name, x1, y1, x2, y2) => draw("line", { class: name, x1, y1, x2, y2 });
  const write = (words, at, y, anchor, name) => draw("text", { x: at, y, "text-anchor": anchor, class: name }, words);
  const axis = (y, [from, to], place) => [line("axis", PAD, y, width - PAD, y), ...ticks(from, to, width / 60).map((value) =>
    write(value.toFixed(to - from < 0.2 ? 2 : 1), place(value), y + (y === bottom ? 44 : 30), "middle"))];
  const label = (words, at, y) => write(words, Math.min(Math.max(at, PAD + 26), width - PAD - 26), y, "middle", "strong");

  const [from, to] = similarityRange(), xs = Array.from({ length: 141 }, (_, i) => from + ((to - from) * i) / 140);
  const densities = curves.map(([, , quantiles]) => density(quantiles, xs)), peak = Math.max(...densities.flat());
  const hills = curves.flatMap(([name], i) => {
    const hill = path(densities[i].map((y, j) => [similarityX(xs[j]), base - (tall * y) / peak]));
    return [draw("path", { class: `area ${name}`, d: `${hill}V${base}H${PAD}Z` }), draw("path", { class: `curve ${name}`, d: hill })];
  });
  const at = isMoved() ? handles() : null;
  const dots = (all?.results ?? []).map((result) => draw("circle",
    { class: `dot${isKept(result, all, at) ? " in" : ""}`, cx: similarityX(result.score), cy: base + 14, r: 5 }));

  const [low, high] = tauRange(), inside = reference.curve.map((point) => point.tau).filter((tau) => tau > low && tau < high);
  const points = [low, ...inside, high].map((tau) => ({ ...onCurve(reference.curve, tau), tau }));
  const track = (name) => path(points.map((point) => [x(point.tau), bottom - short * point[name]]));
  const lines = !reference.curve.length ? [] : [
    ...LINES.map(([name]) => draw("path", { class: `curve ${name}`, d: track(name) })),
    write("results kept", tau !== null && x(tau) < PAD + 90 ? x(tau) + 6 : PAD + 4, top + 16, "start"), // not on the line of τ
    write("answers lost", width - PAD, bottom - short * points.at(-1).loss - 6, "end")];
  const grid = [0.5, 1].map((share) => line("grid", PAD, bottom - short * share, width - PAD, bottom - short * share));

  const shade = (to, y, until) => draw("rect", { class: "below", x: PAD, y, width: Math.max(to - PAD, 0), height: until - y });
  const marks = [];
  const mark = (name, value, calibrated, place, y, until, words) => {
    if (state[name] !== null && calibrated !== null) marks.push(line("tau-calibrated", place(calibrated), y, place(calibrated), until));
    if (value !== null) marks.push(line(`${name}-line`, place(value), y, place(value), until), label(...words(place(value))));
  };
  mark("tau", tau, policy().tau, x, own ? top : base - 8, bottom, (at) => [`τ ${fixed(tau)}`, at, bottom + 26]);
  if (hasRho()) mark("rho", rho, refusal()?.rho ?? null, similarityX, 22, base, (at) => [`ρ ${fixed(rho)}`, at, 14]);
  part("figure").querySelector("svg").replaceWith(
    draw("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" }, ...hills,
      tau !== null && shade(x(tau), own ? top : base, bottom), rho !== null && hasRho() && shade(similarityX(rho), 24, base),
      ...dots, ...grid, ...lines, ...axis(bottom, tauRange(), x),
      ...(own ? axis(base, similarityRange(), similarityX) : [line("axis", PAD, base, width - PAD, base)]), ...marks));
  Object.assign(part("slider").style, { left: `${x(tau ?? low)}px`, top: `${bottom - 22}px` });
  Object.assign(part("rho-slider").style, { left: `${similarityX(rho ?? from)}px`, top: `${base - tall / 2 - 22}px` });
  drawFigure.middle = base + 6; // above it, the pointer moves ρ
}

function moveByKey(name, event) {
  const { range, now } = HANDLES[name], [low, high] = range(), from = now() ?? low;
  const by = { ArrowLeft: -0.005, ArrowDown: -0.005, ArrowRight: 0.005, ArrowUp: 0.005, PageDown: -0.05, PageUp: 0.05 };
  const to = { Home: low, End: high }[event.key] ?? from + by[event.key];
  if (Number.isNaN(to) || event.ctrlKey || event.altKey || event.metaKey) return; // Alt and ← goes back a page
  event.preventDefault();
  setHandle(name, to);
}

let dragged = "tau";

function moveByPointer(event) {
  const box = part("figure").getBoundingClientRect();
  if (event.type === "pointerdown") {
    dragged = hasRho() && event.clientY - box.top < drawFigure.middle ? "rho" : "tau";
    event.currentTarget.setPointerCapture(event.pointerId);
    part(HANDLES[dragged].slider).focus({ preventScroll: true });
    event.preventDefault(); // which would move the focus away again
  } else if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
  const [low, high] = HANDLES[dragged].range();
  setHandle(dragged, low + ((event.clientX - box.left - PAD) / (box.width - 2 * PAD)) * (high - low));
}
