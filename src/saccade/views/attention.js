/* The interactive view of an attention document: words that show where they look, a heat map or a
   picture as bright as a word looks at it, a site and a head to choose.
   Every element of class "attention" holds its document as JSON in a <script type="application/json">. Nothing is fetched,
   and text only ever enters the page as textContent. */
(() => {
  "use strict";
  const LONGEST = 24;
  const SHOWN_AS = { "\n": "\u21b5", "\r": "\u21b5", "\t": "\u21e5" };

  /* A token as people can see it: blanks and controls made visible, at most 24 letters. */
  const shorten = (token) => {
    if (/^ *$/.test(token)) token = "\u2423".repeat(Math.max(1, token.length));
    token = token.replace(/^ +/, (blanks) => "\u2581".repeat(blanks.length)); /* a piece that begins a word */
    const letters = Array.from(token.replace(/[\n\r\t]/g, (sign) => SHOWN_AS[sign]).replace(/[\u0000-\u001f\u007f-\u009f]/g, "\u25a1"));
    return letters.length > LONGEST ? letters.slice(0, LONGEST - 1).join("") + "\u2026" : letters.join("");
  };

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children.filter((child) => child !== ""));
    return node;
  };

  const greatest = (matrix) => {
    let most = 0;
    for (const row of matrix) for (const weight of row) most = Math.max(most, weight);
    return most || 1;
  };

  const average = (heads) =>
    heads[0].map((row, i) => row.map((_, j) => heads.reduce((sum, head) => sum + head[i][j], 0) / heads.length));

  const percent = (weight) => (weight >= 0.0995 || weight === 0 ? Math.round(100 * weight) : (100 * weight).toFixed(1)) + " %";

  /* Whether no row of any head looks at a column behind itself. */
  const isCausal = ({ rows, columns, weights }) =>
    rows.length > 1 && rows.length === columns.length && weights.every((head) => head.every((row, i) => row.every((weight, j) => j <= i || weight === 0)));

  /* The theme's colors, read from the style sheet, so that the canvases follow light and dark. */
  const theme = (node) => {
    const style = getComputedStyle(node);
    const read = (name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), muted: read("--muted"), line: read("--line"), mark: read("--mark"), heat: read("--heat"),
             onHeat: read("--on-heat"), flip: Number(read("--flip")), font: style.fontFamily };
  };
  const shade = (colors, part) => `rgb(${colors.heat} / ${Math.min(1, Math.max(0, part)).toFixed(3)})`;

  /* One stop for the Tab key; arrows, Home and End move inside. */
  const rove = (group, step) => {
    group.addEventListener("keydown", (event) => {
      const items = Array.from(group.querySelectorAll("button"));
      const here = items.indexOf(document.activeElement);
      const move = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: items.length - 1 };
      if (here < 0 || !(event.key in move)) return;
      event.preventDefault();
      const next = Math.min(items.length - 1, Math.max(0, move[event.key]));
      items[next].focus();
      step(next);
    });
  };
  const stopAt = (group, index) =>
    group.querySelectorAll("button").forEach((item, i) => { item.tabIndex = i === index ? 0 : -1; });

  class View {
    constructor(root, data) {
      this.root = root;
      this.data = data;
      this.site = data.sites[0];
      this.head = -1; /* -1 is the average */
      this.spot = { row: 0, column: -1 };
      this.image = new Image();
      this.build();
      this.openSite(0);
      this.scheme = matchMedia("(prefers-color-scheme: dark)");
      this.repaint = () => this.paint();
      this.scheme.addEventListener("change", this.repaint);
      this.sizes = new ResizeObserver(() => requestAnimationFrame(() => this.drawMap()));
      this.sizes.observe(this.mapBox);
      this.image.addEventListener("load", () => this.drawMap());
      if (data.picture) this.image.src = data.picture;
    }

    /* A page that shows another document afterwards lets go of this one. */
    close() {
      this.scheme.removeEventListener("change", this.repaint);
      this.sizes.disconnect();
      this.root.replaceChildren();
    }

    build() {
      const select = make("select", { "aria-label": "Where the model looks" });
      this.data.sites.forEach((site, i) => select.append(make("option", { value: i }, site.name)));
      select.addEventListener("change", () => this.openSite(Number(select.value)));
      this.heads = make("div", { class: "heads", role: "radiogroup", "aria-label": "Head" });
      this.headBox = make("div", {}, make("span", { class: "name", "aria-hidden": "true" }, "head"), this.heads);
      this.columns = make("div", { class: "words", role: "toolbar", "aria-label": "Words that are looked at" });
      this.rows = make("div", { class: "words", role: "toolbar", "aria-label": "Words that look" });
      this.says = make("p", { class: "says", role: "status", "aria-live": "polite" });
      this.each = make("ol", { class: "each", tabindex: 0, "aria-label": "Words of the chosen group" });
      this.map = make("canvas", { tabindex: 0, role: "application" });
      this.mapBox = make("div", { class: "map" }, this.map);
      this.least = make("span");
      this.most = make("span");
      this.names = [make("span", { class: "name" }), make("span", { class: "name" })];
      const siteBox = make("label", {}, make("span", { class: "name", "aria-hidden": "true" }, "site"), select);
      siteBox.hidden = Boolean(this.data.layers); /* a service sends one site at a time, and its page has a choice of all */
      this.root.append(
        make("div", { class: "controls" }, siteBox, this.headBox),
        this.names[0], this.columns, this.names[1], this.rows,
        this.says, this.each, this.mapBox,
        (this.legend = make("div", { class: "legend" }, this.least, make("span", { class: "ramp" }), this.most)),
      );
      rove(this.heads, (i) => this.openHead(i - 1));
      rove(this.columns, (i) => this.look({ row: -1, column: i }));
      rove(this.rows, (i) => this.look({ row: i, column: -1 }));
      this.map.addEventListener("pointermove", (event) => this.pointAt(event));
      this.map.addEventListener("pointerdown", (event) => this.pointAt(event));
      this.map.addEventListener("keydown", (event) => this.walk(event));
    }

    openSite(index) {
      this.site = this.data.sites[index];
      this.head = this.site.weights.length === 1 ? 0 : -1;
      this.averaged = average(this.site.weights);
      this.causal = isCausal(this.site);
      this.pool = this.site.name === "pool" && this.site.rows.length === 1;
      this.names[0].textContent = this.pool ? "words and their weights" : "looked at";
      this.names[1].textContent = this.pool ? "label" : "looking";
      for (const part of [this.names[0], this.columns, this.legend]) part.hidden = Boolean(this.site.grid); /* a picture is looked at */
      this.spot = { row: 0, column: -1 };
      this.columns.replaceChildren(...this.site.columns.map((token, i) => this.word(token, { row: -1, column: i })));
      this.rows.replaceChildren(...this.site.rows.map((token, i) => this.word(token, { row: i, column: -1 })));
      this.headBox.hidden = this.site.weights.length === 1;
      this.heads.replaceChildren(...[-1, ...this.site.weights.keys()].map((head) => this.headButton(head)));
      this.openHead(this.head);
    }

    word(token, spot) {
      const button = make("button", { type: "button", class: "word", dir: "auto", title: token }, shorten(token), make("small", { dir: "ltr" }));
      for (const kind of ["pointerenter", "focus", "click"]) button.addEventListener(kind, () => this.look(spot));
      return button;
    }

    headButton(head) {
      const name = head < 0 ? "average" : `head ${head}`;
      const [height, width] = this.site.grid || [this.site.rows.length, this.site.columns.length];
      const canvas = make("canvas", { "aria-hidden": "true", width, height });
      const button = make("button", { type: "button", role: "radio", "aria-label": name, title: name }, canvas, head < 0 ? "all" : String(head));
      button.addEventListener("click", () => this.openHead(head));
      return button;
    }

    openHead(head) {
      this.head = head;
      this.weights = this.weightsOf(head);
      Object.assign(this, this.scaleOf(this.weights));
      this.least.textContent = this.low ? `\u2264 ${this.low.toFixed(3)}, the mean` : "0";
      this.heads.querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-checked", String(i - 1 === head)));
      stopAt(this.heads, head + 1);
      this.most.textContent = this.full > this.top ? this.full.toFixed(3) : `${this.top.toFixed(3)}, the greatest weight${this.site.weights.length === 1 ? "" : head < 0 ? " of the average over all heads" : " of this head"}`;
      this.paint();
    }

    /* From where to where weights are shaded: of one row alone, and where no weight stands out, from the mean, so that only what stands out is dark. */
    scaleOf(weights) {
      const each = weights.flat(), top = greatest(weights), mean = each.reduce((sum, weight) => sum + weight, 0) / each.length;
      const fromMean = this.site.columns.length > 1 && (weights.length === 1 || top < 1.2 * mean) && !this.site.grid;
      return fromMean ? { top, low: mean, full: Math.max(top, 2 * mean) } : { top, low: 0, full: top };
    }

    part(weight) { return (weight - this.low) / (this.full - this.low); }

    isHidden(row, column) { return this.causal && column > row; }

    weightsOf(head) { return head < 0 ? this.averaged : this.site.weights[head]; }

    look(spot) {
      if (spot.row === this.spot.row && spot.column === this.spot.column) return;
      this.spot = spot;
      this.paint(false);
    }

    paint(thumbnails = true) {
      this.colors = theme(this.root);
      this.paintWords(this.rows, this.spot.row, (i) =>
        (this.spot.row < 0 && !this.isHidden(i, this.spot.column) ? this.weights[i][this.spot.column] : undefined));
      this.paintWords(this.columns, this.spot.column, (j) =>
        (this.spot.row < 0 || this.isHidden(this.spot.row, j) ? undefined : this.weights[this.spot.row][j]));
      this.tell();
      this.tellEach();
      if (thumbnails || this.site.grid) this.drawHeads();
      this.drawMap();
    }

    paintWords(group, chosen, weightAt) {
      stopAt(group, Math.max(0, chosen));
      Array.from(group.children).forEach((button, i) => {
        const weight = weightAt(i);
        const part = weight === undefined ? 0 : this.part(weight);
        button.classList.toggle("chosen", i === chosen);
        button.style.backgroundImage = part > 0 ? `linear-gradient(${shade(this.colors, part)}, ${shade(this.colors, part)})` : "";
        button.style.color = part > this.colors.flip ? this.colors.onHeat : "";
        button.lastChild.textContent = weight === undefined ? "" : percent(weight);
      });
    }

    /* The sentence under the words, also for those who cannot see the shades. */
    tell() {
      const { row, column } = this.spot;
      const byRow = row >= 0;
      const others = byRow ? this.site.columns : this.site.rows;
      const weights = byRow ? this.weights[row] : this.weights.map((line) => line[column]);
      const word = (token) => make("b", { dir: "auto" }, shorten(token));
      const list = weights.map((weight, i) => [weight, i]).filter(([weight]) => weight >= 0.0005).sort((a, b) => b[0] - a[0]).slice(0, 5);
      const chosen = word(byRow ? this.site.rows[row] : this.site.columns[column]);
      if (this.pool) this.says.replaceChildren(...(byRow ? ["weight of each word for the label ", chosen, ": "] : ["weight of ", chosen, " for the label "]));
      else this.says.replaceChildren(chosen, byRow ? " looks at " : " is looked at by ");
      if (!list.length) this.says.append("nothing");
      list.forEach(([weight, i], n) => this.says.append(n ? ", " : "", word(others[i]), ` ${percent(weight)}`));
      if (byRow && column >= 0) {
        this.says.append(" \u00b7 here ", word(this.site.columns[column]), ` ${this.weights[row][column].toFixed(4)}`);
      }
    }

    /* Of a long text, rows and columns are groups of neighbors: what each word of the chosen group looks at most. */
    tellEach() {
      const { long } = this.site, word = (token) => make("b", { dir: "auto" }, shorten(token));
      this.each.hidden = !long || this.spot.row < 0;
      if (this.each.hidden) return;
      const first = this.spot.row * long.each[0];
      this.each.start = first + 1;
      this.each.replaceChildren(...long.strongest.slice(first, first + long.each[0]).map((most, n) => make("li", {}, word(long.rows[first + n]),
        " looks at ", ...most.flatMap(([at, weight], k) => [k ? ", " : "", word(long.columns[at]), ` (${at + 1}) ${percent(weight)}`]))));
    }

    /* The chosen word's weights as rows and columns of the picture, or all weights of a text. */
    folded(weights) {
      if (!this.site.grid) return weights;
      const [rows, columns] = this.site.grid, row = weights[this.spot.row];
      return Array.from({ length: rows }, (_, y) => row.slice(y * columns, (y + 1) * columns));
    }

    drawHeads() {
      this.heads.querySelectorAll("canvas").forEach((canvas, i) => {
        const weights = this.folded(this.weightsOf(i - 1)), { low, full } = this.scaleOf(weights), pen = canvas.getContext("2d");
        pen.clearRect(0, 0, canvas.width, canvas.height);
        weights.forEach((row, y) => row.forEach((weight, x) => {
          pen.fillStyle = shade(this.colors, (weight - low) / (full - low));
          pen.fillRect(x, y, 1, 1);
        }));
      });
    }

    /* Where things lie on the heat map, in CSS pixels, for the width there is. */
    layout(pen) {
      const { rows, columns } = this.site;
      pen.font = `13px ${this.colors.font}`;
      const widest = (tokens) => Math.ceil(Math.max(...tokens.map((token) => pen.measureText(shorten(token)).width)));
      const room = this.mapBox.clientWidth - 6;
      const left = Math.min(widest(rows) + 10, Math.max(90, room * 0.4));
      const lean = Math.PI / 3, along = widest(columns);
      const above = along * Math.sin(lean) + 16, right = along * Math.cos(lean) + 4;
      const cell = Math.floor(Math.min(44, Math.max(columns.length > 120 ? 4 : 13, (room - left - right) / columns.length)));
      return { left, above, cell, lean, width: left + cell * columns.length + right, height: above + cell * rows.length + 2 };
    }

    /* The canvas in a size in CSS pixels, as sharp as the screen. */
    resize(pen, width, height) {
      const scale = window.devicePixelRatio || 1;
      this.map.width = Math.round(width * scale);
      this.map.height = Math.round(height * scale);
      this.map.style.width = `${width}px`;
      this.map.style.height = `${height}px`;
      pen.setTransform(scale, 0, 0, scale, 0, 0);
    }

    /* The picture, dark where the chosen word does not look; a frame around the position that is pointed at, or that has all the weight. */
    drawPicture(pen) {
      const { image, site: { grid: [rows, columns], offset: [down, across] } } = this;
      this.map.setAttribute("aria-label", `Picture with ${rows} by ${columns} positions, bright where the chosen word looks. ` +
        "Arrow keys move from position to position.");
      if (!image.naturalWidth) return; /* drawn when it is there */
      const wide = Math.min(this.mapBox.clientWidth - 6, 460, 460 * image.naturalWidth / image.naturalHeight);
      const tall = wide * image.naturalHeight / image.naturalWidth, row = this.weights[this.spot.row], top = Math.max(...row) || 1;
      this.place = { wide: wide / columns, tall: tall / rows, left: across * wide, above: down * tall };
      this.resize(pen, wide, tall);
      pen.imageSmoothingEnabled = wide < 3 * image.naturalWidth; /* a very small picture shows its pixels */
      pen.drawImage(image, 0, 0, wide, tall);
      /* the outermost positions once more around the grid, so that it covers the picture wherever its middles are */
      const veil = make("canvas", { width: columns + 2, height: rows + 2 }), ink = veil.getContext("2d");
      const pixels = ink.createImageData(columns + 2, rows + 2), within = (value, count) => Math.min(count, Math.max(1, value)) - 1;
      for (let y = 0; y < rows + 2; y++) for (let x = 0; x < columns + 2; x++) {
        const weight = Math.max(0, row[within(y, rows) * columns + within(x, columns)]);
        pixels.data.set([0, 0, 0, Math.round(255 * 0.7 * (1 - weight / top))], 4 * (y * (columns + 2) + x));
      }
      ink.putImageData(pixels, 0, 0);
      const hard = row.length > 1 && row.filter((weight) => weight !== 0).length === 1, at = hard ? row.indexOf(top) : this.spot.column;
      pen.imageSmoothingEnabled = !hard;
      pen.drawImage(veil, this.place.left - this.place.wide, this.place.above - this.place.tall, wide + 2 * this.place.wide, tall + 2 * this.place.tall);
      if (at < 0) return;
      pen.strokeStyle = "#ffd23f";
      pen.lineWidth = 2;
      pen.strokeRect(this.place.left + (at % columns) * this.place.wide, this.place.above + Math.floor(at / columns) * this.place.tall,
                     this.place.wide, this.place.tall);
    }

    drawMap() {
      const pen = this.map.getContext("2d");
      if (this.site.grid) { this.drawPicture(pen); return; }
      const place = (this.place = this.layout(pen));
      this.resize(pen, place.width, place.height);
      this.map.setAttribute("aria-label", `Heat map of ${this.site.name}: ${this.site.rows.length} words that look by ` +
        `${this.site.columns.length} words that are looked at. Arrow keys move from cell to cell.`);
      this.drawCells(pen, place);
      this.drawNames(pen, place);
      this.drawSpot(pen, place);
    }

    drawCells(pen, { left, above, cell }) {
      const gap = cell >= 9 ? 1 : 0;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.font = `11px ${this.colors.font}`;
      this.weights.forEach((row, y) => row.forEach((weight, x) => {
        const part = this.part(weight), at = [left + x * cell, above + y * cell];
        pen.fillStyle = shade(this.colors, part);
        pen.fillRect(at[0], at[1], cell - gap, cell - gap);
        if (gap) { pen.strokeStyle = this.colors.line; pen.lineWidth = 0.5; pen.strokeRect(at[0] - 0.5, at[1] - 0.5, cell, cell); }
        if (cell >= 28 && weight >= 0.005) {
          pen.fillStyle = part > this.colors.flip ? this.colors.onHeat : part > 0.2 ? this.colors.ink : this.colors.muted;
          pen.fillText(weight >= 0.995 ? weight.toFixed(1) : weight.toFixed(2).slice(1), at[0] + cell / 2, at[1] + cell / 2);
        }
      }));
    }

    drawNames(pen, { left, above, cell, lean }) {
      const every = Math.max(1, Math.ceil(12 / cell)), near = (i, chosen) => i === chosen || (i % every === 0);
      pen.textBaseline = "middle";
      const write = (token, chosen, x, y, turn, most) => {
        pen.save();
        pen.translate(x, y);
        pen.rotate(-turn);
        pen.textAlign = turn ? "left" : "right";
        pen.font = `${chosen ? "600 " : ""}13px ${this.colors.font}`;
        pen.fillStyle = chosen ? this.colors.mark : this.colors.ink;
        pen.fillText(shorten(token), 0, 0, most);
        pen.restore();
      };
      this.site.rows.forEach((token, i) => near(i, this.spot.row) &&
        write(token, i === this.spot.row, left - 6, above + (i + 0.5) * cell, 0, left - 8));
      this.site.columns.forEach((token, i) => near(i, this.spot.column) &&
        write(token, i === this.spot.column, left + (i + 0.5) * cell, above - 8, lean, undefined));
    }

    drawSpot(pen, { left, above, cell }) {
      const { row, column } = this.spot, { rows, columns } = this.site;
      pen.strokeStyle = this.colors.mark;
      pen.lineWidth = 1.5;
      const box = (x, y, width, height) => pen.strokeRect(left + x * cell - 0.5, above + y * cell - 0.5, width * cell, height * cell);
      if (row >= 0) box(0, row, columns.length, 1);
      if (column >= 0) box(column, row >= 0 ? row : 0, 1, row >= 0 ? 1 : rows.length);
    }

    pointAt(event) {
      if (this.site.grid) {
        if (!this.place.wide) return;
        const [rows, columns] = this.site.grid, inside = (value, count) => Math.min(count - 1, Math.max(0, Math.floor(value)));
        const { wide, tall, left, above } = this.place;
        const place = inside((event.offsetY - above) / tall, rows) * columns + inside((event.offsetX - left) / wide, columns);
        this.look({ row: this.spot.row, column: place });
        return;
      }
      const { left, above, cell } = this.place;
      const column = Math.floor((event.offsetX - left) / cell), row = Math.floor((event.offsetY - above) / cell);
      const inColumns = column >= 0 && column < this.site.columns.length, inRows = row >= 0 && row < this.site.rows.length;
      if (inRows && (inColumns || column < 0)) this.look({ row, column: inColumns ? column : -1 });
      else if (inColumns && row < 0) this.look({ row: -1, column });
    }

    walk(event) {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const inside = (value, count) => Math.min(count - 1, Math.max(0, value));
      if (this.site.grid) {
        const [rows, columns] = this.site.grid, at = Math.max(0, this.spot.column);
        const y = inside(Math.floor(at / columns) + step[0], rows), x = inside((at % columns) + step[1], columns);
        this.look({ row: this.spot.row, column: y * columns + x });
        return;
      }
      this.look({ row: inside(this.spot.row + step[0], this.site.rows.length),
                  column: inside(this.spot.column + step[1], this.site.columns.length) });
      const { left, cell } = this.place, box = this.mapBox, start = left + this.spot.column * cell;
      if (start + cell > box.scrollLeft + box.clientWidth) box.scrollLeft = start + 2 * cell - box.clientWidth;
      if (start < box.scrollLeft + cell) box.scrollLeft = this.spot.column ? start - cell : 0;
    }
  }

  window.saccade = { View, make, rove, shorten, percent, theme };
  for (const root of document.querySelectorAll(".attention")) {
    const block = root.querySelector('script[type="application/json"]');
    if (block) root.saccade = new View(root, JSON.parse(block.textContent));
  }
})();
