"use strict";
const at = id => document.getElementById(id);
const SIGNS = { 2: "++", 1: "+ ", 0: "= ", "-1": "\u2212 ", "-2": "\u2212\u2212", null: "? " };
const OF_A = { "A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2 };
const KINDS = {
  "any verdicts": () => true,
  "the model wins both games": (a, b) => a > 0 && b > 0,
  "the baseline wins both games": (a, b) => a < 0 && b < 0,
  "the games name different winners": (a, b) => a * b < 0,
  "a tie and a winner": (a, b) => a !== null && b !== null && (a === 0) !== (b === 0),
  "ties in both games": (a, b) => a === 0 && b === 0,
  "much better, in a game": (a, b) => Math.abs(a) === 2 || Math.abs(b) === 2,
  "a verdict is missing": (a, b) => a === null || b === null,
};
let data, shown = [], place = 0;

function make(kind, of = {}, ...inside) {
  const node = Object.assign(document.createElement(kind), of);
  node.append(...inside);
  return node;
}

// Text with the words searched for marked; between fences, with a fixed width.
function said(text) {
  const box = make("div", { className: "said" });
  const query = searched();
  text.split(/^ {0,3}```/m).forEach((part, number, parts) => {
    const fenced = number % 2, into = fenced ? box.appendChild(make("code")) : box;
    if (fenced) into.append("```");
    let from = 0;
    for (const found of query ? part.matchAll(new RegExp(query.source, "gi")) : []) {
      into.append(part.slice(from, found.index), make("mark", { textContent: found[0] }));
      from = found.index + found[0].length;
    }
    into.append(part.slice(from));
    if (fenced && number + 1 < parts.length) into.append("```");
  });
  return box;
}

function searched() {
  const query = at("search").value;
  return query && new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
}

// Of the chosen model and judge.
const own = question => question.models[at("model").value] || {};
const games = question => (own(question).judged || {})[at("judge").value] || [null, null];

// How the model fared in both games; null without a verdict.
function margins(question) {
  return games(question).map((game, number) => {
    const of_a = game && game[0] ? OF_A[game[0]] : null;
    return of_a === null || number ? of_a : 0 - of_a;
  });
}

function texts(question) {
  const answers = [question.baseline, own(question)].flatMap(of => [of.text, of.thinking]);
  return [question.uid, question.prompt, ...answers, ...games(question).map(game => game?.[1])];
}

function filter() {
  const query = searched(), category = at("category").value, kind = KINDS[at("verdict").value];
  const current = shown[place];
  shown = data.questions.filter(question => question.models[at("model").value]
    && (!category || question.category === category) && kind(...margins(question))
    && (!query || texts(question).some(text => text && query.test(text))));
  place = Math.max(0, shown.indexOf(current));
  at("count").textContent = `${shown.length} of ${data.questions.length} questions`;
  at("list").replaceChildren(...shown.map((question, number) => {
    const signs = margins(question).map(margin => SIGNS[margin]).join(" ");
    const words = make("span", { textContent: question.prompt.trim().slice(0, 120) });
    return make("li", {}, make("button", { onclick: () => show(number) }, words,
      make("span", { textContent: signs })));
  }));
  show(place);
}

const lost = textContent => make("p", { className: "lost", textContent });

function answer(title, of) {
  const box = make("section", { className: "box" }, make("h3", { textContent: title }));
  if (of.thinking) {
    const folded = make("details", {}, make("summary", { textContent: "Thinking" }));
    folded.addEventListener("toggle", () => folded.append(said(of.thinking)), { once: true });
    box.append(folded);
  }
  box.append(of.text === null ? lost("No answer is in the files.") : said(of.text));
  return box;
}

function game(question, number) {
  const [a, b] = number ? ["the model", "the baseline"] : ["the baseline", "the model"];
  const box = make("section", { className: "box" },
    make("h3", { textContent: `Game ${number + 1}: A is ${a}, B is ${b}` }));
  const of = games(question)[number], margin = margins(question)[number];
  if (of === null) {
    box.append(lost("Not held, or the judge's call failed."));
    return box;
  }
  const better = `${margin > 0 ? "the model" : "the baseline"} is`
    + (Math.abs(margin) > 1 ? " much better" : " better");
  const words = margin === null ? "the judge gave no verdict" : margin === 0 ? "a tie" : better;
  const mark = make("span", { className: "verdict", textContent: of[0] || "none" });
  box.append(make("p", {}, mark, words), said(of[1]));
  return box;
}

function show(number) {
  place = number;
  const question = shown[place], into = at("question");
  const buttons = [...at("list").querySelectorAll("button")];
  buttons.forEach((button, each) => button.setAttribute("aria-current", each === place));
  if (!question) {
    into.replaceChildren(make("p", { textContent: "No question is left: change the filters." }));
    return;
  }
  const line = buttons[place], list = at("list"), above = line.offsetTop - list.scrollTop;
  const hidden = above < 0 || above + line.offsetHeight > list.clientHeight;
  if (hidden) list.scrollTop += above - list.clientHeight / 2;
  const step = (textContent, by) => make("button",
    { textContent, onclick: () => show(place + by), disabled: !shown[place + by] });
  const names = `${question.category}, ${question.uid}`;
  into.replaceChildren(
    make("div", { className: "steps" }, step("\u2190 previous", -1), step("next \u2192", 1),
      `${place + 1} of ${shown.length}`, make("span", { className: "quiet", textContent: names })),
    make("section", { className: "box asked" }, make("h3", { textContent: "Question" }),
      said(question.prompt)),
    make("div", { className: "pair" },
      answer(`Baseline: ${question.baseline.name}`, question.baseline),
      answer(`Model: ${data.models[at("model").value]}`, own(question))),
    make("div", { className: "pair" }, game(question, 0), game(question, 1)));
  for (const box of into.querySelectorAll(".said")) {  // to what was searched for
    const mark = box.querySelector("mark");
    if (mark) box.scrollTop = mark.offsetTop - box.offsetTop - 80;
  }
}

function choose(id, names) {
  const options = names.map(([value, textContent]) => make("option", { value, textContent }));
  at(id).replaceChildren(...options);
}

async function unpack(id) {
  const bytes = Uint8Array.from(atob(at(id).textContent), each => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  data = await unpack("data");
  const categories = [...new Set(data.questions.map(question => question.category))];
  choose("model", data.models.map((name, number) => [number, name]));
  choose("judge", data.judges.map((name, number) => [number, name]));
  choose("category", [["", "all"], ...categories.map(name => [name, name])]);
  choose("verdict", Object.keys(KINDS).map(name => [name, name]));
  filter();
  for (const id of ["model", "judge", "category", "verdict"]) at(id).onchange = filter;
  let waiting;
  at("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); };
  document.addEventListener("keydown", event => {
    const held = event.ctrlKey || event.altKey || event.metaKey;
    if (held || event.target.matches("input, select")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, k: -1, j: 1 }[event.key];
    if (by && shown[place + by]) { show(place + by); event.preventDefault(); }
  });
  document.body.dataset.ready = "yes";
}
start();
