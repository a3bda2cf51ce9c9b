/* Answers as people read them, and the live view of what the model looked at. */
import { Tiles } from "./tiles.js";
const { View, make, percent } = window.saccade;
const by = (id) => document.getElementById(id);
const MOST_IN_VIEW = 150, MOST_CHANCES = 8; /* words on a side, above which the view is one of tiles */
let view = null, askLook = null, data = null, tell = () => {};
const chances = (probabilities) => {
  const list = Object.entries(probabilities).sort((a, b) => b[1] - a[1]).filter(([, value], n) => value >= 0.0005 || !n).slice(0, MOST_CHANCES);
  return make("dl", { class: "chances" }, ...list.flatMap(([name, value]) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${100 * value}%`;
    return [make("dt", { dir: "auto" }, name), make("dd", {}, bar), make("dd", {}, percent(value))];
  }));
};
const others = (alternatives) => (alternatives && alternatives.length
  ? make("details", {}, make("summary", {}, `${alternatives.length} more`), make("ul", {}, ...alternatives.map((one) => make("li", { dir: "auto" }, one)))) : "");

/* Shows an answer; of a text in the making, a function that adds to it. */
export const showAnswer = (verb, got) => {
  const output = make("p", { class: "output", dir: "auto" });
  const parts = [output];
  if (verb === "generate") output.append(make("span", { class: "given" }, got.text));
  else if (verb === "tag") parts[0] = make("ul", { class: "tags" }, ...got.words.map((word, n) => make("li", { dir: "auto" }, word, make("small", {}, got.tags[n]))));
  else output.textContent = got.label || got.answer || got.text || "\u2014";
  if (got.probabilities) parts.push(chances(got.probabilities));
  if (verb === "translate" || verb === "caption") parts.push(others(got.alternatives));
  if (got.finished === false && verb !== "generate") parts.push(make("p", { class: "muted" }, "It was cut at the largest number of tokens."));
  by("result").replaceChildren(...parts.filter((part) => part !== ""));
  by("result").hidden = false;
  return (text) => output.append(text);
};
export const closeView = () => {
  if (view) view.close();
  view = data = null;
  by("view").replaceChildren();
  by("seen").hidden = true;
};

/* Asks for the first attention and shows it; `ask` gets which weights are wanted. */
export const showView = async (ask, attends, signal) => {
  askLook = ask;
  for (const part of ["layer-box", "save"]) by(part).hidden = !attends;
  by("no-view").hidden = attends;
  by("seen").hidden = false;
  if (!attends) return;
  const first = await ask({ pool: 0 }, signal);
  by("layer").replaceChildren(...first.layers.map((name) => make("option", { value: name }, name)));
  open(first);
};
const open = (got) => {
  if (view) view.close();
  data = got;
  const site = got.sites[0], root = make("div", { class: "attention", role: "group", "aria-label": `Attention ${site.name}` });
  by("layer").value = site.name;
  by("view").replaceChildren(root);
  const large = !site.grid && got.shape[1] > 1 && Math.max(got.shape[1], got.shape[2]) > MOST_IN_VIEW;
  view = large ? new Tiles(root, got, (wanted) => askLook({ layer: site.name, ...wanted })) : new View(root, got);
  root.saccade = view;
};

/* What is on the canvas now, under a heading, as a PNG file. */
const save = () => {
  const style = getComputedStyle(document.body), scale = window.devicePixelRatio || 1, pad = 16 * scale, map = view.map;
  const picture = make("canvas", { width: Math.max(map.width, 360 * scale) + 2 * pad, height: map.height + 2 * pad + 44 * scale });
  const pen = picture.getContext("2d");
  pen.fillStyle = style.getPropertyValue("--card");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.fillStyle = style.color;
  pen.font = `600 ${15 * scale}px ${style.fontFamily}`;
  pen.fillText(data.title, pad, pad + 12 * scale, picture.width - 2 * pad);
  pen.font = `${12 * scale}px ${style.fontFamily}`;
  pen.fillText(`${data.sites[0].name}, ${view.head < 0 ? "average of all heads" : `head ${view.head}`}`, pad, pad + 32 * scale);
  pen.drawImage(map, pad, pad + 44 * scale);
  picture.toBlob((blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: `${data.sites[0].name.replace(/[^\w.-]+/g, "-")}.png` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
};
export const watchView = (told) => {
  tell = told;
  const change = async () => {
    const wanted = by("layer").value;
    try { open(await askLook({ layer: wanted, pool: 0 })); } catch (error) { if (error.name !== "AbortError") tell(error, change); }
  };
  by("layer").addEventListener("change", change);
  by("save").addEventListener("click", save);
};
