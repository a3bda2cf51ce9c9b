/* The worked example with one's own sentence: every number says what it was made of, and shows where. All numbers are the service's. */
import { ask } from "./ask.js";
const { make, shorten } = window.saccade;
const by = (id) => document.getElementById(id);
const number = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(4));
const column = (matrix, j) => matrix.map((row) => row[j]);
const products = (a, b) => a.map((value, n) => `${number(value)}\u00b7${number(b[n])}`).join(" + ");
let data = null, shown = "", tell = () => {}, calm = () => {};

/* How the number at row i and column j of a matrix came about, in words, and the cells it was made of: [matrix, row or null, column or null]. */
const explain = (name, i, j) => {
  const { tokens, x, q, k, v, scores, weights, outputs } = data, word = (n) => `'${shorten(tokens[n])}'`, width = k[0].length;
  const letter = name === "V" ? "v" : name;
  if (name === "x") return [`${word(i)} has ${number(x[i][j])} as number ${j + 1} of its vector`, []];
  if (name.startsWith("W_")) return [`a learned number: how much number ${i + 1} of an input counts for number ${j + 1} of its ${name[2]}`, []];
  if (["q", "k", "v"].includes(letter)) {
    const learned = data[`W_${letter}`];
    return [`${letter}${j + 1} of ${word(i)} = ${products(x[i], column(learned, j))} = ${number(data[letter][i][j])}`, [["x", i, null], [`W_${letter}`, null, j]]];
  }
  if (name === "scores") return [`the query of ${word(i)} with the key of ${word(j)} = ${products(q[i], k[j])} = ${number(scores[i][j])}`, [["q", i, null], ["k", j, null]]];
  if (name === "weights") {
    const root = data.scaled ? `/\u221a${width}` : "", power = (score) => `e^(${number(score)}${root})`;
    const all = scores[i].length > 6 ? `the sum of all ${scores[i].length} such powers` : `(${scores[i].map(power).join(" + ")})`;
    return [`${word(i)} looks at ${word(j)} with ${power(scores[i][j])} / ${all} = ${weights[i][j].toFixed(4)}`, [["scores", i, null]]];
  }
  if (name === "weight \u00b7 v") return [`${word(0)} takes ${weights[0][i].toFixed(4)} of ${number(v[i][j])} from ${word(i)}: ${number(weights[0][i] * v[i][j])}`, [["weights", 0, i], ["v", i, j], ["V", i, j]]];
  const from = name === "output" ? 0 : i, uses = [["weights", from, null], ["v", null, j], ["V", null, j]];
  return [`o${j + 1} of ${word(from)} = ${products(weights[from], column(v, j))} = ${number(outputs[from][j])}`, name === "output" ? [["weight \u00b7 v", null, j]] : uses];
};
const follow = (cell) => {
  const { name, i, j } = cell.dataset, [text, uses] = explain(name, Number(i), Number(j));
  by("explains").textContent = text;
  const fits = (wanted, at) => wanted === null || String(wanted) === at;
  for (const one of by("steps").querySelectorAll("td")) {
    const { dataset } = one;
    one.classList.toggle("here", one === cell);
    one.classList.toggle("used", uses.some(([from, row, place]) => from === dataset.name && fits(row, dataset.i) && fits(place, dataset.j)));
  }
};

/* Arrow keys move from cell to cell; one cell of a table is a stop for the Tab key. */
const walk = (event) => {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key], cell = event.target;
  if (!step || !cell.dataset.name) return;
  event.preventDefault();
  const row = cell.closest("tbody").rows[Number(cell.dataset.i) + step[0]], next = row && row.cells[Number(cell.dataset.j) + 1 + step[1]];
  if (!next || !next.dataset.name) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
};
const table = ({ name, matrix, row_names: rows, column_names: columns }) => {
  const top = matrix.flat().reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  const head = make("tr", {}, make("td"), ...columns.map((one) => make("th", { scope: "col", dir: "auto" }, shorten(one))));
  const lines = matrix.map((row, i) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, shorten(rows[i])), ...row.map((value, j) => {
    const cell = make("td", { tabindex: i || j ? -1 : 0, "data-name": name, "data-i": i, "data-j": j }, number(value));
    if (name === "weights") cell.style.background = `rgb(var(--heat) / ${(0.45 * value / top).toFixed(3)})`;
    return cell;
  })));
  return make("table", { class: "matrix" }, make("caption", {}, name), make("thead", {}, head), make("tbody", {}, ...lines));
};
const work = async () => {
  const text = by("words").value, scaled = by("scaled").checked;
  calm();
  try {
    data = await ask("/v1/worked", { text, scaled });
  } catch (error) { tell(error, work); return; }
  history.replaceState(null, "", `#${new URLSearchParams({ do: "learn", text })}`);
  by("explains").textContent = "Point at a number, or move to it by Tab and arrow keys, to see what it was made of.";
  by("steps").replaceChildren(...data.steps.map(({ title, text: words, matrices }) =>
    make("section", { class: "step" }, make("h2", {}, title), make("p", {}, words), make("div", { class: "matrices" }, ...matrices.map(table)))));
};
export const openLearn = (words, told, calmed) => {
  [tell, calm] = [told, calmed];
  if (words !== undefined) by("words").value = words;
  if (shown === by("words").value && data) return;
  shown = by("words").value;
  work();
};
by("learn-form").addEventListener("submit", (event) => { event.preventDefault(); work(); });
by("steps").addEventListener("keydown", walk);
for (const kind of ["pointerover", "focusin"]) by("steps").addEventListener(kind, (event) => { if (event.target.dataset.name) follow(event.target); });
