const SETS = [["correct", "Correct documents"], ["topk", "Top-K results"], ["random", "Random documents"]];
const LINES = [["kept", "Results kept"], ["loss", "Queries that lose their answer"]];
const PAD = 22; // pixels at both sides of the drawing

// Values that policies compare instead of similarities, on a separate scale.
const OWN_SCALES = {
  relative: "shares of the best similarity", gap: "differences from the best similarity", probability: "relevance",
};
const ownScale = () => OWN_SCALES[policy().kind];

/** Return the range that τ may be moved in. */
function tauRange() {
  if (policy().kind === "gap") return [-1, 0];
  if (ownScale()) return [0, 1];
  const scores = (state.all?.results ?? []).map((result) => result.score);
  const values = [...scores, ...SETS.flatMap(([name]) => state.reference[name])];
  return [Math.floor(Math.min(...values) * 20) / 20, Math.ceil(Math.max(...values) * 20) / 20];
}

/** Set the threshold; null means the calibrated one, for which the search is repeated, because it may be refused. */
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
  let effect = "There is no threshold. Move the slider to try one.";
  if (tau !== null) effect = `At ${tauIs(tau)}, this release does not record what is kept and lost.`;
  if (point) effect = `At ${tauIs(tau)} you keep ${percent(point.kept)} of the results, and lose the answers to ${
    percent(point.loss)} of the calibration queries.${
    state.release?.manifest.abstention ?? state.release?.manifest.refusal ? " Refused queries are not counted." : ""}`;
  part("effect").textContent = effect;
  part("scales").hidden = !ownScale();
  part("scales").textContent = `Top: similarities. Bottom: ${ownScale()}, which are compared with τ.`;
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
      steps.map((step) => [fixed(step.tau), percent(step.kept), percent(step.loss)])));
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
  const densities = sets.map((quantiles) => density(quantiles, xs)), peak = Math.max(...densities.flat());
  const hills = SETS.flatMap(([name], i) => {
    const hill = path(densities[i].map((y, j) => [similarityX(xs[j]), base - (tall * y) / peak]));
    const area = draw("path", { class: `area ${name}`, d: `${hill}V${base}H${PAD}Z` });
    return [area, draw("path", { class: `curve ${name}`, d: hill })];
  });
  const dots = (all?.results ?? []).map((result) => draw("circle",
    { class: `dot${isKept(result, all, state.tau) ? " in" : ""}`, cx: similarityX(result.score), cy: base + 14, r: 5 }));

  const inside = reference.curve.map((point) => point.tau).filter((tau) => tau > low && tau < high);
  const points = [low, ...inside, high].map((tau) => ({ ...onCurve(reference.curve, tau), tau }));
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
    event.preventDefault(); // which would move the focus away again
  } else if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
  const box = part("figure").getBoundingClientRect(), [low, high] = tauRange();
  setTau(low + ((event.clientX - box.left - PAD) / (box.width - 2 * PAD)) * (high - low));
}
