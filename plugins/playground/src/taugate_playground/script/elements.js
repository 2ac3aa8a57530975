const SVG = document.querySelector("svg").namespaceURI;
const draw = builder((tag) => document.createElementNS(SVG, tag));
const setPressed = (buttons, isOn) => [...buttons].forEach((element) => element.setAttribute("aria-pressed", String(isOn(element))));
const hint = (words) => make("p", { class: "hint" }, words);
const chip = (words, tone = "plain") => make("span", { class: "chip", "data-tone": tone }, words);
const figures = (...pairs) => make("p", { class: "figures" },
  ...pairs.filter(Boolean).map(([name, value]) => make("span", {}, `${name} `, make("b", {}, value))));

/** Build a table; an element among the cells of a row is a drawing. */
function table(caption, head, rows) {
  const cell = (value, i) => i === 0 ? make("th", { scope: "row" }, value)
    : make("td", { class: value instanceof Element && "drawn" }, value);
  const column = (name) => make(name ? "th" : "td", { scope: name ? "col" : null, class: !name && "drawn" }, name);
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map(column))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))))));
}

/** Draw an interval and its mean between 0 and 1. */
const interval = ({ mean, lower, upper }) =>
  draw("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { class: "grid", x1: 0, x2: 100, y1: 7, y2: 7 }),
    draw("rect", { class: "area correct", x: 100 * lower, width: 100 * (upper - lower), y: 3, height: 8 }),
    draw("rect", { class: "dot in", x: 100 * mean - 0.4, width: 0.8, y: 2, height: 10 }));

/**
 * Show a notice above everything else, or take it away if there are no words. tone: warn, bad or plain; aside:
 * changes often, so that it is not read out; action: words of a button, and what it does.
 */
function notice(name, tone, words, aside = "", action = null) {
  let shown = part(`notice-${name}`);
  if (shown?.dataset.words !== words) {
    shown?.remove();
    if (!words) return;
    const line = make("p", {}, make("span", {}, words), make("span", { "aria-hidden": "true" }));
    const role = tone === "plain" ? "status" : "alert";
    const attributes = { id: `notice-${name}`, class: "notice", role, "data-tone": tone, "data-words": words };
    shown = make("div", attributes, line, action && button(...action));
    part("notices").append(shown);
  }
  if (shown) shown.querySelector("p").lastElementChild.textContent = aside && ` ${aside}`;
}
