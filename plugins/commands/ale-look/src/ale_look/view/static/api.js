// What the server, or a static copy of it, answers, and what it takes; the token; and which runs change.
import { listen, parsed } from "./live.js";

const KEY = "ale-token";

// The token comes in the part of the address that is never sent, and leaves the address at once.
const given = /^#token=([^/?]*)(.*)$/.exec(location.hash);
if (given) {
  localStorage.setItem(KEY, decodeURIComponent(given[1]));
  history.replaceState(null, "", location.pathname + location.search + `#${given[2] || "/"}`);
}
export const setToken = (token) => localStorage.setItem(KEY, token);

export class Refused extends Error {}

const ask = async (path, signal, body) => {
  const token = localStorage.getItem(KEY);
  const headers = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(`api/${path}`, { headers, signal, credentials: "omit", ...(body && { method: "POST", body: JSON.stringify(body) }) }).catch((error) => {
    throw signal?.aborted ? error : new Error("The server does not answer: is `ale view` still running?");
  });
  if (answer.status === 401) throw new Refused("the token is missing or wrong");
  return answer;
};

// In a page of a single file, the answers stand in it.
const within = new Map([...document.querySelectorAll("script[data-path]")].map((node) => [node.dataset.path, node]));

const NOT_HERE = `This ${within.size ? "file" : "copy"} does not have it: \`ale view\` shows all of a run.`;

export const get = async (path, signal) => {
  if (within.size) {
    const node = within.get(path.split("?")[0]);
    if (!node) throw new Error(NOT_HERE);
    return parsed(node.textContent);
  }
  return answered(path, await ask(path, signal));
};

// Writes something, and gives what there is then.
export const post = async (path, body) => answered(path, await ask(path, undefined, body));

const answered = async (path, answer) => {
  const type = answer.headers.get("Content-Type") || "";
  // The server of `ale view` says in JSON what it lacks; another one has files.
  if (!answer.ok && !type.includes("json")) throw new Error(answer.status === 404 ? NOT_HERE : `The server answers ${answer.status} for ${path}.`);
  const found = parsed(await answer.text());
  if (!answer.ok) throw new Error(found.error || `${path}: ${answer.status}`);
  return found;
};

export const runPath = (key, rest = "") => `run/${encodeURIComponent(key)}${rest}.json`;

// Episodes of a run as rows; what is known of a list is not asked for again.
const lists = new Map();
export const episodesOf = async (key, signal) => {
  const known = lists.get(key);
  const since = known ? `?since=${known.reading}.${known.rows.length}` : "";
  const found = await get(runPath(key, "/episodes") + since, signal);
  const names = Object.keys(found.columns);
  const n = found.columns.offset.length;
  const rows = known && found.since ? known.rows.slice(0, found.since) : [];
  for (let i = 0; i < n; i += 1) rows.push(Object.fromEntries(names.map((name) => [name, found.columns[name][i]])));
  lists.set(key, { reading: found.reading, rows });
  return rows;
};

// What tells a function what the stream of the server says, for all tabs by one worker where the browser has such.
const told = (version, tell) => {
  const token = localStorage.getItem(KEY);
  let end = () => {};
  const alone = () => { end = listen(token, tell); };
  try {
    const worker = new SharedWorker("worker.js", { type: "module", name: `ale view ${version}` });
    worker.onerror = alone;
    worker.port.onmessage = ({ data }) => tell(data);
    worker.port.postMessage({ token });
    end = () => worker.port.postMessage({ end: true });
  } catch { alone(); }
  return () => end();
};

// Calls `changed` with the keys of runs as they change, until the function that it returns is called; `again` once a server
// answers that was gone, and `refused` if it has another token.
export const follow = (version, { changed, connected, again, refused }) => told(version, (said) => {
  if (said.keys) changed(said.keys);
  if (said.connected !== undefined) connected(said.connected);
  if (said.again) again();
  if (said.refused) refused(new Refused("the token is missing or wrong"));
});
