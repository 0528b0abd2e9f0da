// The page: which view is shown, what is in the bar above it, keys, and what is asked again as runs change.
import { html } from "./html.js";
import { render, useEffect, useState } from "./preact-htm.js";
import { Refused, follow, get, setToken } from "./api.js";
import { AGAIN_MS } from "./live.js";
import { visible } from "./format.js";
import { go, link, parse } from "./route.js";
import { Runs } from "./runs.js";
import { Run } from "./run.js";
import { Task } from "./group.js";
import { Episode } from "./episode.js";
import { Search } from "./search.js";
import { Compare } from "./compare.js";
import { Timeline } from "./timeline.js";
import { Returns } from "./bits.js";

const useRoute = () => {
  const [route, set] = useState(parse());
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
};

// A page of a single file begins with its run.
const places = ({ parts }, { one }) => (one && parts[0] !== "run" ? ["run", one.run] : parts);

// What is wrong with an address that names no view, and what is shown instead.
const misled = ([first, key, kind, ...rest]) => {
  if (!first || first === "search" || first === "compare") return null;
  if (first !== "run" || !key) return "This address names no page; these are all runs.";
  const named = !kind || kind === "timeline" || (kind === "task" && rest[0]) || (kind === "e" && /^\d+$/.test(rest[0]));
  return named ? null : "This address names no page of the run; this is the run.";
};

const chosen = ({ parts, query }, shared) => {
  const [first, key, kind, ...rest] = parts;
  if (!shared.about.live && (first === "search" || first === "compare")) return html`<h1>${first === "search" ? "Search" : "Compare"}</h1><p class="note">A copy has no ${first === "search" ? "search" : "comparison of runs"}: <code>ale view</code> has, on the folder of the runs.</p>`;
  if (first === "search") return html`<${Search} ...${shared} query=${query} />`;
  if (first === "compare") return html`<${Compare} ...${shared} keys=${query.getAll("run")} />`;
  if (first !== "run" || !key) return html`<${Runs} ...${shared} query=${query} />`;
  if (kind === "e" && /^\d+$/.test(rest[0])) return html`<${Episode} ...${shared} run=${key} offset=${Number(rest[0])} id=${rest[1]} query=${query} />`;
  if (kind === "task" && rest[0]) return html`<${Task} ...${shared} run=${key} task=${rest[0]} query=${query} />`;
  if (kind === "timeline") return html`<${Timeline} ...${shared} run=${key} query=${query} />`;
  return html`<${Run} ...${shared} run=${key} query=${query} />`;
};

const KEYS = [["/", "search", true], ["j, k", "next and previous turn"], ["n, p", "next and previous episode"], ["[, ]", "previous and next branch of an episode"], ["t", "the timeline of a run"], ["f", "fold or open the tool calls of an episode"],
  ["g, b", "mark an episode as good or bad; again takes it back", true], ["c, e", "write a note on the turn, on the episode", true],
  ["u", "up: to the run, and from it to all runs"], ["?", "show or hide this; Escape hides it too"]];

const up = ({ parts }) => {
  const [first, key, kind] = parts;
  go(first === "run" && kind ? ["run", key] : []);
};

const typed = (event) => event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey;

const Bar = ({ about, parts, connected }) => html`<nav class="bar-top" aria-label="views">
  <a href="#/" class="home"><b>ale</b> view</a>
  ${parts[0] === "run" && html`<span class="crumbs">/ <a href=${link(["run", parts[1]])}>${visible(parts[1] || "")}</a>
    ${parts[2] === "timeline" && html` / <span>timeline</span>`}${parts[2] === "task" && html` / <span>${visible(parts[3] || "")}</span>`}${parts[2] === "e" && html` / <span>${visible(parts[4] || "")}</span>`}</span>`}
  <span class="spacer"></span>
  ${about.live && html`<a href="#/search" aria-current=${parts[0] === "search" ? "page" : undefined}>Search</a>
    <span class=${`dot ${connected ? "on" : ""}`} role="status" title=${connected ? "follows the runs" : "not connected"}><span class="hidden">${connected ? "live" : "not connected"}</span></span>`}
  ${!about.live && html`<small>a copy</small>`}</nav>`;

const Token = ({ retry }) => {
  const [text, set] = useState("");
  const enter = (event) => {
    event.preventDefault();
    setToken((/token=([^&\s]+)/.exec(text) || [null, text.trim()])[1]);
    retry();
  };
  return html`<main class="narrow"><h1>ale view</h1><p>Open the address that <code>ale view</code> has printed, or paste it, or its token, here.</p>
    <form onSubmit=${enter}><label>Address or token <input type="password" value=${text} onInput=${(e) => set(e.target.value)} autocomplete="off" /></label> <button>Open</button></form></main>`;
};

const Help = ({ close, live }) => html`<div class="help" role="dialog" aria-label="keys" onClick=${close}><table><tbody>
  ${KEYS.filter(([, , served]) => live || !served).map(([key, what]) => html`<tr><td><kbd>${key}</kbd></td><td>${what}</td></tr>`)}</tbody></table></div>`;

const App = () => {
  const route = useRoute();
  const [about, setAbout] = useState(null);
  const [error, setError] = useState(null);
  const [changes, setChanges] = useState({});
  const [connected, setConnected] = useState(false);
  const [returns, setReturns] = useState(0);
  const [help, setHelp] = useState(false);
  const begin = () => get("about.json").then((found) => { setError(null); setAbout(found); }, setError);
  useEffect(() => { begin(); }, []);
  useEffect(() => {
    if (about || !error || error instanceof Refused) return undefined;
    const timer = setTimeout(begin, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [error]);
  useEffect(() => {
    if (!about || !about.live) return undefined;
    // Runs are asked for again at most once a second, however many events come.
    let waiting = [];
    const timer = setInterval(() => {
      if (!waiting.length) return;
      const keys = waiting;
      waiting = [];
      setChanges((was) => ({ ...was, ...Object.fromEntries(keys.map((key) => [key, (was[key] || 0) + 1])) }));
    }, 1000);
    // What has changed while nobody answered is not told: what is shown is asked for again.
    const again = () => { waiting.push(parse().parts[1] || ""); setReturns((was) => was + 1); };
    const end = follow(about.version, { changed: (keys) => waiting.push(...keys), connected: setConnected, again, refused: setError });
    return () => { clearInterval(timer); end(); };
  }, [about]);
  useEffect(() => {
    const pressed = (event) => {
      if (typed(event)) return;
      if (event.key === "/" && about && about.live) { event.preventDefault(); go(["search"]); }
      if (event.key === "?") setHelp((was) => !was);
      if (event.key === "Escape") setHelp(false);
      if (event.key === "u") up(route);
      const [place, key] = about ? places(route, about) : [];
      if (event.key === "t" && place === "run") go(["run", key, "timeline"]);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [about, route]);
  if (error instanceof Refused) return html`<${Token} retry=${begin} />`;
  if (error) return html`<p class="warning" role="alert">${error.message}</p>`;
  if (!about) return html`<p class="empty">Loading</p>`;
  const parts = places(route, about);
  return html`<${Bar} about=${about} parts=${parts} connected=${connected} />
    <main key=${parts.slice(0, 3).join("/")}><${Returns.Provider} value=${returns}>${misled(parts) && html`<p class="warning" role="alert">${misled(parts)}</p>`}${chosen({ ...route, parts }, { about, changes })}<//></main>
    ${help && html`<${Help} live=${about.live} close=${() => setHelp(false)} />`}`;
};

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
