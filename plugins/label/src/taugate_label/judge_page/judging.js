// The page of `taugate judge`: one result after the other, and the key that the judge pressed. It sends requests only to
// the server that it came from, stores nothing, and inserts every text into the page as text.

const SECONDS = 30; // without a reply, after which the server is lost

/** Send one request and return its JSON. Throws an error if there is no reply, or another one. */
async function call(path, body) {
  const reply = await fetch(new URL(path, new URL(".", location.href)), {
    method: body ? "POST" : "GET", headers: body && { "Content-Type": "application/json" }, body: body && JSON.stringify(body),
    cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(SECONDS * 1000),
  });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

let shown = null; // last reply of the server
let waiting = false; // for its reply: a second key would judge a result that was not shown yet

const fill = (id, segments) =>
  part(id).replaceChildren(...segments.map(([text, matched]) => (matched ? make("mark", {}, text) : text)));

function show(next) {
  const before = shown, asks = next.message === undefined;
  shown = next;
  for (const id of ["progress", "guideline", "remark", "message", "step", "command"]) part(id).textContent = next[id] ?? "";
  part("bar").hidden = !next.total;
  part("bar").max = next.total ?? 1;
  part("bar").value = next.done ?? 0;
  for (const id of ["asked", "query", "passage"]) part(id).hidden = !asks;
  if (asks) {
    for (const id of ["query", "heading"]) part(id).textContent = next[id];
    for (const id of ["title", "text"]) fill(id, next[id]);
  }
  const keys = Object.entries(next.stopped ? {} : next.keys).filter(([letter]) => asks || "uq".includes(letter));
  part("keys").replaceChildren(...keys.map(([letter, action]) => {
    const attributes = { class: "yn".includes(letter) && "main", "aria-keyshortcuts": letter };
    const labelled = button(action[0].toUpperCase() + action.slice(1), () => press(letter), attributes);
    labelled.append(make("kbd", {}, letter));
    return labelled;
  }));
  part("letters").parentElement.hidden = Boolean(next.stopped);
  if (before && asks) {
    scrollTo(0, 0);
    part("passage").focus({ preventScroll: true }); // so that a screen reader reads it
  }
}

async function press(letter) {
  if (waiting || !shown || shown.stopped) return;
  waiting = true;
  await call("key", { key: letter, pair: shown.pair ?? "" }).then(show).catch(() => {
    part("remark").textContent = "No answer from taugate judge. Is it still running? All earlier judgements are kept.";
  });
  waiting = false;
}

addEventListener("keydown", (event) => {
  const own = event.ctrlKey || event.altKey || event.metaKey || event.repeat || !part("letters").checked;
  const letter = event.key.toLowerCase();
  if (own || !(letter in (shown?.keys ?? {}))) return;
  event.preventDefault();
  press(letter);
});

call("state").then(show).catch(() => {
  part("progress").textContent = "No answer from taugate judge. Start it again, and open the address that it prints.";
});
