function startPlayground() {
  const listen = (id, type, listener) => part(id).addEventListener(type, listener);
  listen("ask-form", "submit", ask);
  listen("ask-form", "input", showCode);
  listen("question", "input", fitQuestion);
  listen("question", "keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event);
  });
  listen("key-form", "submit", useKey);
  listen("judge-results", "click", () => document.querySelector(".result").focus());
  listen("document", "input", findDocuments);
  listen("why-form", "submit", (event) => { event.preventDefault(); explain(); });
  listen("copy", "click", () => copy("snippet", "copied"));
  listen("copy-tau", "click", () => copy("command-tau", "copied-tau"));
  for (const choice of part("languages").children) {
    choice.addEventListener("click", () => { state.language = choice.textContent; showCode(); });
  }
  for (const [name, { slider }] of Object.entries(HANDLES)) {
    listen(slider, "keydown", (event) => moveByKey(name, event));
    listen(name, "change", ({ target }) => { if (!Number.isNaN(target.valueAsNumber)) setHandle(name, target.valueAsNumber); });
  }
  for (const type of ["pointerdown", "pointermove"]) listen("figure", type, moveByPointer);
  listen("tau-reset", "click", () => { part("slider").focus(); state.rho = null; setHandle("tau", null); });
  listen("compare-part", "toggle", compare);
  addEventListener("popstate", readAddress);
  new ResizeObserver(() => { fitQuestion(); if (state.reference) drawFigure(); }).observe(part("threshold"));
  startQuestions();
  showCode();
  refresh();
  if (location.search) readAddress();
  setInterval(() => { if (!document.hidden && !paused && !entered) refresh(); }, 15_000);
}

startPlayground();
