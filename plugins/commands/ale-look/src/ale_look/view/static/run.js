// A run: what came out, curves, time, why episodes broke, tasks with their attempts, and all episodes.
import { html } from "./html.js";
import { useEffect, useMemo, useState } from "./preact-htm.js";
import { episodesOf, get, runPath } from "./api.js";
import { counted, passAt, percent, plain, seconds, visible, whole } from "./format.js";
import { link, replaceQuery, toEpisode, toTask } from "./route.js";
import { Badge, Chart, Contested, Fold, Problem, Rate, Reward, Rows, Table, When, useLater } from "./bits.js";
import { State } from "./runs.js";
import { Marks, byEpisode, useNotes } from "./notes.js";
import { Steering } from "./steer.js";

const Progress = ({ progress }) => progress && html`<div class="progress" role="status">
  <span>${whole(progress.done)}${progress.of ? ` of ${whole(progress.of)}` : ""} ${progress.unit}</span>
  ${progress.of && html`<progress max=${progress.of} value=${progress.done}></progress>`}</div>`;

const Head = ({ run }) => html`<header><h1>${run.run_id}</h1>
  <p class="sub"><${State} state=${run.outcome.name} /><${Contested} n=${run.contested} />${run.outcome.time && ` after ${run.outcome.time}`}${run.outcome.started && html` · started <${When} at=${run.outcome.started} />`} · <a href=${link(["run", run.key, "timeline"])}>timeline</a></p>
  <${Progress} progress=${run.progress} />
  ${run.warnings.map((text) => html`<p class="warning" role="alert">${text}</p>`)}
  <p class="picks">${run.parts.map(([part, kind]) => html`<span><small>${part}</small> ${kind}</span>`)}</p>
  <div class="tiles">${run.tiles.map((tile) => html`<div><small>${tile.label}</small><b>${tile.value}</b><small>${tile.note}</small></div>`)}</div></header>`;

const Charts = ({ charts }) => charts && html`<section id="curves"><h2>Over training steps</h2>
  <div class="charts">${[...charts.results, ...charts.learning].map((chart) => html`<${Chart} key=${chart.title} chart=${chart} />`)}</div>
  ${charts.more.length + charts.constants.length > 0 && html`<${Fold} title=${`Lengths, time and bookkeeping (${counted(charts.more.length, "chart")}, ${charts.constants.length} that never change)`}>
    <div class="charts inner">${charts.more.map((chart) => html`<${Chart} key=${chart.title} chart=${chart} />`)}</div>
    ${charts.constants.length > 0 && html`<p class="key same"><b>The same in every step:</b>${charts.constants.map(([name, value]) => html`<span>${name} ${+value.toPrecision(6)}</span>`)}</p>`}<//>`}</section>`;

const Time = ({ stages }) => stages.length > 0 && html`<section id="time"><h2>Time per stage</h2><div class="bar">
  ${stages.map((stage, i) => html`<i class=${`c${i}`} style=${{ width: `${stage.percent}%` }} title=${stage.name}></i>`)}</div>
  <p class="key">${stages.map((stage, i) => html`<span><i class=${`c${i}`}></i>${stage.name} ${stage.time} (${Math.round(stage.percent)}%)</span>`)}</p>
  <p class="note">Summed over all episodes; episodes run concurrently.</p></section>`;

const Causes = ({ run, rows }) => run.causes.length > 0 && html`<section id="broken"><h2>Broken episodes</h2>
  <p class="note">The infrastructure failed; these episodes have no reward and nothing is learned from them.</p>
  <div class="scroll" tabindex="0"><table><thead><tr><th class="num">count</th><th>cause</th><th>first in</th></tr></thead><tbody>
  ${run.causes.map((cause) => { const row = rows.find((each) => each.id === cause.episode_id);
    return html`<tr><td class="num">${whole(cause.n)}</td><td class="long">${cause.message}</td><td>${row ? html`<a href=${toEpisode(run.key, row)}>${cause.episode_id}</a>` : cause.episode_id}</td></tr>`; })}
  ${run.other_causes > 0 && html`<tr><td class="num">${whole(run.other_causes)}</td><td>other reasons</td><td></td></tr>`}</tbody></table></div></section>`;

const PassAt = ({ rows }) => rows.length > 1 && html`<p class="key pass">${rows.map((row) => html`<span><b>pass@${row.k}</b> ${percent(row.mean, 1)}${row.range && html` <small>${percent(row.range[0])} to ${percent(row.range[1])}</small>`}</span>`)}<span>over ${counted(rows[0].tasks, "task")}</span></p>`;

const Spark = ({ values }) => values.length > 1 && html`<span class="spark" aria-hidden="true">${values.map((value) => "▁▂▃▄▅▆▇█"[Math.min(7, Math.floor(8 * value))]).join("")}</span>`;
const Left = ({ shown, of }) => shown < of && html`<p class="note">Showing ${whole(shown)} of ${whole(of)}.</p>`;
const DOTS = 24;
const Dots = ({ run, attempts }) => html`<span class="dots">${attempts.slice(-DOTS).map((row) => html`<a href=${toEpisode(run, row)} class=${`try ${row.reward === null ? "broken" : row.reward >= 1 ? "good" : row.reward > 0 ? "half" : "bad"}`}
  title=${`${row.id}: ${row.reward === null ? "broken" : plain(row.reward)}`}><span class="hidden">${row.reward === null ? "broken" : plain(row.reward)}</span></a>`)}</span>${attempts.length > DOTS && html` <small>last ${DOTS} of ${whole(attempts.length)}</small>`}`;

// A page of a single file may have a part of the episodes.
const isPart = (one) => Boolean(one) && one.held < one.episodes;

const taskColumns = (run, attempts, k, part) => [
  { name: "task", value: (row) => row.id, class: "long", cell: (row) => html`<a href=${toTask(run.key, row.id, row.kind)} title=${row.goal}>${row.id}</a>${row.badge && html` <${Badge}>${row.badge}<//>`}` },
  { name: "success", value: (row) => row.success, cell: (row) => html`<${Rate} share=${row.success} low=${row.low} high=${row.high} />` },
  ...(k > 1 ? [{ name: `pass@${k}`, num: true, value: (row) => passAt(row.n, row.succeeded, k), cell: (row) => percent(passAt(row.n, row.succeeded, k)) }] : []),
  { name: part ? "attempts in this file" : "attempts", cell: (row) => html`<${Dots} run=${run.key} attempts=${attempts.get(`${row.kind}\n${row.id}`) || []} />` },
  ...(run.charts ? [{ name: "over steps", class: "spark", cell: (row) => html`<${Spark} values=${row.over_steps} />` }] : []),
  { name: "graded", num: true, value: (row) => row.n, cell: (row) => whole(row.n) },
  { name: "reward", num: true, value: (row) => row.reward, cell: (row) => plain(row.reward) },
  { name: "turns", num: true, value: (row) => row.turns, cell: (row) => plain(row.turns, 1) },
  { name: "broken", num: true, value: (row) => row.broken, cell: (row) => row.broken },
];

const Tasks = ({ run, rows, part }) => {
  const [text, set] = useState("");
  const attempts = useMemo(() => {
    const found = new Map();
    for (const row of rows) {
      const key = `${row.kind}\n${row.task_id}`;
      if (found.has(key)) found.get(key).push(row); else found.set(key, [row]);
    }
    return found;
  }, [rows, rows.length]);
  const k = Math.max(0, ...run.pass_at.map((each) => each.k));
  const tasks = run.tasks.filter((task) => task.id.toLowerCase().includes(text.toLowerCase())).map((task) => ({ ...task, key: `${task.kind} ${task.id}` }));
  return html`<section id="tasks"><h2>Tasks</h2><${PassAt} rows=${run.pass_at} />
    <div class="filter"><input type="search" aria-label="filter tasks" placeholder="task" value=${text} onInput=${(e) => set(e.target.value)} /></div>
    <${Left} shown=${run.tasks.length} of=${run.n_tasks} /><${Table} columns=${taskColumns(run, attempts, k, part)} rows=${tasks} most=${500} /></section>`;
};

const Starts = ({ rows, of }) => rows.length > 0 && html`<section id="starts"><h2>Success by start</h2><p class="note">Over all steps.</p><${Left} shown=${rows.length} of=${of} /><${Table} rows=${rows.map((row) => ({ ...row, key: `${row.task} ${row.start}` }))} columns=${[
  { name: "task", value: (row) => row.task, cell: (row) => row.task }, { name: "start", value: (row) => row.start, cell: (row) => row.start || "the task's beginning" },
  { name: "success", value: (row) => row.success, cell: (row) => html`<${Rate} share=${row.success} low=${row.low} high=${row.high} />` },
  { name: "graded", num: true, value: (row) => row.n, cell: (row) => whole(row.n) }, { name: "broken", num: true, value: (row) => row.broken, cell: (row) => row.broken }]} /></section>`;

const share = (point) => html`<span title=${`95% interval ${percent(point.range[0])} to ${percent(point.range[1])}`}>${point.succeeded} of ${point.n}</span>`;
const Forks = ({ run: { forks: rows, n_forks: n, n_crucial: crucial, n_harmful: harmful, level } }) => rows.length > 0 && html`<section id="forks"><h2>Crucial forks</h2>
  <p class="note">${whole(crucial)} of ${counted(n, "expert turn")} are crucial: the success rate before them is lower than after them; ${whole(harmful)} are harmful: it is higher. By Fisher's exact test, one-sided, at ${level} over all turns of an expert (Holm). Counts are pooled over training steps, and so over versions of the policy; <code>ale show forks RUN --since STEP</code> leaves early ones out.</p>
  <${Left} shown=${rows.length} of=${n} /><${Table} rows=${rows.map((row) => ({ ...row, key: `${row.task} ${row.expert} ${row.turns}` }))} columns=${[
    { name: "task", value: (row) => row.task, cell: (row) => row.task }, { name: "expert", value: (row) => row.expert, cell: (row) => row.expert },
    { name: "turn", value: (row) => row.turns, cell: (row) => row.turns },
    { name: "success before", num: true, value: (row) => row.before.succeeded / row.before.n, cell: (row) => share(row.before) },
    { name: "success after", num: true, value: (row) => row.after.succeeded / row.after.n, cell: (row) => share(row.after) },
    { name: "p-value", num: true, value: (row) => row.p, cell: (row) => +row.p.toPrecision(2) },
    { name: "fork", value: (row) => row.verdict, cell: (row) => row.verdict && html`<${Badge} kind=${row.verdict === "crucial" ? "warn" : "bad"}>${row.verdict}<//>` },
    { name: "the expert's message", class: "long", cell: (row) => row.message.slice(0, 200) }]} /></section>`;

const OUTCOMES = { success: (row) => row.reward !== null && row.reward >= 1, failure: (row) => row.reward !== null && row.reward < 1, broken: (row) => row.reward === null };

const EpisodeRow = ({ run, row, notes }) => html`<a class="line" href=${toEpisode(run, row)}><span class="r"><${Reward} value=${row.reward} /></span>
  <b>${row.id}</b><small class="num">step ${row.step}</small><small class="num">${counted(row.turns, "turn")}</small><small class="num">${seconds(row.seconds)}</small>
  <small class="why">${notes && html`<${Marks} notes=${notes} />`}${row.kind === "train" ? "" : `${row.kind} `}${row.why}</small></a>`;

const Included = ({ one }) => html`<p class="note">${whole(one.held)} of ${whole(one.episodes)} are in this file: the last success and failure of each task, the rest evenly over the steps, best and worst in turn. <code>ale view RUN</code> shows any other.</p>`;

const NONE = [];
const Episodes = ({ run, rows, query, one, notes: { notes, problem, error } }) => {
  const wanted = useLater((query.get("q") || "").toLowerCase());
  const outcome = query.get("outcome") || "";
  const kind = query.get("kind") || "";
  const kinds = useMemo(() => [...new Set(rows.map((row) => row.kind))].sort(), [rows.length]);
  const noted = query.get("notes") === "1";
  const on = useMemo(() => byEpisode(notes), [notes]);
  const said = (row, word) => (on.get(row.offset) || NONE).some((note) => `${note.label}\n${note.comment}`.toLowerCase().includes(word));
  const shown = useMemo(() => rows.filter((row) => (!outcome || OUTCOMES[outcome](row)) && (!kind || row.kind === kind) && (!noted || on.has(row.offset))
    && (!wanted || said(row, wanted) || row.id.toLowerCase().includes(wanted) || row.task_id.toLowerCase().includes(wanted) || row.why.toLowerCase().includes(wanted))).reverse(), [rows, rows.length, outcome, kind, wanted, noted, on]);
  const choice = (name, value, options) => html`<label>${name} <select value=${value} onChange=${(e) => replaceQuery({ [name]: e.target.value })}><option value="">all</option>${options.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`;
  return html`<section id="episodes"><h2>Episodes</h2>${isPart(one) && html`<${Included} one=${one} />`}<div class="filter">
      <input type="search" aria-label="filter episodes" placeholder="episode, task, reason or note" value=${query.get("q") || ""} onInput=${(e) => replaceQuery({ q: e.target.value })} />
      ${choice("outcome", outcome, Object.keys(OUTCOMES))}${kinds.length > 1 && choice("kind", kind, kinds)}
      ${(noted || on.size > 0) && html`<label><input type="checkbox" checked=${noted} onChange=${() => replaceQuery({ notes: noted ? "" : "1" })} /> with notes</label>`}
      <output>${whole(shown.length)}</output></div><${Problem} error=${error || (problem && new Error(problem))} />
    <${Rows} rows=${shown} label="episodes, newest first" row=${(row) => html`<${EpisodeRow} run=${run} row=${row} notes=${on.get(row.offset)} />`} /></section>`;
};

const About = ({ run }) => html`<section id="about"><h2>About this run</h2><dl class="facts">${run.about.map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl>
  ${run.documents.map(([title, text]) => html`<${Fold} title=${title}><pre>${text}</pre><//>`)}</section>`;

export const Run = ({ about: { one, live }, changes, run: key, query }) => {
  const [state, set] = useState({});
  const version = changes[key] || 0;
  useEffect(() => {
    const end = new AbortController();
    Promise.all([get(runPath(key), end.signal), episodesOf(key, end.signal)]).then(([run, rows]) => set({ run, rows }),
      (error) => { if (!end.signal.aborted) set((was) => ({ ...was, error })); });
    return () => end.abort();
  }, [key, version]);
  const { run, rows, error } = state;
  const notes = useNotes(key, version);
  useEffect(() => { if (run) document.title = visible(run.run_id); }, [run]);
  if (!run) return (error ? html`<${Problem} error=${error} />` : html`<p class="empty">Reading the run</p>`);
  return html`<${Problem} error=${error} /><${Head} run=${run} />${live && html`<${Steering} run=${key} version=${version} />`}<${Charts} charts=${run.charts} /><${Tasks} run=${run} rows=${rows} part=${isPart(one)} />
    <${Episodes} run=${key} rows=${rows} query=${query} one=${one} notes=${notes} /><${Causes} run=${run} rows=${rows} /><${Starts} rows=${run.starts} of=${run.n_starts} /><${Forks} run=${run} />
    <${Time} stages=${run.stages} /><${About} run=${run} />`;
};
