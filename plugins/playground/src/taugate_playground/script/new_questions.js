// ---- The questions under a drift alarm that are least like the calibration ----

const EXAMPLES = 2, EXAMPLE_CHARACTERS = 40; // of the folded strip: four lines on a phone
const REPLAY = "taugate drift replay LOG --releases DIR";

let shownCount = 0; // of the groups shown: another process of the service may reply that has seen fewer questions

/** Fetch the groups of new questions and show them under an alarm; without them, say why there are none. */
async function showNewQuestions(alarm) {
  part("new").hidden = !alarm;
  if (!alarm) {
    shownCount = 0;
    return;
  }
  try {
    const { questions } = await patiently("playground/new-questions");
    if (questions?.length) return showGroups(questions);
    if (questions && shownCount) return;
    explainNoQuestions(questions ? "This process of the service has seen no unusual question under the alarm."
      : "The service keeps no texts, so it cannot name the questions: set TAUGATE_QUERY_LOG and TAUGATE_QUERY_LOG_TEXTS=true.");
  } catch (error) {
    explainNoQuestions(error.status === 403 ? `The new questions are those of other callers: ${error.message}. Use a key with the scope metrics, or run `
      : `The new questions cannot be shown: ${error.message}.`, error.status === 403 && make("code", {}, REPLAY));
  }
}

function showGroups(groups) {
  const since = (time) => new Date(time * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
  const short = (text) => text.length > EXAMPLE_CHARACTERS ? `${text.slice(0, EXAMPLE_CHARACTERS - 1).trimEnd()}…` : text;
  const number = groups.reduce((sum, { count }) => sum + count, 0);
  const examples = groups.slice(0, EXAMPLES).map(({ question, count }) => `“${short(question)}” (${count})`);
  if (number < shownCount || part("new-list").contains(document.activeElement)) return; // keep the rows that the reader uses
  shownCount = number;
  part("new-part").hidden = false;
  part("new-hint").hidden = true;
  part("new-title").replaceChildren(make("strong", {}, `${number} ${number === 1 ? "question" : "questions"} unlike the calibration`),
    ` since ${since(Math.min(...groups.map((group) => group.since)))}: ${examples.join(", ")}${groups.length > EXAMPLES ? " …" : ""}`);
  part("new-list").replaceChildren(...groups.map(({ question, word, count, best, since: first }) => make("li", {},
    make("b", {}, `${count} ×`), make("div", {}, button(question, () => askFor(question), { class: "link", dir: "auto" }),
      hint(`${word ? `new word “${word}”, ` : ""}since ${since(first)}, best score ${fixed(best)}`)))));
}

function explainNoQuestions(words, command) {
  shownCount = 0;
  part("new-part").hidden = true;
  part("new-hint").hidden = false;
  if (part("new-hint").dataset.words !== words) part("new-hint").replaceChildren(words, ...(command ? [command, "."] : []));
  part("new-hint").dataset.words = words;
}

/** Unfold the groups of new questions, or go to the sentence that says why there are none. */
function openNewQuestions() {
  part("new-part").open = true;
  part("new").scrollIntoView({ block: "center" });
  (part("new-part").hidden ? part("new-hint") : part("new-title")).focus();
}
