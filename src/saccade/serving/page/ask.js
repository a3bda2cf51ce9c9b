/* Asking the service: one function for each kind of answer, and one sentence for whatever went wrong. */
const KEY = "saccade-key";

export class Trouble extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}
export const keepKey = (key) => sessionStorage.setItem(KEY, key);

/* An answer of the service, as it comes. */
const send = async (path, body, signal) => {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server cannot be reached. Is it still running?");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new Trouble(key ? "The server does not know this key." : "This server asks for a key.", 401);
  const wait = answer.headers.get("Retry-After");
  const sentence = typeof told.error === "string" ? `The server says: ${told.error}.` : `The server failed with status ${answer.status}.`;
  throw new Trouble(wait ? `${sentence} Try again in ${wait} s.` : sentence, answer.status);
};
export const ask = async (path, body, signal) => {
  const answer = await send(path, body, signal);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The answer of the server broke off.");
  }
};

/* The events of a stream, each given to `hear`. */
export const listen = async (path, body, hear, signal) => {
  const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true };
    });
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const one of events) {
      const told = JSON.parse(one.replace(/^data: /, ""));
      if (told.error) throw new Trouble(`The server says: ${told.error}.`, 503);
      ended = ended || Boolean(told.done);
      hear(told);
    }
  }
  if (!ended) throw new Trouble("The answer of the server broke off.");
};
