// Sorts and filters tables of the class "sortable", and unfolds the section that a link leads to. Without it, the tables
// are as they were written, and folded sections open by hand.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const { dataset, textContent } = row.cells[column];
    return dataset.value === undefined ? textContent.toLowerCase() : Number(dataset.value);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      body.append(...rows.sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0)).map(([, row]) => row));
    });
    head.append(button);
  });
  const words = document.createElement("input");
  words.type = "search";
  words.placeholder = "filter, such as lost";
  words.setAttribute("aria-label", "Words that a row has to contain");
  words.addEventListener("input", () => {
    const needed = words.value.toLowerCase().split(/\s+/);
    for (const row of body.rows) row.hidden = !needed.every((word) => row.textContent.toLowerCase().includes(word));
  });
  table.parentElement.before(words);
}
const unfold = () => {
  const folded = document.getElementById(location.hash.slice(1))?.querySelector(":scope > details");
  if (folded) folded.open = true;
};
addEventListener("hashchange", unfold);
unfold();
