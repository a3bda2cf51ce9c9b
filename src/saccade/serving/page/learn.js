/* The worked example with one's own sentence: worked.js shows what every number was made of. All numbers are the service's. */
import { ask } from "./ask.js";
const by = (id) => document.getElementById(id);
let data = null, shown = "", tell = () => {}, calm = () => {};

const work = async () => {
  const text = by("words").value, scaled = by("scaled").checked;
  calm();
  try {
    data = await ask("/v1/worked", { text, scaled });
  } catch (error) { tell(error, work); return; }
  history.replaceState(null, "", `#${new URLSearchParams({ do: "learn", text })}`);
  new window.saccade.Explained(by("steps"), by("explains"), data.steps);
};
export const openLearn = (words, told, calmed) => {
  [tell, calm] = [told, calmed];
  if (words !== undefined) by("words").value = words;
  if (shown === by("words").value && data) return;
  shown = by("words").value;
  work();
};
by("learn-form").addEventListener("submit", (event) => { event.preventDefault(); work(); });
