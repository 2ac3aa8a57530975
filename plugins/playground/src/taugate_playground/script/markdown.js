// Markdown as elements: what most texts have of it. Anything else, HTML included, stays the text that it is.
const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|(?<![*\w])\*[^*\s][^*]*\*|\[[^\]]+\]\(https?:\/\/[^)\s]+\))/;
const BULLET = /^\s*(?:[-*+]|(\d+)[.)])\s+/;

/** Split a text at words to mark: those of the question, and those that the score counted. @param {Set<string>} words */
const marked = (text, words) => text.split(/([\p{L}\p{N}]+)/u).map((piece, i) =>
  i % 2 && words.has(piece.toLowerCase()) ? make("mark", {}, piece) : piece);

function inline(text, words) {
  return text.split(INLINE).flatMap((piece, i) => {
    if (i % 2 === 0) return marked(piece, words);
    if (piece.startsWith("`")) return make("code", {}, piece.slice(1, -1));
    if (piece.startsWith("**")) return make("strong", {}, ...marked(piece.slice(2, -2), words));
    if (piece.startsWith("*")) return make("em", {}, ...marked(piece.slice(1, -1), words));
    const [, label, href] = piece.match(/^\[([^\]]+)\]\((.+)\)$/);
    return make("a", { href, rel: "noopener noreferrer", target: "_blank" }, ...marked(label, words));
  });
}

/** Build the elements of a text: paragraphs, headings, lists, and code in fences; tables keep their columns. */
function markdown(text, words) {
  const blocks = [];
  for (const [i, piece] of text.split(/^\s*```.*$/m).entries()) {
    if (i % 2) blocks.push(make("pre", {}, make("code", {}, piece.replace(/^\n|\n$/g, ""))));
    else blocks.push(...piece.split(/\n\s*\n/).filter((block) => block.trim()).map((block) => blockOf(block, words)));
  }
  return blocks;
}

function blockOf(block, words) {
  const lines = block.split("\n").filter((line) => line.trim());
  if (lines.every((line) => line.trim().startsWith("|"))) return make("pre", {}, ...marked(block, words));
  if (lines.every((line) => BULLET.test(line))) {
    return make(BULLET.exec(lines[0])[1] ? "ol" : "ul", {},
      ...lines.map((line) => make("li", {}, ...inline(line.replace(BULLET, ""), words))));
  }
  const heading = /^\s*#{1,6}\s+(.*?)#*$/.exec(lines[0]);
  if (heading && lines.length === 1) return make("p", {}, make("strong", {}, ...marked(heading[1], words)));
  return make("p", {}, ...inline(block, words));
}

/** Return a line of a text without its marks, from shortly before the first word to mark. */
function snippet(text, words) {
  const plain = text.replace(/[`*#|]+|\]\([^)]*\)|\[/g, " ").replace(/\s+/g, " ").trim();
  const places = [...plain.matchAll(/[\p{L}\p{N}]+/gu)].filter(([word]) => words.has(word.toLowerCase()));
  const start = places.length && places[0].index > 120 ? plain.lastIndexOf(" ", places[0].index - 60) + 1 : 0;
  return marked(`${start ? "… " : ""}${plain.slice(start, start + 400)}`, words);
}
