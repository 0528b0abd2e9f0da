// The stream of a server that says which runs change. It needs nothing of a page: a worker listens too.
import { visible } from "./format.js";

export const AGAIN_MS = 2000;

// What was escaped in JSON is made visible: names of runs and tasks may have such characters.
export const parsed = (text) => JSON.parse(visible(text));

// The first bytes come once the server has seen how the files are: a later change is told.
const read = async (reader, begun, changed) => {
  const decoder = new TextDecoder();
  let text = "";
  for (let first = true; ; first = false) {
    const { done, value } = await reader.read();
    if (done) return;
    if (first) begun();
    const events = (text + decoder.decode(value, { stream: true })).split("\n\n");
    text = events.pop();
    for (const event of events) if (event.startsWith("data: ")) changed(parsed(event.slice(6)));
  }
};

// Tells the keys of runs as they change, whether the server answers, that it does so again after it was gone, and that it refuses
// the token, which ends it, as the function does that is returned.
export const listen = (token, tell) => {
  const end = new AbortController();
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const once = async (gone) => {
    const answer = await fetch("api/live", { headers, signal: end.signal, credentials: "omit" });
    if (answer.status === 401) return "refused";
    if (answer.ok) await read(answer.body.getReader(), () => tell({ connected: true, again: gone }), (keys) => tell({ keys }));
    return "gone";
  };
  const on = async () => {
    for (let gone = false; ; gone = true) {
      const state = await once(gone).catch(() => "gone");
      if (end.signal.aborted) return;
      tell({ connected: false, refused: state === "refused" });
      if (state === "refused") return;
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  };
  on();
  return () => end.abort();
};
