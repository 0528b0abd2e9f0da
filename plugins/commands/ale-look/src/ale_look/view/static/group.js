// The attempts at one task side by side, and the first turn in which they part.
import { html } from "./html.js";
import { useEffect, useMemo, useState } from "./preact-htm.js";
import { episodesOf, get, runPath } from "./api.js";
import { counted, percent, plain, signed, visible } from "./format.js";
import { replaceQuery, toEpisode } from "./route.js";
import { Badge, Problem, Reward, useReturns } from "./bits.js";
import { Arguments, Seen, shade } from "./turns.js";
import { Better, answerOf, callsOf, parting } from "./better.js";
import { Marks, Verdicts, byEpisode, marked, useNotes } from "./notes.js";

const MOST = 8;

const Cell = ({ episode, turn }) => {
  if (!turn) return html`<div class="cell none"></div>`;
  const weights = turn.parts.map((piece) => episode.chunks[piece.k].w).filter((weight) => weight !== undefined);
  const most = Math.max(0, ...episode.chunks.map((chunk) => Math.abs(chunk.w || 0)));
  return html`<div class="cell" style=${{ borderLeftColor: weights.length && most ? shade(weights[0], 0.25 + 0.75 * Math.abs(weights[0]) / most, 1) : "" }}>
    ${weights.length > 0 && html`<small>weight ${signed(weights[0])}</small>`}<pre>${answerOf(turn).slice(0, 600)}</pre>
    ${callsOf(turn).map((call) => html`<${Arguments} call=${call} />
      ${call.error ? html`<pre class="wrong">${call.error.slice(0, 300)}</pre>` : html`<${Seen} text=${(call.seen || "").slice(0, 400)} />`}`)}</div>`;
};

// What people say of an attempt, and one's own verdict.
const Said = ({ about, episode, notes, write }) => html`<small><${Marks} notes=${notes} />${about.live && html`<${Verdicts} about=${about} notes=${notes} mark=${(verdict) => write(marked(about, episode, notes, verdict))} />`}</small>`;

const NONE = [];
const Side = ({ about, run, rows, episodes, version }) => {
  const { notes, problem, error, write } = useNotes(run, version);
  const on = useMemo(() => byEpisode(notes), [notes]);
  const parts = parting(episodes);
  const longest = Math.max(0, ...episodes.map((episode) => episode.turns.length));
  const columns = { gridTemplateColumns: `3rem repeat(${episodes.length}, minmax(16rem, 1fr))` };
  return html`<${Problem} error=${error || (problem && new Error(problem))} /><p class="note">${parts === null ? "All of them do the same." : html`They part in <a href=${`#turn-${parts}`} onClick=${(e) => { e.preventDefault(); document.getElementById(`row-${parts}`).scrollIntoView({ block: "center" }); }}>turn ${parts}</a>.`}</p>
    <div class="scroll sides" tabindex="0"><div class="grid head" style=${columns}><span></span>${episodes.map((episode, i) => html`<div><a href=${toEpisode(run, rows[i])}><${Reward} value=${episode.reward} /> ${episode.id}<br /><small>${counted(episode.turns.length, "turn")}, ${episode.stop}</small></a>
      <br /><${Said} about=${about} episode=${episode} notes=${on.get(episode.offset) || NONE} write=${write} /></div>`)}</div>
    ${Array.from({ length: longest }, (_, i) => html`<div class=${`grid ${i === parts ? "parts" : ""}`} id=${`row-${i}`} style=${columns}><span class="num">${i}${i === parts && html`<br /><${Badge} kind="warn">parts<//>`}</span>
      ${episodes.map((episode) => html`<${Cell} episode=${episode} turn=${episode.turns[i]} />`)}</div>`)}</div>`;
};

const Summary = ({ rows, one }) => {
  const graded = rows.filter((row) => row.reward !== null);
  const won = graded.filter((row) => row.reward >= 1).length;
  const mean = graded.reduce((sum, row) => sum + row.reward, 0) / (graded.length || 1);
  return html`<p class="sub">${counted(rows.length, "attempt")}${one && one.held < one.episodes ? " in this file" : ""}: ${graded.length ? `${won} of ${graded.length} succeed (${percent(won / graded.length)}), mean reward ${plain(mean)}` : "none graded"}${rows.length > graded.length ? `, ${rows.length - graded.length} broken` : ""}</p>`;
};

export const Task = ({ about, changes, run, task, query }) => {
  const { one } = about;
  const [rows, setRows] = useState(null);
  const [episodes, setEpisodes] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const end = new AbortController();
    document.title = visible(task);
    episodesOf(run, end.signal).then((found) => { setError(null); setRows(found.filter((row) => row.task_id === task)); }, (problem) => { if (!end.signal.aborted) setError(problem); });
    return () => end.abort();
  }, [run, task, changes[run]]);
  const kinds = useMemo(() => [...new Set((rows || []).map((row) => row.kind))].sort(), [rows]);
  const kind = query.get("kind") || (kinds.includes("train") ? "train" : kinds[0]);
  const ofKind = useMemo(() => (rows || []).filter((row) => row.kind === kind), [rows, kind]);
  const steps = useMemo(() => [...new Set(ofKind.map((row) => row.step))].sort((a, b) => a - b), [ofKind]);
  const step = query.get("step") ? Number(query.get("step")) : steps.at(-1);
  const group = useMemo(() => ofKind.filter((row) => row.step === step).sort((a, b) => a.rollout - b.rollout), [ofKind, step]);
  const shown = group.slice(0, MOST);
  const offsets = shown.map((row) => row.offset).join(",");
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    setEpisodes(null);
    Promise.all(shown.map((row) => get(runPath(run, `/episode/${row.offset}`), end.signal))).then((found) => { setError(null); setEpisodes(found); }, (problem) => { if (!end.signal.aborted) setError(problem); });
    return () => end.abort();
  }, [run, offsets, returns]);
  if (!rows) return html`<${Problem} error=${error} /><p class="empty">Reading the attempts</p>`;
  const choice = (name, value, options) => options.length > 1 && html`<label>${name} <select value=${value} onChange=${(e) => replaceQuery({ [name]: e.target.value })}>${options.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`;
  return html`<${Problem} error=${error} /><h1>${visible(task)}</h1><${Summary} rows=${group} one=${one} />
    <div class="filter">${choice("kind", kind, kinds)}${choice("step", step, steps)}${group.length > MOST && html`<small>the first ${MOST} of ${group.length}</small>`}</div>
    ${!rows.length && html`<p class="empty">No attempt at this task.</p>`}
    ${episodes && episodes.length === shown.length && shown.length > 0 && html`<${Side} about=${about} run=${run} rows=${shown} episodes=${episodes} version=${changes[run] || 0} /><${Better} run=${run} rows=${group} episodes=${episodes} />`}`;
};
