const BASE = new URL(".", location.href);
const SLOW_SECONDS = 2, LOST_SECONDS = 30; // the service itself gives up after 5 s by default
const PAUSES = [1, 2, 4, 8]; // seconds before each new attempt, and the last for all that follow
const timings = new WeakMap(); // of each reply: milliseconds, and whether it was cached
let key = ""; // only in this variable, never in storage, in the address or in a cookie

/** Send one request and return its JSON. Throws an error with the status, 0 for no reply, or that it was aborted. */
async function call(path, body, signal) {
  const began = performance.now(), lost = AbortSignal.timeout(LOST_SECONDS * 1000);
  const slow = setInterval(() => {
    const seconds = Math.round((performance.now() - began) / 1000);
    if (seconds >= SLOW_SECONDS) notice("slow", "plain", "The service is responding slowly.", `Waiting for ${seconds} s.`);
  }, 1000);
  try {
    const reply = await fetch(new URL(path, BASE), {
      method: body ? "POST" : "GET",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) },
      body: body && JSON.stringify(body), cache: "no-store", credentials: "omit",
      signal: signal ? AbortSignal.any([signal, lost]) : lost,
    });
    const text = await reply.text(), json = reply.headers.get("Content-Type")?.startsWith("application/json");
    if (reply.ok) {
      const value = JSON.parse(text), cached = reply.headers.get("Server-Timing")?.includes("hit") ?? false;
      timings.set(value, { milliseconds: Math.max(1, Math.round(performance.now() - began)), cached });
      return value;
    }
    const message = (json && JSON.parse(text).error?.message) || `the service returned status ${reply.status}`;
    const seconds = Number(reply.headers.get("Retry-After")) || undefined;
    throw Object.assign(new Error(message), { status: reply.status, seconds });
  } catch (error) {
    throw signal?.aborted || error.status ? error : Object.assign(error, { status: 0 });
  } finally {
    clearInterval(slow);
    notice("slow");
  }
}

/**
 * Call until there is an answer: after a pause if the service is away or busy, with another key if it refuses one.
 * acting: whether the reader waits for it.
 */
async function patiently(path, body, { signal, acting } = {}) {
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    try {
      const reply = await call(path, body, signal);
      tellService("ready");
      return reply;
    } catch (error) {
      if (error.status === 401) await anotherKey(error, acting);
      else if ([0, 429, 502, 503].includes(error.status)) await pause(error, error.seconds ?? PAUSES[attempt] ?? PAUSES.at(-1));
      else throw error;
    }
  }
}

let paused = null; // the pause that all requests wait for, and how to end it

function pause(error, seconds) {
  if (paused) return paused.promise;
  const away = [0, 502].includes(error.status), until = performance.now() + seconds * 1000;
  tellService(away ? "away" : "busy");
  const words = away
    ? `The service at ${BASE.host} is not responding. Your input is kept, and sent once the service is back.`
    : `The service is busy: ${error.message}.`;
  const tell = () => {
    const left = Math.ceil((until - performance.now()) / 1000), now = ["Try now", () => paused?.end()];
    if (left <= 0) paused.end();
    else notice("connection", away ? "bad" : "warn", words, `Trying again in ${left} s.`, now);
  };
  const counting = setInterval(tell, 250), { promise, resolve } = Promise.withResolvers();
  paused = { promise, end: () => { clearInterval(counting); paused = null; resolve(); } };
  tell();
  return promise;
}

let entered = null; // the requests that wait for a key, and how to resume them

function openKeyForm() {
  part("access").open = true;
  part("key").focus();
}

const needKey = (words) => notice("key", "bad", words, "", ["Enter a key", openKeyForm]);

function anotherKey(error, acting) {
  tellService("key");
  needKey(`${error.message[0].toUpperCase()}${error.message.slice(1)}. Your input is kept.`);
  if (acting) openKeyForm();
  entered ??= Promise.withResolvers();
  return entered.promise;
}

function useKey(event) {
  event.preventDefault();
  const typed = part("key").value.trim();
  part("key").value = "";
  if (/[^\x21-\x7e]/.test(typed)) { // it cannot be sent in a header, and would look like a lost connection
    needKey("This is not an API key: keys have no spaces, and only ASCII characters.");
    return openKeyForm();
  }
  key = typed;
  part("access").open = false;
  notice("key");
  if (entered) entered.resolve();
  else refresh();
  entered = null;
  showCode();
}

function tellService(condition) {
  if (condition === "ready") notice("connection");
  const label = condition !== "ready" ? { away: "Not responding", busy: "Busy", key: "Needs a key" }[condition]
    : `Ready${state.release ? ` · release ${state.release.release}` : ""}`;
  part("service").dataset.state = condition;
  if (part("service").textContent !== label) part("service").textContent = label;
}
