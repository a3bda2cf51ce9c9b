/* The page of a service: what is asked, links that hold it, history, troubles. Text only ever enters the page as textContent. */
import { Trouble, ask, keepKey, listen } from "./ask.js";
import { openLearn } from "./learn.js";
import { closeView, showAnswer, showView, watchView } from "./results.js";
const { make, rove } = window.saccade;
const by = (id) => document.getElementById(id);
const VERBS = {
  translate: { go: "Translate", text: "text", options: ["beam"] },
  tag: { go: "Tag", text: "text", options: [] },
  classify: { go: "Classify", text: "text", options: [] },
  generate: { go: "Generate", text: "beginning", options: ["limit", "temperature"] },
  caption: { go: "Describe", text: "", options: ["beam"], image: true },
  answer: { go: "Answer", text: "question", options: [], image: true },
};
const OPTIONS = { beam: ["beam", 1, 16, 1, 1], limit: ["most tokens", 1, 1024, 1, 80], temperature: ["temperature", 0, 2, 0.1, 0.7] };
const HISTORY = "saccade-history", MOST_HISTORY = 50, MOST_IMAGE = 11e6, MOST_IN_LINK = 60000, SLOW = 5;
let models = [], examples = {}, verb = "", image = "", running = null, retry = () => {};
/* ---- what is asked ---- */
const modelsFor = (name) => models.filter((one) => one.does.includes(name));
const modelHere = () => models.find((one) => one.id === by("model").value);
const wantsImage = () => Boolean(VERBS[verb].image) || modelHere().task === "image-classification";
const wantsText = () => VERBS[verb].text !== "" && modelHere().task !== "image-classification";
const openVerb = (name, model) => {
  verb = name;
  by("tasks").querySelectorAll("input").forEach((one) => { one.checked = one.value === name; });
  by("model").replaceChildren(...modelsFor(name).map((one) => make("option", { value: one.id }, one.id)));
  if (model && modelsFor(name).some((one) => one.id === model)) by("model").value = model;
  by("model-box").hidden = modelsFor(name).length < 2;
  by("go").textContent = VERBS[name].go;
  by("options").replaceChildren(...VERBS[name].options.map((one) => {
    const [shown, min, max, step, value] = OPTIONS[one];
    return make("label", {}, `${shown} `, make("input", { type: "number", name: one, min, max, step, value }));
  }));
  openModel();
};
const openModel = () => {
  by("image-box").hidden = !wantsImage();
  by("text-box").hidden = !wantsText();
  by("text-name").textContent = VERBS[verb].text;
  by("examples").replaceChildren(...(examples[modelHere().id] || []).map((one, n) => {
    const face = one.image ? make("img", { src: one.image, alt: one.text ? "" : `picture ${n + 1}` }) : "";
    const button = make("button", { type: "button", title: one.text || "" }, face, one.text || "");
    button.addEventListener("click", () => { fill(one); run(); });
    return button;
  }));
};
const fill = (given) => {
  by("text").value = given.text || "";
  openImage(given.image || "");
  for (const input of by("options").querySelectorAll("input")) if (given[input.name]) input.value = given[input.name];
};
const openImage = (data) => {
  image = data.startsWith("data:image/") ? data : "";
  by("preview").hidden = !image;
  by("preview").src = image || "data:,";
};
const readFile = (file) => {
  if (!file) return;
  if (file.size > MOST_IMAGE) { tell(new Trouble(`The picture has ${Math.round(file.size / 1e6)} MB; choose one of up to 11 MB.`)); return; }
  const reader = new FileReader();
  reader.addEventListener("load", () => openImage(String(reader.result)));
  reader.readAsDataURL(file);
};
const asked = () => {
  const options = Array.from(by("options").querySelectorAll("input"), (input) => [input.name, input.value]);
  return { do: verb, model: modelHere().id, ...(wantsText() ? { text: by("text").value } : {}), ...(wantsImage() ? { image } : {}),
           ...Object.fromEntries(options) };
};
/* ---- links and history ---- */
const keepLink = (given) => {
  const held = { ...given };
  if (held.image && held.image.length > MOST_IN_LINK) delete held.image; /* too long for an address */
  history.replaceState(null, "", `#${new URLSearchParams(held)}`);
};
const openLink = () => {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  openTab(given.do === "learn" ? "learn" : "try", given.text);
  if (given.do === "learn" || !models.length) return;
  const known = modelsFor(given.do).length > 0;
  if (!verb || known) openVerb(known ? given.do : Object.keys(VERBS).find((name) => modelsFor(name).length), given.model);
  if (known) { fill(given); run(); }
};
const readHistory = () => {
  try { return JSON.parse(localStorage.getItem(HISTORY)) || []; } catch { return []; }
};
const remember = (given, answer) => {
  const same = JSON.stringify(given), small = { ...given, image: (given.image || "").length > MOST_IN_LINK ? "" : given.image };
  const kept = [{ given: small, answer }, ...readHistory().filter((one) => JSON.stringify(one.given) !== same)].slice(0, MOST_HISTORY);
  try { localStorage.setItem(HISTORY, JSON.stringify(kept)); } catch { /* full, or not allowed: there is no history then */ }
  showHistory();
};
const showHistory = () => {
  const kept = readHistory();
  by("history").hidden = !kept.length;
  by("history").querySelector("ol").replaceChildren(...kept.map(({ given, answer }) => {
    const button = make("button", { type: "button", dir: "auto" }, `${given.do}: ${given.text || "picture"} → ${answer}`);
    button.addEventListener("click", () => { openVerb(given.do, given.model); fill(given); run(); });
    return make("li", {}, button);
  }));
};
/* ---- troubles, and waiting ---- */
const tell = (trouble, again) => {
  by("trouble").hidden = false;
  by("trouble").querySelector("p").textContent = trouble instanceof Trouble ? trouble.message : `This page failed: ${trouble.message}.`;
  by("key-form").hidden = trouble.status !== 401;
  by("again").hidden = !again || trouble.status === 401;
  if (again) retry = again;
  if (trouble.status === 401) by("key").focus();
};
const calm = () => { by("trouble").hidden = true; };
const begin = () => {
  if (running) running.stop();
  const control = new AbortController(), start = performance.now(), says = by("working");
  const beat = setInterval(() => {
    const seconds = Math.round((performance.now() - start) / 1000);
    says.textContent = seconds >= SLOW ? `The server is slow: no answer for ${seconds} s. Wait, or stop.` : `Working, ${seconds} s`;
  }, 1000);
  const end = () => { clearInterval(beat); if (running === me) { says.textContent = ""; by("stop").hidden = true; running = null; } };
  const me = { signal: control.signal, heard: () => clearInterval(beat), end, stop: () => { control.abort(); end(); } };
  by("stop").hidden = false;
  calm();
  return (running = me);
};
/* ---- the work ---- */
const run = async () => {
  const given = asked(), now = begin();
  const empty = wantsImage() && !image ? "image" : wantsText() && !given.text.trim() && verb !== "generate" ? "text" : "";
  if (empty) { now.end(); tell(new Trouble(empty === "image" ? "Choose a picture first." : "Type a text first.")); by(empty).focus(); return; }
  keepLink(given);
  closeView();
  try {
    const answer = given.do === "generate" ? await generate(given, now) : await once(given, now);
    remember(given, answer.short);
    const look = { model: given.model, ...answer.look };
    const view = (wanted, signal) => ask("/v1/look", { ...look, look: wanted }, signal).then((got) => got.results[0].look);
    await showView(view, modelHere().attends && Object.values(answer.look).every((one) => one === undefined || one.trim()), now.signal);
    now.end();
  } catch (error) {
    now.end();
    if (error.name !== "AbortError") tell(error, run);
  }
};
const once = async (given, now) => {
  const body = { model: given.model };
  if (given.image) body.image = given.image;
  if ("text" in given) body[given.do === "answer" ? "question" : "text"] = given.text;
  if (given.beam) body.beam = Number(given.beam);
  const got = (await ask(`/v1/${given.do}`, body, now.signal)).results[0];
  showAnswer(given.do, got);
  const { text, image } = given, target = ["translate", "caption"].includes(given.do) ? got.text : undefined;
  return { short: got.text || got.label || got.answer || (got.tags || []).join(" "), look: { text, image, target } };
};
const generate = async (given, now) => {
  const body = { model: given.model, prompt: given.text, limit: Number(given.limit), temperature: Number(given.temperature), stream: true };
  const more = showAnswer("generate", given);
  let text = "";
  await listen("/v1/generate", body, (event) => { now.heard(); if (event.text) { text += event.text; more(event.text); } }, now.signal);
  return { short: text, look: { text: given.text + text } };
};
/* ---- the page ---- */
const openTab = (name, words) => {
  for (const one of ["try", "learn"]) {
    by(one).hidden = one !== name;
    by(`tab-${one}`).setAttribute("aria-selected", String(one === name));
    by(`tab-${one}`).tabIndex = one === name ? 0 : -1;
  }
  if (name === "learn") openLearn(words, tell, calm);
};
const start = async () => {
  calm();
  try {
    models = (await ask("/v1/models")).data;
    examples = await ask("/v1/examples");
  } catch (error) { tell(error, start); return; }
  const legend = by("tasks").querySelector("legend");
  by("tasks").replaceChildren(legend, ...Object.keys(VERBS).filter((name) => modelsFor(name).length).map((name) => {
    const input = make("input", { type: "radio", name: "task", value: name });
    input.addEventListener("change", () => { openVerb(name); closeView(); by("result").hidden = true; });
    return make("label", {}, input, name);
  }));
  by("form").hidden = false;
  showHistory();
  openLink();
};
by("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
by("form").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } });
by("model").addEventListener("change", openModel);
by("stop").addEventListener("click", () => { running.stop(); by("working").textContent = "Stopped."; by("go").focus(); });
by("again").addEventListener("click", () => { calm(); retry(); });
by("key-form").addEventListener("submit", (event) => { event.preventDefault(); keepKey(by("key").value); by("key").value = ""; retry(); });
by("clear").addEventListener("click", () => { localStorage.removeItem(HISTORY); showHistory(); by("go").focus(); });
by("image").addEventListener("change", () => readFile(by("image").files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) by("image-box").addEventListener(kind, (event) => {
  event.preventDefault();
  by("image-box").classList.toggle("over", kind === "dragover");
  if (kind === "drop") readFile(event.dataTransfer.files[0]);
});
by("link").addEventListener("click", async () => {
  keepLink(asked());
  const held = !wantsImage() || location.hash.includes("image=data"), what = held ? "" : ", without the picture, which is too large for it";
  try { await navigator.clipboard.writeText(location.href); by("working").textContent = `The link is copied${what}.`; }
  catch { by("working").textContent = `The link is in the address bar${what}.`; }
});
for (const name of ["try", "learn"]) by(`tab-${name}`).addEventListener("click", () => {
  openTab(name);
  history.replaceState(null, "", name === "learn" ? "#do=learn" : "#");
});
rove(document.querySelector(".tabs"), (n) => document.querySelectorAll(".tabs button")[n].click());
addEventListener("hashchange", openLink);
watchView(tell);
start();
