"use strict";
// Shows the questions, and in them the answers and judgments, that the filters leave.
const at = id => document.getElementById(id);
const questions = [...document.querySelectorAll("[data-category]")];
const left = node => Object.entries(node.dataset).every(([name, values]) =>
  !at(name).value || values === at(name).value);

function filter() {
  const query = at("search").value.toLowerCase();
  let shown = 0;
  for (const question of questions) {
    const parts = [...question.querySelectorAll("[data-model]")];
    for (const part of parts) part.hidden = !left(part);
    question.hidden = !left(question) || !parts.some(part => part.dataset.verdict && !part.hidden)
      || !question.textContent.toLowerCase().includes(query);
    shown += !question.hidden;
  }
  at("count").textContent = `${shown} of ${questions.length} questions`;
}

let waiting;
at("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); };
for (const each of document.querySelectorAll("select")) each.onchange = filter;
if (at("model").length > 7) at("model").selectedIndex = 1; // many models: one at a time
filter();

// A click, or Enter, on a column's name sorts by it, the largest first; a second one the other way.
for (const name of document.querySelectorAll(".whole th")) {
  name.tabIndex = 0;
  name.onkeydown = event => event.key === "Enter" && name.onclick();
  name.onclick = () => sort(name);
}

function sort(name) {
  const text = row => row.cells[name.cellIndex].textContent;
  const rows = [...name.closest("table").rows].slice(1);
  rows.sort((a, b) => text(b).localeCompare(text(a), "en", { numeric: true }));
  name.ariaSort = name.ariaSort === "descending" ? "ascending" : "descending";
  name.closest("tr").after(...(name.ariaSort === "descending" ? rows : rows.reverse()));
}
