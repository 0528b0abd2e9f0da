// What the better attempt at a task did: the calls and files by which the best and the worst one differ from the turn on in which they part.
import { html } from "./html.js";
import { useEffect, useMemo, useState } from "./preact-htm.js";
import { get, runPath } from "./api.js";
import { counted, rewardText } from "./format.js";
import { toEpisode } from "./route.js";
import { Badge, Problem, Reward, useReturns } from "./bits.js";
import { changesIn } from "./diff.js";
import { parsed } from "./turns.js";

export const answerOf = (turn) => turn.parts.map((piece) => (piece.tok ? piece.tok.join("") : piece.text || "")).join("");
export const callsOf = (turn) => turn.parts.flatMap((piece) => piece.calls || []);
const actionOf = (turn) => (turn ? JSON.stringify([answerOf(turn), callsOf(turn).map((call) => [call.name, call.args])]) : "");

// The first turn that is not the same in all of them; null if all are the same.
export const parting = (episodes) => {
  const longest = Math.max(0, ...episodes.map((episode) => episode.turns.length));
  for (let i = 0; i < longest; i += 1) if (new Set(episodes.map((episode) => actionOf(episode.turns[i]))).size > 1) return i;
  return null;
};

// The attempts with the highest and the lowest reward; of several, that with fewer turns. Null if all have the same.
const extremes = (rows) => {
  const graded = rows.filter((row) => row.reward !== null);
  const first = (order) => graded.reduce((found, row) => (order(row, found) < 0 || (order(row, found) === 0 && row.turns < found.turns) ? row : found));
  if (!graded.length) return null;
  const [best, worst] = [first((a, b) => b.reward - a.reward), first((a, b) => a.reward - b.reward)];
  return best.reward > worst.reward ? [best, worst] : null;
};

const keyOf = (call) => JSON.stringify([call.name, call.args]);
const callsFrom = (episode, from) => episode.turns.flatMap((turn, number) => (number < from ? [] : callsOf(turn).map((call) => ({ ...call, turn: number }))));

// Those of the first that are not among the second; one that is made twice there counts twice.
const without = (calls, others) => {
  const left = new Map();
  for (const call of others) left.set(keyOf(call), (left.get(keyOf(call)) || 0) + 1);
  return calls.filter((call) => {
    const n = left.get(keyOf(call)) || 0;
    left.set(keyOf(call), n - 1);
    return n <= 0;
  });
};

const NAMED = /^\+\+\+ (?:b\/)?([^\t\n]+)/gm;
const namesOf = (change) => (change.path ? [change.path] : [...change.text.matchAll(NAMED)].map(([, name]) => name));

// What an attempt changed of each file, and the first turn in which it did.
const filesFrom = (episode, from) => {
  const found = new Map();
  for (const change of changesIn(episode, parsed)) if (change.turn >= from) for (const name of namesOf(change)) {
    const known = found.get(name) || { turn: change.turn, text: "" };
    found.set(name, { ...known, text: `${known.text}\n${change.text}` });
  }
  return found;
};

// Files that only one of them changed, or both in another way.
export const apart = (best, worst, from) => {
  const files = [filesFrom(best, from), filesFrom(worst, from)];
  const calls = [callsFrom(best, from), callsFrom(worst, from)];
  const names = [...new Set(files.flatMap((each) => [...each.keys()]))].sort();
  return {
    calls: [without(calls[0], calls[1]), without(calls[1], calls[0])],
    files: names.filter((name) => files[0].get(name)?.text !== files[1].get(name)?.text).map((name) => ({ name, in: files.map((each) => each.get(name)) })),
  };
};

const MOST = 30;
const LINE = 160;
const line = (call) => (parsed(call.args || "") || [["", call.args || ""]]).map(([, value]) => value).join(" ").slice(0, LINE);
const At = ({ run, row, turn }) => html`<a href=${toEpisode(run, row, { turn })}>turn ${turn}</a>`;

const Calls = ({ run, row, calls }) => html`<div><h3><${Reward} value=${row.reward} /> <a href=${toEpisode(run, row)}>${row.id}</a>: ${counted(calls.length, "call")} that the other did not make</h3>
  <ul class="apart">${calls.slice(0, MOST).map((call) => html`<li><${At} run=${run} row=${row} turn=${call.turn} /> <b>${call.name}</b> <code>${line(call)}</code>${call.error && html` <${Badge} kind="bad">failed<//>`}</li>`)}
  ${calls.length > MOST && html`<li>${calls.length - MOST} more</li>`}</ul></div>`;

const Files = ({ run, rows, files }) => files.length > 0 && html`<table><thead><tr><th>file, as far as tools and printed diffs say</th>${rows.map((row) => html`<th>changed by ${row.id}</th>`)}</tr></thead><tbody>
  ${files.slice(0, MOST).map((file) => html`<tr><td class="long">${file.name}</td>${file.in.map((each, i) => html`<td>${each ? html`<${At} run=${run} row=${rows[i]} turn=${each.turn} />` : "-"}</td>`)}</tr>`)}
  ${files.length > MOST && html`<tr><td>${files.length - MOST} more</td></tr>`}</tbody></table>`;

const Found = ({ run, rows, episodes }) => {
  const [best, worst] = episodes;
  const from = parting(episodes);
  const { calls, files } = useMemo(() => (from === null ? { calls: [[], []], files: [] } : apart(best, worst, from)), [best, worst]);
  return html`<section id="better"><h2>What the better one did</h2>
    ${from === null ? html`<p class="note">The best attempt and the worst do the same.</p>`
    : html`<p class="note">The best attempt (${rewardText(best.reward)}) and the worst (${rewardText(worst.reward)}) part in turn ${from}. From there on:</p>
      <div class="pair">${rows.map((row, i) => html`<${Calls} run=${run} row=${row} calls=${calls[i]} />`)}</div><${Files} run=${run} rows=${rows} files=${files} />`}</section>`;
};

// Of all attempts in a group, of which `episodes` are there already.
export const Better = ({ run, rows, episodes }) => {
  const [state, set] = useState({});
  const pair = useMemo(() => extremes(rows), [rows]);
  const offsets = pair ? pair.map((row) => row.offset).join(",") : "";
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    set({});
    const load = ({ offset }) => episodes.find((each) => each.offset === offset) || get(runPath(run, `/episode/${offset}`), end.signal);
    if (pair) Promise.all(pair.map(load)).then((found) => set({ found, offsets }), (error) => { if (!end.signal.aborted) set({ error }); });
    return () => end.abort();
  }, [run, offsets, episodes, returns]);
  if (!pair || state.offsets !== offsets) return html`<${Problem} error=${state.error} />`;
  return html`<${Found} run=${run} rows=${pair} episodes=${state.found} />`;
};
