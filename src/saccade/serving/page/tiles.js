/* A view of many words: a window over all weights, drawn from a pooled overview and from exact tiles that are asked for where one looks;
   a word that is pointed at asks for its row. */
const { make, percent, shorten, theme } = window.saccade;
const SIDE = 128, KEPT = 300, TOGETHER = 2, OVERVIEW = 256, ZOOMS = [2, 4, 8, 14], EXACT = 2, LEFT = 96, ABOVE = 84, WAIT = 120, REST = 80, OFTEN = 500;

export class Tiles {
  constructor(root, data, ask) {
    Object.assign(this, { root, ask, head: -1, spot: { row: 0, column: 0 }, zoom: 0, asking: 0, pending: 0, generation: 0 });
    [this.heads, this.rows, this.columns] = data.shape;
    this.names = { rows: new Array(this.rows), columns: new Array(this.columns) };
    this.keepNames(data);
    this.build();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.recolor = () => { this.colors = theme(root); this.openHead(this.head); };
    this.scheme.addEventListener("change", this.recolor);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.box);
    this.colors = theme(root);
    this.openHead(this.heads === 1 ? 0 : -1);
  }
  close() {
    this.closed = true;
    clearTimeout(this.rest);
    this.generation++;
    this.scheme.removeEventListener("change", this.recolor);
    this.sizes.disconnect();
    this.root.replaceChildren();
  }
  build() {
    const heads = make("select", {}, ...[-1, ...Array(this.heads).keys()].map((n) => make("option", { value: n }, n < 0 ? "average" : String(n))));
    heads.addEventListener("change", () => this.openHead(Number(heads.value)));
    const headBox = make("label", {}, make("span", { class: "name" }, "head"), heads);
    headBox.hidden = this.heads === 1;
    const step = (by, name) => {
      const button = make("button", { type: "button", "aria-label": name }, by > 0 ? "+" : "\u2212");
      button.addEventListener("click", () => this.zoomTo(this.zoom + by));
      return button;
    };
    const zooms = make("div", {}, make("span", { class: "name", "aria-hidden": "true" }, "zoom"), step(-1, "Zoom out"), " ", step(1, "Zoom in"));
    this.map = make("canvas", { "aria-hidden": "true" });
    this.space = make("div");
    this.box = make("div", { class: "window", tabindex: 0, role: "application", "aria-label": `Heat map of ${this.rows} words that look by ` +
      `${this.columns} words that are looked at. Arrow keys move from cell to cell, plus and minus zoom.` }, this.map, this.space);
    this.says = make("p", { class: "says", role: "status", "aria-live": "polite" });
    this.root.classList.add("tiles");
    this.root.append(make("div", { class: "controls" }, headBox, zooms), this.says, this.box);
    this.box.addEventListener("scroll", () => this.redraw());
    this.map.addEventListener("pointermove", (event) => this.pointAt(event));
    this.map.addEventListener("click", (event) => this.pointAt(event, true));
    this.box.addEventListener("keydown", (event) => this.walk(event));
  }
  get cell() { return this.zoom ? ZOOMS[this.zoom - 1] : Math.min(EXACT - 0.01, (this.wide - this.left) / this.columns, (this.tall - this.above) / this.rows); }
  get left() { return this.wide < 500 ? 64 : LEFT; }
  get above() { return this.zoom && ZOOMS[this.zoom - 1] >= 8 ? ABOVE : 8; }
  get which() { return this.head < 0 ? { mean: true } : { heads: [this.head] }; }

  keepNames({ row_range: [row], column_range: [column], pool, sites: [site] }) {
    site.rows.forEach((name, n) => { this.names.rows[row + n * pool] ??= name; });
    site.columns.forEach((name, n) => { this.names.columns[column + n * pool] ??= name; });
  }
  async openHead(head) {
    this.head = head;
    const now = ++this.generation;
    Object.assign(this, { tiles: new Map(), lines: new Map(), overview: null });
    this.pool = Math.max(1, Math.ceil(Math.max(this.rows, this.columns) / OVERVIEW));
    const got = await this.wanted({ ...this.which, pool: this.pool });
    if (!got || now !== this.generation) return;
    this.keepNames(got);
    this.top = Math.max(1e-6, ...got.sites[0].weights[0].map((row) => Math.max(...row)));
    this.overview = this.paint(got);
    this.resize();
    this.tell();
  }

  /* An answer, or nothing: what is missing stays coarse, and is asked for again when it is looked at again. */
  async wanted(look) {
    try { return await this.ask(look); } catch (error) { this.says.textContent = `Not all weights could be fetched. ${error.message}`; return null; }
  }

  /* Weights as a canvas of one pixel each. */
  paint(got) {
    const weights = got.sites[0].weights[0], [height, width] = [weights.length, weights[0].length];
    const canvas = make("canvas", { width, height }), pen = canvas.getContext("2d"), pixels = pen.createImageData(width, height);
    const [red, green, blue] = this.colors.heat.split(" ").map(Number), color = (blue << 16) | (green << 8) | red;
    const each = new Uint32Array(pixels.data.buffer); /* alpha is the highest byte: every machine with a browser is little-endian */
    weights.forEach((row, y) => row.forEach((weight, x) => {
      each[y * width + x] = (Math.round(255 * Math.min(1, Math.max(0, weight) / this.top)) << 24) | color;
    }));
    pen.putImageData(pixels, 0, 0);
    return canvas;
  }
  resize() {
    if (this.closed || !this.box.clientWidth) return;
    [this.wide, this.tall] = [this.box.clientWidth, this.box.clientHeight];
    const scale = window.devicePixelRatio || 1;
    Object.assign(this.map, { width: Math.round(this.wide * scale), height: Math.round(this.tall * scale) });
    Object.assign(this.map.style, { width: `${this.wide}px`, height: `${this.tall}px` });
    this.space.style.width = `${this.left + this.columns * this.cell}px`;
    this.space.style.height = `${Math.max(0, this.above + this.rows * this.cell - this.tall)}px`;
    this.draw();
  }
  zoomTo(zoom) {
    this.zoom = Math.min(ZOOMS.length, Math.max(0, zoom));
    this.resize();
    this.reveal(true);
  }

  /* Scrolls so that the chosen cell can be seen. */
  reveal(always) {
    const along = (start, room, now) => (always || start < now || start + this.cell > now + room ? Math.max(0, start - room / 2) : now);
    this.box.scrollLeft = along(this.spot.column * this.cell, this.wide - this.left, this.box.scrollLeft);
    this.box.scrollTop = along(this.spot.row * this.cell, this.tall - this.above, this.box.scrollTop);
    this.redraw();
  }
  redraw() { this.pending ||= requestAnimationFrame(() => { this.pending = 0; this.draw(); }); }

  draw() {
    if (this.closed || !this.overview || !this.wide) return;
    const pen = this.map.getContext("2d"), scale = window.devicePixelRatio || 1, { cell, left, above } = this;
    const x = left - this.box.scrollLeft, y = above - this.box.scrollTop;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.wide, this.tall);
    pen.save();
    pen.beginPath();
    pen.rect(left, above, this.wide, this.tall);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const step = this.pool * cell, canvas = this.overview, missing = [], exact = cell >= EXACT && this.pool > 1;
    const first = Math.floor(this.box.scrollTop / cell), start = Math.floor(this.box.scrollLeft / cell);
    const last = Math.min(this.rows, Math.ceil((this.tall - y) / cell)), end = Math.min(this.columns, Math.ceil((this.wide - x) / cell));
    this.place = { x, y, first, last, start, end };
    if (!exact) pen.drawImage(canvas, x, y, canvas.width * step, canvas.height * step);
    else for (let row = first - (first % SIDE); row < last; row += SIDE) {
      for (let column = start - (start % SIDE); column < end; column += SIDE) {
        const tile = this.tiles.get(`${row} ${column}`);
        if (tile) pen.drawImage(tile, x + column * cell, y + row * cell, tile.width * cell, tile.height * cell);
        else { /* its part of the overview, until it is there */
          missing.push([row, column]);
          const part = [column / this.pool, row / this.pool, Math.min(SIDE, this.columns - column) / this.pool, Math.min(SIDE, this.rows - row) / this.pool];
          pen.drawImage(canvas, ...part, x + column * cell, y + row * cell, part[2] * step, part[3] * step);
        }
      }
    }
    pen.strokeStyle = this.colors.mark;
    pen.lineWidth = 1.5;
    pen.strokeRect(x - 1, y + this.spot.row * cell - 1, this.columns * cell + 2, Math.max(cell, 2) + 2);
    pen.strokeRect(x + this.spot.column * cell - 1, y - 1, Math.max(cell, 2) + 2, this.rows * cell + 2);
    pen.restore();
    this.drawNames(pen);
    this.settle(missing);
  }
  drawNames(pen) {
    const { cell, left, above, place: { x, y, first, last, start, end } } = this;
    const known = cell >= EXACT ? 1 : this.pool, every = Math.max(1, Math.ceil(14 / cell / known)) * known;
    pen.font = `12px ${this.colors.font}`;
    pen.textBaseline = "middle";
    const write = (name, chosen, at, turn, most) => {
      pen.save();
      pen.translate(...at);
      pen.rotate(-turn);
      pen.textAlign = turn ? "left" : "right";
      pen.fillStyle = chosen ? this.colors.mark : this.colors.ink;
      pen.fillText(shorten(name ?? "\u2026"), 0, 0, most);
      pen.restore();
    };
    for (let row = first - (first % every); row < last; row += every) {
      const at = y + (row + 0.5) * cell;
      if (at > above) write(this.names.rows[row], row === this.spot.row, [left - 6, at], 0, left - 8);
    }
    if (above > 20) for (let column = start - (start % every); column < end; column += every) {
      const at = x + (column + 0.5) * cell;
      if (at > left) write(this.names.columns[column], column === this.spot.column, [at, above - 6], Math.PI / 3, above);
    }
  }

  /* What moves stays coarse, and smooth: tiles are asked for once it rests, or every half second. */
  settle(missing) {
    const now = performance.now();
    this.missing = missing;
    if (!this.rest) this.since = now;
    else if (now - this.since > OFTEN) return;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => { this.rest = 0; this.fetchTiles(); }, REST);
  }

  /* A few tiles at a time, of those that can be seen now. */
  async fetchTiles() {
    while (this.asking < TOGETHER && this.missing.length && !this.closed) {
      const [row, column] = this.missing.shift(), now = this.generation;
      this.asking++;
      const within = { rows: [row, Math.min(this.rows, row + SIDE)], columns: [column, Math.min(this.columns, column + SIDE)] };
      const got = await this.wanted({ ...this.which, ...within });
      this.asking--;
      if (!got || now !== this.generation) return;
      this.keepNames(got);
      this.tiles.set(`${row} ${column}`, this.paint(got));
      if (this.tiles.size > KEPT) this.tiles.delete(this.tiles.keys().next().value);
      this.redraw();
    }
  }
  pointAt(event, now = false) {
    if (!this.place) return;
    const row = Math.floor((event.offsetY - this.place.y) / this.cell), column = Math.floor((event.offsetX - this.place.x) / this.cell);
    if (event.offsetX >= this.left && event.offsetY >= this.above && row < this.rows && column < this.columns) this.look(row, column, now);
  }
  walk(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [20, 0], PageUp: [-20, 0] }[event.key];
    const zoom = { "+": 1, "=": 1, "-": -1 }[event.key];
    if (!step && !zoom) return;
    event.preventDefault();
    if (zoom) { this.zoomTo(this.zoom + zoom); return; }
    const inside = (value, count) => Math.min(count - 1, Math.max(0, value));
    this.look(inside(this.spot.row + step[0], this.rows), inside(this.spot.column + step[1], this.columns));
    this.reveal(false);
  }
  look(row, column, now = false) {
    if (row === this.spot.row && column === this.spot.column && !now) return;
    this.spot = { row, column };
    this.redraw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.tell(), now ? 0 : WAIT);
  }

  /* What the chosen word looks at most, by its whole row. */
  async tell() {
    const { row, column } = this.spot, now = this.generation;
    if (!this.lines.has(row)) {
      const got = await this.wanted({ ...this.which, rows: [row, row + 1] });
      if (!got || now !== this.generation) return;
      this.keepNames(got);
      this.lines.set(row, got.sites[0].weights[0][0]);
    }
    if (row !== this.spot.row) return;
    const line = this.lines.get(row), word = (name) => make("b", { dir: "auto" }, shorten(name || ""));
    const most = line.map((weight, n) => [weight, n]).sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([weight]) => weight > 0);
    this.says.replaceChildren(word(this.names.rows[row]), ` (word ${row + 1}) looks at `);
    most.forEach(([weight, n], i) => this.says.append(i ? ", " : "", word(this.names.columns[n]), ` (${n + 1}) ${percent(weight)}`));
    this.says.append(" \u00b7 here ", word(this.names.columns[column]), ` (${column + 1}) ${line[column].toFixed(4)}`);
  }
}
