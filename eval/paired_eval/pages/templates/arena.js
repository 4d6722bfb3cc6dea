"use strict";
// Shows the questions of one model and judge that the filters leave, and says how many there are.
const at = id => document.getElementById(id);
const questions = [...document.querySelectorAll(".question")];
const chips = [...document.querySelectorAll(".chips button")];
let kind = ""; // of the judgments that are shown, "" for all

// Whether a part of a question is of the model and the judge that are chosen.
const isChosen = part => ["model", "judge"].every(name =>
  !(name in part.dataset) || part.dataset[name] === at(name).value);

// How the chosen model fared in a question: "" where the chosen judge has not judged it.
function kindOf(question) {
  const judged = [...question.querySelectorAll("summary > [data-kind]")].find(isChosen);
  return judged ? judged.dataset.kind : "";
}

function filter() {
  const query = at("search").value.toLowerCase();
  const category = at("category").value;
  const counts = { "": 0 };
  for (const question of questions) {
    for (const part of question.querySelectorAll("[data-model]")) part.hidden = !isChosen(part);
    const outcome = kindOf(question);
    const matches = outcome && (!category || question.dataset.category === category)
      && question.textContent.toLowerCase().includes(query);
    question.hidden = !matches || (kind !== "" && outcome !== kind);
    if (!matches) continue;
    counts[""] += 1;
    counts[outcome] = (counts[outcome] ?? 0) + 1;
  }
  for (const chip of chips) {
    chip.querySelector("span").textContent = counts[chip.dataset.kind] ?? 0;
    chip.ariaPressed = String(chip.dataset.kind === kind);
  }
  at("count").textContent = `${counts[kind] ?? 0} of ${questions.length} questions`;
}

let waiting;
at("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); };
for (const name of ["model", "judge", "category"]) at(name).onchange = filter;
for (const chip of chips) chip.onclick = () => { kind = chip.dataset.kind; filter(); };
filter();
