/* An explanation whose numbers say what they were made of, and show where: by the pointer, and by Tab and arrow keys. For the offline
   page, which holds it as JSON in a <script type="application/json">, and for the page of a service. Nothing is computed here but
   sentences; text only ever enters the page as textContent. */
(() => {
  "use strict";
  const { make, shorten } = window.saccade;
  const MOST_POWERS = 6, STRONGEST = 0.45;
  const HINT = "Point at a number or a word, or move to it by Tab and arrow keys, to see what it was made of.";
  const quote = (name) => `'${shorten(name)}'`;
  const number = (value) => (value === null ? "\u2212\u221e" : Number.isInteger(value) ? String(value + 0) : value.toFixed(4).replace(/^-0\.0000$/, "0.0000"));
  const list = (value) => (Array.isArray(value) ? value : [value]);

  /* What replaces one {…} of a sentence; see `Matrix` in worked.py. */
  const fill = (wanted, uses, words) => {
    if (Object.hasOwn(words, wanted)) return String(words[wanted]);
    const numbers = (wanted.match(/\d/g) || []).map((digit) => list(uses[Number(digit)]));
    if (wanted.includes("tanh")) return numbers[0].map((v, n) => `${number(v)}\u00b7tanh(${number(numbers[1][n])} + ${number(numbers[2][n])})`).join(" + ");
    if (wanted.includes("\u00b7")) return numbers[0].map((a, n) => `${number(a)}\u00b7${number(numbers[1][n])}`).join(" + ");
    if (wanted.startsWith("e")) {
      const seen = numbers[0].filter((one) => one !== null);
      return seen.length > MOST_POWERS ? `the sum of all ${seen.length} such powers` : seen.map((one) => `e^(${number(one)})`).join(" + ");
    }
    if (wanted.startsWith("+")) return numbers[0].map(number).join(" + ");
    const one = uses[Number(wanted)];
    return Array.isArray(one) ? `[${one.map(number).join(", ")}]` : number(one);
  };

  class Explained {
    constructor(root, says, steps) {
      [this.root, this.says, this.known] = [root, says, new Map()];
      for (const { matrices } of steps) for (const one of matrices) this.known.set(one.name, one);
      says.textContent = HINT;
      root.replaceChildren(...steps.map(({ title, text, matrices }) =>
        make("section", { class: "step" }, make("h2", {}, title), make("p", { dir: "auto" }, text), make("div", { class: "matrices" }, ...matrices.map((one) => this.table(one))))));
      if (root.saccade) root.saccade.end.abort(); /* of the explanation that was here before */
      [root.saccade, this.end] = [this, new AbortController()];
      const ends = { signal: this.end.signal };
      root.addEventListener("keydown", (event) => this.walk(event), ends);
      for (const kind of ["pointerover", "focusin"]) root.addEventListener(kind, (event) => this.follow(event.target), ends);
    }

    table({ name, matrix, row_names: rows, column_names: columns }) {
      const top = matrix.flat().reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0) || 1, heated = /^(weights|a$)/.test(name);
      const word = (text, attributes) => make("th", { dir: "auto", tabindex: -1, "data-name": name, ...attributes }, shorten(text));
      const head = make("tr", {}, make("td"), ...columns.map((one, j) => word(one, { scope: "col", "data-j": j })));
      const lines = matrix.map((row, i) => make("tr", {}, word(rows[i], { scope: "row", "data-i": i }), ...row.map((value, j) => {
        const cell = make("td", { tabindex: i || j ? -1 : 0, "data-name": name, "data-i": i, "data-j": j }, number(value));
        if (heated) cell.style.background = `rgb(var(--heat) / ${(STRONGEST * (value ?? 0) / top).toFixed(3)})`;
        return cell;
      })));
      return make("table", { class: "matrix" }, make("caption", {}, name), make("thead", {}, head), make("tbody", {}, ...lines));
    }

    /* How the number at row i and column j came about, and what it was made of: [matrix, row or null, column or null]. */
    explain(name, i, j) {
      const one = this.known.get(name), how = Array.isArray(one.how) ? one.how[j] : one.how;
      if (!how) return [`${one.row_names[i]}, ${one.column_names[j]}: ${number(one.matrix[i][j])}`, []];
      const at = (given) => (given === "i" ? i : given === "j" ? j : given);
      const used = (how.uses || []).map(([from, row, column]) => [from, at(row), at(column)]);
      const values = used.map(([from, row, column]) => {
        const { matrix } = this.known.get(from);
        if (row === null) return matrix.map((line) => line[column]);
        return column === null ? matrix[row] : matrix[row][column];
      });
      const words = { ...how, row: quote(one.row_names[i]), column: quote(one.column_names[j]), value: number(one.matrix[i][j]) };
      return [how.text.replace(/\{([^{}]*)\}/g, (_, wanted) => fill(wanted, values, words)), used];
    }

    follow(target) {
      const { name, i, j } = target.dataset ?? {};
      if (name === undefined) return;
      const fits = (wanted, at) => wanted === null || String(wanted) === at;
      let uses = [], marked = () => false;
      if (i !== undefined && j !== undefined) {
        [this.says.textContent, uses] = this.explain(name, Number(i), Number(j));
        marked = ({ dataset: one }) => uses.some(([from, row, column]) => from === one.name && fits(row, one.i) && fits(column, one.j));
      } else {
        const own = this.known.get(name), word = i === undefined ? own.column_names[j] : own.row_names[i];
        this.says.textContent = `${quote(word)}: its rows and columns everywhere`;
        marked = ({ dataset: one }) => {
          const { row_names: rows, column_names: columns } = this.known.get(one.name);
          return rows[one.i] === word || columns[one.j] === word;
        };
      }
      for (const one of this.root.querySelectorAll("[data-name]")) {
        one.classList.toggle("here", one === target);
        one.classList.toggle("used", one !== target && one.tagName === "TD" && marked(one));
      }
    }

    /* Arrow keys move from cell to cell and to the words around them; one cell of a table is a stop for the Tab key. */
    walk(event) {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key], cell = event.target;
      if (!step || !cell.dataset.name) return;
      event.preventDefault();
      const row = cell.closest("table").rows[cell.parentNode.rowIndex + step[0]], next = row && row.cells[cell.cellIndex + step[1]];
      if (!next || !next.dataset.name) return;
      [cell.tabIndex, next.tabIndex] = [-1, 0];
      next.focus();
    }
  }

  window.saccade.Explained = Explained;
  for (const root of document.querySelectorAll(".explained")) {
    const block = root.querySelector('script[type="application/json"]');
    if (block) new Explained(root.querySelector(".steps"), root.querySelector(".explains"), JSON.parse(block.textContent).steps);
  }
})();
