"use strict";
// Rows of problems, a square for each response, and the text of one that is asked for. Rows are
// made as far as the reader scrolls, and texts are read from the page when they are shown.
const CHUNK = 50; // rows at a time
const at = id => document.getElementById(id);
const { runs, tasks, kinds, problems } = JSON.parse(at("data").textContent);
problems.forEach((problem, number) => { problem.number = number; });

function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Text as it is; what would not be seen, or would turn the reading direction, as its number.
const visible = text => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu, character =>
  "\n\t\u200d".includes(character) ? character
    : `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`);

// Filters

const count = (problem, run, kind) => problem.kinds[run].filter(name => name === kind).length;
const right = (problem, run) => count(problem, run, "right");
const share = (problem, run) => // of the responses that are in the figures
  right(problem, run) / (problem.kinds[run].length - count(problem, run, "masked") || 1);
const any = kind => problem => runs.some((_, run) => count(problem, run, kind));
const noneRight = problem => runs.every((_, run) => right(problem, run) === 0);
const against = run => ({ // the first run
  [`A right, ${runs[run]} wrong`]: problem => right(problem, 0) > 0 && right(problem, run) === 0,
  [`${runs[run]} right, A wrong`]: problem => right(problem, run) > 0 && right(problem, 0) === 0,
});
const outcomes = runs.length > 2 ? {
  ...Object.assign({}, ...runs.slice(1).map((_, place) => against(place + 1))),
  "none right": noneRight,
} : runs.length > 1 ? {
  ...against(1),
  "A more often right": problem => share(problem, 0) > share(problem, 1),
  "B more often right": problem => share(problem, 1) > share(problem, 0),
  "none right": noneRight,
} : {
  "all right": problem => share(problem, 0) === 1,
  "some right": problem => right(problem, 0) > 0 && share(problem, 0) < 1,
  "none right": noneRight,
};
const rare = { "cut off": any("cut"), "not graded": any("ungraded"), masked: any("masked") };
const chips = { all: () => true, ...outcomes };
for (const [name, test] of Object.entries(rare)) if (problems.some(test)) chips[name] = test;
let chosen = "all";
let shown = []; // the problems that the filters leave

// What is looked for stands in JSON, so it is written as JSON has it.
function pattern() {
  const text = JSON.stringify(at("search").value).slice(1, -1).replaceAll("<", "\\u003c");
  return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
}

function filter() {
  const query = pattern();
  const task = at("task")?.value ?? "";
  const found = problems.filter(problem =>
    (task === "" || problem.task === Number(task)) && query.test(at(`texts${problem.number}`).textContent));
  at("chips").replaceChildren(...Object.entries(chips).map(([name, test]) => {
    const number = found.filter(test).length.toLocaleString("en");
    const chip = make("button", { type: "button", textContent: `${name} ${number}`,
      ariaPressed: String(name === chosen) });
    chip.onclick = () => choose(name);
    return chip;
  }));
  shown = found.filter(chips[chosen]);
  at("count").textContent =
    `${shown.length.toLocaleString("en")} of ${problems.length.toLocaleString("en")} problems`;
  at("problems").replaceChildren();
  showMore();
}

function choose(name) {
  chosen = name;
  filter();
  at("chips").querySelector("[aria-pressed=true]").focus();
}

function showMore() {
  const start = at("problems").children.length;
  at("problems").append(...shown.slice(start, start + CHUNK).map(rowOf));
  at("more").hidden = start + CHUNK >= shown.length;
}

// Rows

const nameOf = run => runs[run] ? `${runs[run]}, ` : "";

function rowOf(problem) {
  const task = tasks.length > 1 ? `${tasks[problem.task]}, ` : "";
  const groups = problem.kinds.map((names, run) => make("div", { className: "squares" },
    ...(runs[run] ? [make("b", { textContent: runs[run] })] : []),
    ...names.map((name, draw) => squareOf(problem, run, draw))));
  const row = make("li", { className: "problem" },
    make("div", {},
      make("p", { textContent: visible(problem.prompt) }),
      make("p", { className: "quiet", textContent: visible(`${task}gold answer: ${problem.gold}`) })),
    make("div", { className: "groups", role: "group", ariaLabel: "responses" }, ...groups));
  row.querySelector(".square").tabIndex = 0;
  row.onkeydown = event => move(row, event);
  return row;
}

function squareOf(problem, run, draw) {
  const [sign, meaning] = kinds[problem.kinds[run][draw]];
  const square = make("button", { type: "button", className: `square ${problem.kinds[run][draw]}`,
    textContent: sign, title: meaning, ariaLabel: `${nameOf(run)}response ${draw + 1}: ${meaning}`,
    ariaExpanded: "false", tabIndex: -1 });
  square.onclick = () => toggle(square, problem, run, draw);
  return square;
}

// One square of a row can be reached with the tabulator, the others from there with arrows.
function move(row, event) {
  if (event.key === "Escape") return close(row);
  const squares = [...row.querySelectorAll("button.square")];
  const place = squares.indexOf(document.activeElement);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const rows = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling };
  if (place < 0 || !(step || rows[event.key])) return;
  event.preventDefault();
  const next = step ? squares[place + step]
    : rows[event.key].querySelectorAll("button.square")[place];
  if (!next) return;
  for (const square of next.closest(".problem").querySelectorAll("button.square")) square.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  if (row.querySelector(".response")) { // the text follows
    close(row);
    next.click();
    next.focus();
  }
}

function close(row) {
  const square = row.querySelector("[aria-expanded=true]");
  row.querySelector(".response")?.remove();
  if (!square) return;
  square.ariaExpanded = "false";
  square.focus();
}

function toggle(square, problem, run, draw) {
  const row = square.closest(".problem");
  const wasOpen = square.ariaExpanded === "true";
  close(row);
  if (wasOpen) return;
  square.ariaExpanded = "true";
  row.append(responseOf(problem, run, draw));
  square.focus({ preventScroll: true });
}

// The text of a response

function responseOf(problem, run, draw) {
  const [prompt, gold, images, responses] = JSON.parse(at(`texts${problem.number}`).textContent);
  const [answer, graded, thinking, refusal] = responses[run][draw];
  const [, meaning] = kinds[problem.kinds[run][draw]];
  const status = problem.statuses[run][draw].replace("_", " ");
  const tokens = problem.tokens[run][draw];
  const facts = [status && `graded as ${status}`, tokens !== null && `${tokens.toLocaleString("en")} tokens`];
  const title = `${nameOf(run)}response ${draw + 1} of ${responses[run].length}: ${meaning}`;
  return make("section", { className: "response", ariaLabel: title },
    make("h3", { textContent: title }),
    make("p", { className: "quiet", textContent: facts.filter(Boolean).join(", ") }),
    ...part("Problem", prompt),
    ...(images.length ? part("Images", images.join("\n")) : []),
    ...part("Gold answer", gold),
    ...(refusal ? part("Refused, in the endpoint's words", refusal) : [
      ...part("Extracted answer", answer || "none"),
      ...part("Graded part", graded || "nothing: the text ends within its thinking", answer)]),
    ...(thinking ? [make("details", {}, make("summary", { textContent: "Thinking, which is not graded" }),
      textOf(thinking))] : []));
}

const part = (title, text, marked) => [make("h4", { textContent: title }), textOf(text, marked)];

function textOf(text, marked) {
  const place = marked ? text.lastIndexOf(marked) : -1;
  const node = make("div", { className: "text", tabIndex: 0, dir: "auto" });
  if (place < 0) node.append(visible(text));
  else node.append(visible(text.slice(0, place)), make("mark", { textContent: visible(marked) }),
    visible(text.slice(place + marked.length)));
  return node;
}

let waiting;
at("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); };
if (at("task")) at("task").onchange = filter;
at("more").onclick = showMore;
new IntersectionObserver(seen => seen.some(entry => entry.isIntersecting) && showMore(), { rootMargin: "600px" })
  .observe(at("more"));
filter();
