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
const groups = new Map();
let data, shown = [], place = 0, asked = 0;

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

// How the model fared in both games; null without a verdict.
function margins(verdicts) {
  return (verdicts || [null, null]).map((verdict, number) => {
    const of_a = verdict ? OF_A[verdict] : null;
    return of_a === null || number ? of_a : 0 - of_a;
  });
}

const verdicts = question => (question.models[at("model").value] || {})[at("judge").value];

// What is packed in a group of questions, a promise of it that is kept.
function texts(number) {
  const group = Math.floor(number / data.group);
  if (!groups.has(group)) groups.set(group, unpack(`texts-${group}`));
  return groups.get(group);
}

async function hits(query) {
  const model = at("model").value, judge = at("judge").value, found = new Set();
  for (const question of data.questions) {
    const of = (await texts(question.number))[question.number % data.group];
    const own = of.models[model] || {};
    const all = [question.uid, of.prompt, of.baseline.text, of.baseline.thinking, own.text,
      own.thinking, ...((own.judged || {})[judge] || [])];
    if (all.some(text => text && query.test(text))) found.add(question);
  }
  return found;
}

async function filter() {
  const mine = ++asked;
  const query = searched(), category = at("category").value, kind = KINDS[at("verdict").value];
  if (query) at("count").textContent = "searching";
  const found = query && await hits(query);
  if (mine !== asked) return;  // another search has begun
  const current = shown[place];
  shown = data.questions.filter(question => question.models[at("model").value]
    && (!category || question.category === category)
    && kind(...margins(verdicts(question))) && (!found || found.has(question)));
  place = Math.max(0, shown.indexOf(current));
  at("count").textContent = `${shown.length} of ${data.questions.length} questions`;
  at("list").replaceChildren(...shown.map((question, number) => {
    const signs = margins(verdicts(question)).map(margin => SIGNS[margin]).join(" ");
    const words = make("span", { textContent: question.title || question.uid });
    return make("li", {}, make("button", { onclick: () => show(number) }, words,
      make("span", { textContent: signs })));
  }));
  await show(place);
}

const lost = textContent => make("p", { className: "lost", textContent });

function answer(title, of) {
  const box = make("section", { className: "box" }, make("h3", { textContent: title }));
  if (of?.thinking) {
    const folded = make("details", {}, make("summary", { textContent: "Thinking" }));
    folded.addEventListener("toggle", () => folded.append(said(of.thinking)), { once: true });
    box.append(folded);
  }
  const text = of?.text ?? null;
  box.append(text === null ? lost("No answer is in the files.") : said(text));
  return box;
}

function game(verdict, text, number) {
  const [a, b] = number ? ["the model", "the baseline"] : ["the baseline", "the model"];
  const box = make("section", { className: "box" },
    make("h3", { textContent: `Game ${number + 1}: A is ${a}, B is ${b}` }));
  if (text === null) {
    box.append(lost("Not held, or the judge's call failed."));
    return box;
  }
  const margin = margins(number ? [null, verdict] : [verdict, null])[number];
  const better = `${margin > 0 ? "the model" : "the baseline"} is`
    + (Math.abs(margin) > 1 ? " much better" : " better");
  const words = margin === null ? "the judge gave no verdict" : margin === 0 ? "a tie" : better;
  const mark = make("span", { className: "verdict", textContent: verdict || "none" });
  box.append(make("p", {}, mark, words), said(text));
  return box;
}

async function show(number) {
  place = number;
  const question = shown[place], into = at("question");
  const buttons = [...at("list").querySelectorAll("button")];
  buttons.forEach((button, each) => button.setAttribute("aria-current", each === place));
  if (!question) {
    into.replaceChildren(make("p", { textContent: "No question is left: change the filters." }));
    return;
  }
  const line = buttons[place], list = at("list");
  const above = line.offsetTop < list.scrollTop;
  const below = line.offsetTop + line.offsetHeight > list.scrollTop + list.clientHeight;
  if (above || below) list.scrollTop = line.offsetTop - list.clientHeight / 2;
  const of = (await texts(question.number))[question.number % data.group];
  if (question !== shown[place]) return;  // another one was chosen meanwhile
  const own = of.models[at("model").value] || {};
  const judged = (own.judged || {})[at("judge").value] || [null, null];
  const of_games = verdicts(question) || [null, null];
  const step = (textContent, by) => make("button",
    { textContent, onclick: () => show(place + by), disabled: !shown[place + by] });
  const names = [question.category, question.cluster, question.uid].filter(Boolean).join(", ");
  into.replaceChildren(
    make("div", { className: "steps" }, step("\u2190 previous", -1), step("next \u2192", 1),
      `${place + 1} of ${shown.length}`, make("span", { className: "quiet", textContent: names })),
    make("section", { className: "box asked" }, make("h3", { textContent: "Question" }),
      said(of.prompt)),
    make("div", { className: "pair" },
      answer(`Baseline: ${question.baseline}`, of.baseline),
      answer(`Model: ${data.models[at("model").value]}`, own)),
    make("div", { className: "pair" },
      ...judged.map((text, each) => game(of_games[each], text, each))));
  for (const box of into.querySelectorAll(".said")) {  // to what was searched for
    const mark = box.querySelector("mark");
    if (mark) box.scrollTop = mark.offsetTop - box.offsetTop - 80;
  }
  keep();
}

// The choice stands in the address, so that a question can be linked to and comes back.
function keep() {
  const state = new URLSearchParams({ model: data.models[at("model").value],
    judge: data.judges[at("judge").value], question: shown[place].uid });
  if (at("search").value) state.set("search", at("search").value);
  try { history.replaceState(null, "", "#" + state); } catch { /* not in every frame */ }
}

function choose(id, names) {
  const options = names.map(([value, textContent]) => make("option", { value, textContent }));
  at(id).replaceChildren(...options);
}

async function unpack(id) {
  const packed = atob(at(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  if (!self.DecompressionStream) {
    at("count").textContent = "This browser is too old for the questions: take one of 2023 on.";
    return;
  }
  data = await unpack("listing");
  data.questions.forEach((question, number) => { question.number = number; });
  const categories = [...new Set(data.questions.map(question => question.category))];
  choose("model", data.models.map((name, number) => [number, name]));
  choose("judge", data.judges.map((name, number) => [number, name]));
  choose("category", [["", "all"], ...categories.map(name => [name, name])]);
  choose("verdict", Object.keys(KINDS).map(name => [name, name]));
  const state = new URLSearchParams(location.hash.slice(1));
  at("model").value = Math.max(0, data.models.indexOf(state.get("model")));
  at("judge").value = Math.max(0, data.judges.indexOf(state.get("judge")));
  at("search").value = state.get("search") || "";
  shown = data.questions.filter(question => question.uid === state.get("question"));
  await filter();
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
