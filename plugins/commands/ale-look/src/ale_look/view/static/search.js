// Words and filters over the episodes of all runs. All that was asked stands in the address.
import { html } from "./html.js";
import { useEffect, useRef, useState } from "./preact-htm.js";
import { get, post } from "./api.js";
import { counted, whole } from "./format.js";
import { link, replaceQuery, toEpisode } from "./route.js";
import { Badge, Problem, Reward, When, useLater, useReturns } from "./bits.js";

const FIELDS = [["task", "task"], ["failed", "failed criterion"], ["tool_failed", "a call of this tool failed"], ["tool", "tool was called"],
  ["error", "part of an error"], ["prompt", "part of the prompt"], ["model", "model"], ["step", "step"], ["min_reward", "reward at least"], ["max_reward", "reward at most"], ["run", "run"]];
const NUMBERS = ["step", "min_reward", "max_reward"];
const ORDERS = ["newest", "oldest", "best", "worst"];
const CHOICES = [["stop", ["", "finished", "gave_up", "max_steps", "max_turns", "time_limit", "context", "agent_error"]], ["split", ["", "train", "evaluation"]]];

const placeOf = ({ note, turn }) => [note && "note", turn === null ? "" : `turn ${turn}`].filter(Boolean).join(" on ");
const Excerpt = ({ row, found }) => html`<a class="excerpt" href=${toEpisode(row.key, { offset: row.offset, id: row.episode_id }, { turn: found.turn })}>
  <small>${placeOf(found)}</small> ${found.parts.map(([hit, text]) => (hit ? html`<mark>${text}</mark>` : text))}</a>`;

const Hit = ({ row }) => html`<li class="hit"><div><${Reward} value=${row.reward} /> <a href=${toEpisode(row.key, { offset: row.offset, id: row.episode_id })}><b>${row.episode_id}</b></a>
  <small> in <a href=${link(["run", row.key])}>${row.run_id}</a> · <${When} at=${row.started} /> · ${counted(row.n_turns, "turn")}${row.n_errors > 0 && ` · ${counted(row.n_errors, "failed call")}`}${row.model && ` · ${row.model}`}</small></div>
  ${row.excerpts.map((found) => html`<${Excerpt} row=${row} found=${found} />`)}${!row.excerpts.length && html`<small class="prompt">${row.prompt}</small>`}</li>`;

const Answer = ({ answer, more }) => html`<p class="note" role="status">${counted(answer.rows.length, "episode")}${answer.more ? ", and more" : ""}${answer.reading ? "; still reading what is new" : ""}${answer.partly ? "; the time ran out before all episodes were matched: add words, a run or a task" : ""}, in ${whole(answer.took)} ms</p>
  <ol class="hits">${answer.rows.map((row) => html`<${Hit} key=${`${row.key} ${row.offset}`} row=${row} />`)}</ol>
  ${answer.more && html`<button type="button" onClick=${more}>Show more</button>`}`;

const PATH = "searches.json";
const filled = (query) => new URLSearchParams([...query].filter(([, value]) => value)).toString();
const byName = ([name, value]) => `${name === "q" ? "words" : (FIELDS.find(([each]) => each === name) || [name, name])[1]}: ${value}`;

// Searches that were saved under a name, and the form that saves the one in the address.
const Saved = ({ query }) => {
  const [state, set] = useState(null);
  const [error, fail] = useState(null);
  const [name, setName] = useState("");
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    get(PATH, end.signal).then((found) => { set(found); fail(null); }, (problem) => { if (!end.signal.aborted) fail(problem); });
    return () => end.abort();
  }, [returns]);
  const write = (body) => post(PATH, body).then((found) => { set(found); fail(null); }, fail);
  const save = (event) => { event.preventDefault(); write({ name, query: filled(query) }); setName(""); };
  if (!state) return html`<${Problem} error=${error} />`;
  return html`<div class="modes" id="saved">${state.searches.length > 0 && html`<span>saved:</span>`}${state.searches.map((each) => {
    const asked = new URLSearchParams(each.query);
    return html`<span key=${each.name}><${Badge} title=${[...asked].map(byName).join("\n")}><a href=${link(["search"], Object.fromEntries(asked))}>${each.name}</a>${state.writable && html` <button type="button" class="x" aria-label=${`delete ${each.name}`} onClick=${() => write({ name: each.name, query: "" })}>×</button>`}<//></span>`;
  })}
    ${state.writable && filled(query) && html`<form class="modes" onSubmit=${save}><label>save this search as <input required maxlength="100" value=${name} onInput=${(e) => setName(e.target.value)} /></label><button>Save</button></form>`}</div>
    <${Problem} error=${error || (state.problem && new Error(state.problem))} />`;
};

// What the server calls by the name of an option or of a part of the address has another name here.
const inPageWords = (error) => {
  const [, name, rest] = /^(?:--)?(\w+): (.*)$/s.exec(error.message) || [];
  const title = name === "text" ? "words" : new Map(FIELDS).get(name);
  return title ? new Error(`${title}: ${rest}`) : error;
};

export const Search = ({ query }) => {
  const box = useRef(null);
  const [state, set] = useState({});
  const asked = useLater(query.toString(), 150);
  const given = Object.fromEntries(query);
  useEffect(() => { box.current.focus(); document.title = "Search"; }, []);
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    let again;
    const ask = () => {
      const begun = performance.now();
      get(`search.json?${asked}`, end.signal).then((data) => {
        set({ answer: { ...data, took: performance.now() - begun } });
        if (data.reading) again = setTimeout(ask, 1000);
      }, (error) => { if (!end.signal.aborted) set({ error }); });
    };
    ask();
    return () => { end.abort(); clearTimeout(again); };
  }, [asked, returns]);
  const field = ([name, title]) => html`<label key=${name}><small>${title}</small><input inputmode=${NUMBERS.includes(name) ? "decimal" : "text"} value=${given[name] || ""} onInput=${(e) => replaceQuery({ [name]: e.target.value })} /></label>`;
  const choice = (name, title, options) => html`<label key=${name}><small>${title}</small><select value=${given[name] || options[0]} onChange=${(e) => replaceQuery({ [name]: e.target.value })}>${options.map((each) => html`<option value=${each}>${each || "any"}</option>`)}</select></label>`;
  return html`<h1 class="hidden">Search</h1><input type="search" class="big" ref=${box} aria-label="words" placeholder=${"whole words of one turn, \"in this order\", /regular expression/"} value=${given.q || ""} onInput=${(e) => replaceQuery({ q: e.target.value })} />
    <div class="fields">${FIELDS.map(field)}${CHOICES.map(([name, options]) => choice(name, name, options))}
      <label><small>broken</small><select value=${given.broken || ""} onChange=${(e) => replaceQuery({ broken: e.target.value })}><option value="">any</option><option value="0">no</option><option value="1">yes</option></select></label>
      ${choice("order", "order", ORDERS)}</div>
    <${Saved} query=${query} /><${Problem} error=${state.error && inPageWords(state.error)} />${state.answer && html`<${Answer} answer=${state.answer} more=${() => replaceQuery({ limit: Math.min(500, Number(given.limit || 50) * 2) })} />`}`;
};
