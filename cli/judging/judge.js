// Shows one result after the other, and sends the key that the judge pressed. Texts come as texts, never as HTML.

const part = (id) => document.getElementById(id);
const letters = part("letters");
let shown = null; // what the server said last
let waiting = false; // for its answer: a second key would be about a result that nobody has read

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch(path, options);
  if (!reply.ok) throw new Error(`${reply.status}`);
  return reply.json();
}

function fill(element, segments) {
  element.replaceChildren(
    ...segments.map(([text, matched]) => {
      if (!matched) return document.createTextNode(text);
      const mark = document.createElement("mark");
      mark.textContent = text;
      return mark;
    }),
  );
}

function show(state) {
  const before = shown;
  shown = state;
  part("progress").textContent = state.progress;
  part("remark").textContent = state.remark ?? "";
  part("message").textContent = state.message ?? "";
  const asked = state.message === undefined;
  for (const id of ["asked", "query", "passage"]) part(id).hidden = !asked;
  if (asked) {
    part("query").textContent = state.query;
    part("heading").textContent = state.heading;
    fill(part("title"), state.title);
    fill(part("text"), state.text);
  }
  buttons(state, asked);
  if (before && asked) {
    scrollTo(0, 0);
    part("passage").focus({ preventScroll: true }); // so that a screen reader reads it
  }
}

function buttons(state, asked) {
  const keys = Object.entries(state.stopped ? {} : state.keys).filter(([key]) => asked || "uq".includes(key));
  part("keys").replaceChildren(
    ...keys.map(([key, action]) => {
      const button = document.createElement("button");
      const letter = document.createElement("kbd");
      letter.textContent = key;
      button.append(action[0].toUpperCase() + action.slice(1), letter);
      button.classList.toggle("judges", "yn".includes(key));
      button.setAttribute("aria-keyshortcuts", key);
      button.addEventListener("click", () => press(key));
      return button;
    }),
  );
  letters.parentElement.hidden = Boolean(state.stopped);
}

async function press(key) {
  if (waiting || !shown || shown.stopped) return;
  waiting = true;
  try {
    show(await ask("key", { key, pair: shown.pair ?? "" }));
  } catch {
    part("remark").textContent = "No answer from taugate judge. Is it still running? All earlier judgements are kept.";
  } finally {
    waiting = false;
  }
}

addEventListener("keydown", (event) => {
  const own = event.ctrlKey || event.altKey || event.metaKey || event.repeat || !letters.checked;
  const key = event.key.toLowerCase();
  if (own || !(key in (shown?.keys ?? {}))) return;
  event.preventDefault();
  press(key);
});

try {
  show(await ask("state"));
} catch {
  part("progress").textContent = "No answer from taugate judge. Start it again, and open the address that it prints.";
}
