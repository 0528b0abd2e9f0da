// All runs of the folder: filter, sort, choose two or more to compare.
import { html } from "./html.js";
import { useEffect, useState } from "./preact-htm.js";
import { get } from "./api.js";
import { plain, seconds, whole } from "./format.js";
import { go, link, replaceQuery } from "./route.js";
import { Badge, Contested, Problem, Rate, Table, When } from "./bits.js";

const TONES = { completed: "good", running: "live", paused: "warn", interrupted: "", drained: "warn", halted: "warn" };
export const State = ({ state }) => html`<${Badge} kind=${TONES[state] ?? "bad"}>${state}<//>`;

const COLUMNS = (picked, pick, runs) => [
  { name: "", class: "pick", cell: (row) => html`<input type="checkbox" aria-label=${`compare ${row.run_id}`} checked=${picked.includes(row.key)} onChange=${() => pick(row.key)} />` },
  { name: "run", class: "name", value: (row) => row.run_id, cell: (row) => html`<a href=${link(["run", row.key])}>${row.run_id}</a>${row.key.includes("/") && html` <small>${row.key}</small>`}` },
  { name: "state", value: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { name: "model", class: "mid", value: (row) => row.model, cell: (row) => row.model || "-" },
  { name: "tasks", num: true, class: "wide", value: (row) => row.n_tasks, cell: (row) => whole(row.n_tasks) },
  { name: "success", class: "success", value: (row) => row.success, cell: (row) => html`<${Rate} share=${row.success} low=${row.low} high=${row.high} /><${Contested} n=${row.n_contested} />` },
  { name: "reward", num: true, class: "wide", value: (row) => row.mean_reward, cell: (row) => plain(row.mean_reward) },
  { name: "episodes", num: true, class: "mid", value: (row) => row.n_episodes, cell: (row) => whole(row.n_episodes) },
  { name: "broken", num: true, class: "mid", value: (row) => row.n_broken, cell: (row) => (row.n_broken ? html`<span class="fail">${whole(row.n_broken)}</span>` : "0") },
  { name: "took", num: true, class: "wide", value: (row) => row.seconds, cell: (row) => seconds(row.seconds) },
  ...(runs.some((row) => row.tags.length) ? [{ name: "tags", class: "wide", cell: (row) => row.tags.map((tag) => html`<${Badge}>${tag}<//> `) }] : []),
  { name: "created", class: "mid", value: (row) => row.created, cell: (row) => html`<${When} at=${row.created} />` },
];

const fits = (row, words) => {
  const text = [row.run_id, row.key, row.state, row.model, ...row.tags].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
};

export const Runs = ({ about, changes, query }) => {
  const [answer, setAnswer] = useState({});
  const [picked, setPicked] = useState([]);
  useEffect(() => {
    let again;
    const load = () => get("runs.json").then((data) => {
      setAnswer({ data });
      if (data.reading) again = setTimeout(load, 1000);
    }, (error) => setAnswer({ error }));
    load();
    return () => clearTimeout(again);
  }, [changes]);
  const { data, error } = answer;
  if (!data) return (error ? html`<${Problem} error=${error} />` : html`<p class="empty">Reading the runs</p>`);
  const words = (query.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.runs.filter((row) => fits(row, words));
  const pick = (key) => setPicked((was) => (was.includes(key) ? was.filter((each) => each !== key) : [...was, key]));
  return html`<h1>Runs</h1><p class="sub">${about.folder}${data.reading && " · reading what is new"}</p>
    ${data.problems.map((text) => html`<pre class="warning">${text}</pre>`)}
    <div class="filter"><input type="search" aria-label="filter runs" placeholder="name, state, model, tag" value=${query.get("q") || ""} onInput=${(e) => replaceQuery({ q: e.target.value })} />
      <small>${rows.length === data.runs.length ? `${rows.length}` : `${rows.length} of ${data.runs.length}`}</small>
      ${about.live && html`<button type="button" disabled=${picked.length < 2} onClick=${() => { go(["compare"]); location.hash = `#/compare?${picked.map((key) => `run=${encodeURIComponent(key)}`).join("&")}`; }}>Compare ${picked.length > 1 ? picked.length : ""}</button>`}</div>
    ${data.runs.length ? html`<${Table} id="runs" columns=${COLUMNS(picked, pick, data.runs).slice(about.live ? 0 : 1)} rows=${rows} />`
    : html`<p class="empty">No run here yet. <code>ale run configs/examples.yaml</code> makes one.</p>`}`;
};
