// One episode: its scores with their evidence, and its turns with the credit of any schemes.
import { html } from "./html.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useState } from "./preact-htm.js";
import { episodesOf, get, runPath } from "./api.js";
import { counted, plain, seconds, signed, visible } from "./format.js";
import { link, replaceQuery, toEpisode, toTask } from "./route.js";
import { Badge, Fold, Problem, Reward, When, useAnswer, useReturns } from "./bits.js";
import { Worth } from "./worth.js";
import { Branches } from "./branches.js";
import { Diff, changesIn } from "./diff.js";
import { Marking, NotesOn, marked, useNotes } from "./notes.js";
import { Replay } from "./replay.js";
import { Evidence, LEGENDS, Reason, Turn, beginnings, parsed, scoreText, shade } from "./turns.js";

const most = (weights) => Math.max(0, ...weights.map(Math.abs));
const stored = (episode) => (episode.scheme ? [{ name: episode.scheme, of: episode.chunks.map((chunk) => chunk.w), most: most(episode.chunks.map((chunk) => chunk.w || 0)) }] : []);

// What was asked for of the schemes in an answer; a copy has those that were computed when it was made.
const asked = (found, names) => {
  const by = new Map(found.map((each) => [each.scheme, each]));
  const lacking = names.filter((name) => !by.has(name));
  const columns = names.filter((name) => by.get(name)?.weights).map((name) => by.get(name)).map((each) => ({ name: each.scheme, of: each.weights, most: most(each.weights), skipped: each.skipped }));
  return { columns, refused: found.filter((each) => each.refused), error: lacking.length ? new Error(`no credit under ${lacking.join(", ")} in this copy`) : undefined };
};

// The credit of other schemes, computed again by the server, or when the copy was made.
const useSchemes = (run, offset, names, live) => {
  const [state, set] = useState({ columns: [] });
  const text = names.join("\n");
  const returns = useReturns();
  useEffect(() => {
    if (!text) { set({ columns: [] }); return undefined; }
    const end = new AbortController();
    const query = live ? `?${names.map((name) => `scheme=${encodeURIComponent(name)}`).join("&")}` : "";
    get(runPath(run, `/credit/${offset}`) + query, end.signal).then((found) => set(asked(found, names)),
      (error) => { if (!end.signal.aborted) set({ columns: [], error }); });
    return () => end.abort();
  }, [run, offset, text, returns]);
  return state;
};

// What a criterion saw; a failure's is never folded.
const Detail = ({ score: [, passed, , , text] }) => (passed ? html`<${Reason} text=${text} />` : text && html`<${Evidence} text=${text} />`);

const Score = ({ score, evidence }) => html`<li><${Badge} kind=${score[1] ? "good" : "bad"}>${score[1] ? "passed" : "failed"}<//>
  <span>${scoreText(score)}${evidence?.answer && html` <small>answer ${evidence.answer}</small>`}</span>
  ${evidence?.contested !== null && evidence?.contested !== undefined && html`<${Badge} kind="warn">contested: ${plain(evidence.contested)} without what the agent changed<//>`}
  ${evidence?.timed_out && html`<${Badge} kind="warn">ran out of time<//>`}<${Detail} score=${score} /></li>`;

const Failure = ({ failure: [stage, kind, text, traceback] }) => html`<div class="fail"><p>broke in ${stage}: ${kind}</p><pre>${text}</pre>${traceback && html`<${Fold} title="traceback"><pre>${traceback}</pre><//>`}</div>`;

// A bar per chunk: the credit of the whole episode at a glance.
const Strip = ({ column, firsts, jump }) => html`<div class="strip" role="list" aria-label=${column.scorer ? `scores of ${column.name}` : `credit under ${column.name}`}>${column.of.map((weight, k) => html`<button type="button" role="listitem" key=${k}
  title=${`chunk ${k}: ${column.name} ${weight === undefined || weight === null ? "-" : weight.toFixed(4)}`} onClick=${() => jump(Number(firsts.get(k)?.split(".")[0] || 0))}
  style=${{ backgroundColor: weight && column.most ? shade(weight, 0.15 + 0.85 * Math.abs(weight) / column.most, 0.9) : "" }}><span class="hidden">chunk ${k}</span></button>`)}</div>`;

const Schemes = ({ about, names, error, columns, refused = [] }) => {
  const [text, set] = useState("");
  const change = (now) => replaceQuery({ schemes: now.join(" ") });
  const add = (event) => { event.preventDefault(); if (text.trim()) change([...names, text.trim().replace(/\s+/g, "")]); set(""); };
  return html`<form class="modes" onSubmit=${add}><label>compare credit <input list="schemes" placeholder=${about.live ? "ipa:gamma=0.9" : about.schemes[0]} value=${text} onInput=${(e) => set(e.target.value)} /></label>
    <datalist id="schemes">${about.schemes.map((name) => html`<option value=${name}></option>`)}</datalist><button>Add</button>
    ${names.map((name) => html`<${Badge}>${name} <button type="button" class="x" aria-label=${`remove ${name}`} onClick=${() => change(names.filter((each) => each !== name))}>×</button><//>`)}
    ${columns.filter((each) => each.skipped).map((each) => html`<small>${each.name}: ${each.skipped}</small>`)}
    ${refused.map((each) => html`<small class="wrong">${each.scheme}: ${each.refused}</small>`)}${error && html`<pre class="wrong">${error.message}</pre>`}</form>`;
};

const ofToken = (values, i, text, colour) => (Number.isFinite(values?.[i]) ? html`<td class="num" style=${{ backgroundColor: colour ? colour(values[i]) : "" }}>${text(values[i])}</td>` : html`<td class="num">-</td>`);

// A token, coloured as its text would be; the trainer's ratio and entropy where they were stored.
const ids = (turn) => turn.ids.map((id, i) => html`<tr><td class="num">${i}</td>${turn.texts && html`<td class="piece"><span>${turn.texts[i].replaceAll("\n", "\u21b5")}</span></td>`}<td class="num">${id}</td>
  ${ofToken(turn.logprobs, i, (value) => Math.exp(value).toPrecision(4), (value) => shade(-1, -value / 5, 0.55))}${ofToken(turn.logprobs, i, (value) => plain(value, 4))}
  ${ofToken(turn.ratios, i, (value) => Math.exp(value).toPrecision(4), (value) => shade(value, Math.abs(value), 0.6))}${ofToken(turn.entropies, i, (value) => plain(value, 4), (value) => shade(-1, value / 3, 0.55))}<td class="num">${turn.versions[i] ?? "-"}</td></tr>`);
const Tokens = ({ run, offset }) => {
  const { data: turns, error } = useAnswer(runPath(run, `/tokens/${offset}`), [run, offset]);
  if (!turns) return html`<${Problem} error=${error} />`;
  return turns.map((turn, i) => html`<h4>turn ${i}${turn ? `: ${counted(turn.prompt, "token")} of the prompt` : ": no tokens"}</h4>${turn && html`<div class="scroll short"><table><thead><tr>${["", ...(turn.texts ? ["text"] : []), "id", "probability", "log-probability", "ratio", "entropy", "policy"].map((name) => html`<th class=${name === "text" ? "" : "num"}>${name}</th>`)}</tr></thead><tbody>${ids(turn)}</tbody></table></div>
    ${!turn.texts && html`<p class="note">Which text each token is was not recorded: the server of the model did not say the bytes of its tokens, or made another text of them.</p>`}
    ${turn.texts?.includes("") && html`<p class="note">Tokens without a text are of the reasoning, of a call, or the first of several for one character: only where each begins in the answer's own text is recorded.</p>`}
    ${turn.left_out > 0 && html`<p class="note">${counted(turn.left_out, "more token")}</p>`}`}`);
};

const Valued = ({ run, episode }) => {
  const [found, set] = useState(null);
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    set(null);
    if (episode.valued) get(runPath(run, `/worth/${episode.offset}`), end.signal).then(set, () => {});
    return () => end.abort();
  }, [run, episode.offset, returns]);
  return found && found.values ? html`<${Worth} found=${found} />` : null;
};

const modesOf = (episode) => {
  const pieces = episode.turns.flatMap((turn) => turn.parts);
  const found = ["plain"];
  if (!pieces.some((piece) => piece.tok)) return found;
  found.push("probability");
  if (pieces.some((piece) => piece.lr)) found.push("ratio");
  if (episode.turns.some((turn) => turn.versions)) found.push("version");
  if (episode.scheme) found.push("credit");
  return found;
};

const Changes = ({ episode, jump }) => {
  const found = useMemo(() => changesIn(episode, parsed), [episode]);
  return found.length > 0 && html`<${Fold} class="message changes" title=${`${counted(found.length, "change")} to files, as far as tools and printed diffs say`}>${found.map((each) => html`<p><button type="button" onClick=${() => jump(each.turn)}>turn ${each.turn}</button> ${each.name}${each.printed ? " printed" : ""} <b>${each.path}</b></p><${Diff} text=${each.text} />`)}<//>`;
};

// What left the sandbox; the names are what a program in it asked for.
const Egress = ({ egress: { said, rows } }) => (rows.length ? html`<${Fold} class="message egress" title=${`egress: ${said}`}><div class="scroll" tabindex="0"><table><thead><tr>${[["host"], ["address"], [""], ["connections", "num"], ["sent", "num"], ["received", "num"], ["why"]].map(([name, kind]) => html`<th class=${kind}>${name}</th>`)}</tr></thead><tbody>
  ${rows.map((row) => html`<tr><td class="long">${visible(row.host) || "(no name)"}:${row.port}</td><td>${row.address}</td><td>${row.outcome}</td><td class="num">${row.connections}</td><td class="num">${row.sent.toLocaleString()} B</td><td class="num">${row.received.toLocaleString()} B</td><td class="long">${visible(row.why)}</td></tr>`)}</tbody></table></div><//>` : html`<p class="sub small">egress: ${said}</p>`);

// What the colours of chunks mean, and how the episode was cut.
const Cut = ({ episode, columns: [first] }) => html`<div class="modes"><span>${episode.scheme ? `chunker ${episode.chunker}, credit ${episode.scheme}` : "not credited: a chunk per turn"}</span>
  ${first && first.most > 0 && html`<span class="scale">weight ${signed(-first.most)}<i></i>${signed(first.most)}</span>`}</div>`;

const Modes = ({ modes, mode, raw, folded, set, setRaw, fold }) => html`<div class="modes">${modes.length > 1 && html`<span>colour tokens by</span>${modes.map((name) => html`<button type="button" aria-pressed=${name === mode} onClick=${() => set(name)}>${name}</button>`)}<small>${LEGENDS[mode]}</small>`}
  <label><input type="checkbox" checked=${folded} onChange=${fold} /> fold tool calls</label>
  <label><input type="checkbox" checked=${raw} onChange=${(e) => setRaw(e.target.checked)} /> control characters as they are</label></div>`;

// The failed criteria first.
const inOrder = (episode) => episode.scores.map((score, i) => ({ score, evidence: episode.evidence[i] })).sort((a, b) => a.score[1] - b.score[1]);

const factsOf = (episode) => [`step ${episode.step}`, episode.learned_in !== null && episode.learned_in !== episode.step && `learned in step ${episode.learned_in}`,
  `attempt ${episode.rollout}`, `ended: ${episode.stop}${episode.detail ? ` (${episode.detail})` : ""}`, ...episode.models];
const spentOf = (episode) => [...Object.entries(episode.seconds).map(([stage, spent]) => `${stage} ${seconds(spent)}`),
  episode.sandbox && `sandbox ${episode.sandbox}`, episode.start && `start ${episode.start}`];
const joined = (facts) => facts.filter(Boolean).join(" \u00b7 ");

const Head = ({ run, episode, beside }) => html`<header class="episode-head"><h1><${Reward} value=${episode.reward} /> ${episode.id}<span class="spacer"></span>
    <span class="beside">${beside.previous && html`<a rel="prev" href=${toEpisode(run, beside.previous)}>previous</a>`}${beside.next && html`<a rel="next" href=${toEpisode(run, beside.next)}>next</a>`}</span></h1>
  <p class="sub">${episode.kind} · <a href=${toTask(run, episode.task, undefined, episode.step)}>${episode.task}</a> · ${joined(factsOf(episode))}</p>
  <p class="sub small">${joined(spentOf(episode))}${episode.started && html` · <${When} at=${episode.started} />`}</p>
  ${episode.problems.map((text) => html`<p class="warning">${text}</p>`)}
  ${episode.damaged && html`<p class="warning">The agent damaged its sandbox: ${episode.damaged}</p>`}
  ${episode.failures.map((failure) => html`<${Failure} failure=${failure} />`)}
  <ul class="scores">${inOrder(episode).map((each) => html`<${Score} ...${each} />`)}</ul>
  ${episode.skipped && html`<p class="note">Not trained on: ${episode.skipped}</p>`}
  ${episode.goal && html`<${Fold} class="message" title="task"><pre>${episode.goal}</pre><//>`}</header>`;

// The episodes before and after this one in the list, once it is there.
const useBeside = (run, offset) => {
  const [rows, set] = useState([]);
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    episodesOf(run, end.signal).then((found) => set([...found]), () => {});
    return () => end.abort();
  }, [run, returns]);
  const at = rows.findIndex((row) => row.offset === offset);
  return { previous: at > 0 ? rows[at - 1] : null, next: at >= 0 ? rows[at + 1] : null };
};

const useKeys = (turn, turns, jump, fold, run, beside, notebook) => useLayoutEffect(() => {
  const pressed = (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { j: turn + 1, k: turn - 1 }[event.key];
    if (to !== undefined) jump(Math.max(0, Math.min(turns - 1, to)));
    if (event.key === "f") fold();
    const other = { n: beside.next, p: beside.previous }[event.key];
    if (other) location.hash = toEpisode(run, other);
    const noted = { g: () => notebook.mark("good"), b: () => notebook.mark("bad"), c: () => notebook.begin(turn), e: () => notebook.begin(null) }[event.key];
    if (noted && notebook.live) { event.preventDefault(); noted(); }
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}, [turn, turns, fold, beside.next, beside.previous, notebook]);

// The notes on an episode; which one is being written; and what writes them.
const useNotebook = (about, run, version, episode) => {
  const { notes: all, problem, error, write } = useNotes(run, version);
  const [writing, set] = useState(null);
  const notes = useMemo(() => (episode ? all.filter((note) => note.offset === episode.offset) : []), [all, episode?.offset]);
  const labels = useMemo(() => [...new Set(all.map((note) => note.label).filter(Boolean))].sort(), [all]);
  const mark = (verdict) => write(marked(about, episode, notes, verdict));
  const begin = (turn) => { if (episode && (turn === null || episode.turns.length)) set({ offset: episode.offset, episode: episode.id, turn }); };
  // Not once it has been painted: a key may come first.
  useLayoutEffect(() => set(null), [run, episode?.offset]);
  return { live: about.live && Boolean(episode), notes, labels, writing, set, write, mark, begin, error: error || (problem && new Error(problem)) };
};

const LONG = /\[\.\.\. [\d,]+ characters left out \.\.\.\]/;
const isClipped = (text) => LONG.test(text);

export const Episode = ({ about, changes, run, offset, id, query }) => {
  const [state, set] = useState({});
  const [whole, setWhole] = useState(false);
  const [tokens, setTokens] = useState(false);
  const [raw, setRaw] = useState(false);
  const [turn, setTurn] = useState(Number(query.get("turn") || 0));
  const names = (query.get("schemes") || "").split(" ").filter(Boolean);
  const returns = useReturns();
  // Credit comes once the step is complete; nothing else about an episode changes with its run.
  const lacking = state.episode && !state.episode.scheme && state.episode.learned_in !== null ? changes[run] || 0 : 0;
  useEffect(() => {
    const end = new AbortController();
    get(runPath(run, `/episode/${offset}`) + (whole ? "?whole=1" : ""), end.signal).then((episode) => set({ episode, long: isClipped(JSON.stringify(episode.turns)) }),
      (error) => { if (!end.signal.aborted) set((was) => ({ ...was, error })); });
    return () => end.abort();
  }, [run, offset, whole, returns, lacking]);
  const { episode, error, long } = state;
  const beside = useBeside(run, offset);
  const jump = useCallback((number) => {
    setTurn(number);
    document.getElementById(`turn-${number}`)?.scrollIntoView({ block: "start" });
  }, []);
  const folded = query.get("calls") === "folded";
  const fold = () => replaceQuery({ calls: folded ? "" : "folded" });
  const notebook = useNotebook(about, run, changes[run] || 0, episode);
  useKeys(turn, episode ? episode.turns.length : 0, jump, fold, run, beside, notebook);
  useLayoutEffect(() => {
    if (!episode) return;
    document.title = visible(episode.id);
    if (query.get("turn")) jump(Number(query.get("turn"))); else { setTurn(0); scrollTo(0, 0); }
  }, [episode?.id, query.get("turn")]);
  const firsts = useMemo(() => episode && beginnings(episode), [episode]);
  const credited = Boolean(episode && episode.offset === offset && episode.scheme && about.schemes.length);
  const other = useSchemes(run, offset, about.live || credited ? names : [], about.live);
  const modes = useMemo(() => (episode ? modesOf(episode) : ["plain"]), [episode]);
  const mode = modes.includes(query.get("colour")) ? query.get("colour") : "plain";
  if (!episode || episode.offset !== offset) return html`<${Problem} error=${error} />${!error && html`<p class="empty">Reading the episode</p>`}`;
  const columns = [...stored(episode), ...other.columns];
  const scorers = episode.judged.map(([name, scores]) => ({ name, of: scores.map(([value]) => value), most: 1, scorer: true }));
  const view = { mode, raw, folded, columns };
  return html`${id && episode.id !== id && html`<p class="warning" role="alert">The address names ${id}; the run has another episode there now. <a href=${link(["run", run], { q: id })}>Look for it</a></p>`}
    <${Head} run=${run} episode=${episode} beside=${beside} />
    <${NotesOn} about=${about} turn=${null} ...${notebook} />
    <${Branches} branches=${episode.branches} turn=${turn} jump=${jump} />
    <${Egress} egress=${episode.egress} />
    <${Changes} episode=${episode} jump=${jump} />
    <${Replay} episode=${episode} raw=${raw} query=${query} jump=${jump} />
    <${Valued} run=${run} episode=${episode} />
    <div class="tools"><div class="strips">${[...columns, ...scorers].map((column) => html`<div><small title=${column.name}>${column.name}</small><${Strip} column=${column} firsts=${firsts} jump=${jump} /></div>`)}</div>
      <div class="rowed"><${Cut} episode=${episode} columns=${columns} />
        ${about.live ? html`<${Marking} about=${about} turn=${turn} ...${notebook} />` : notebook.error && html`<${Problem} error=${notebook.error} />`}</div>
      <${Modes} modes=${modes} mode=${mode} raw=${raw} folded=${folded} set=${(name) => replaceQuery({ colour: name })} setRaw=${setRaw} fold=${fold} />
      ${credited && html`<${Schemes} about=${about} names=${names} error=${other.error} columns=${columns} refused=${other.refused} />`}
      ${about.live && long && !whole && html`<p class="note">Long texts lack their middle. <button type="button" onClick=${() => setWhole(true)}>Show all of them</button></p>`}</div>
    ${episode.turns.map((each, number) => html`<${Turn} key=${`${offset}.${number}`} episode=${episode} turn=${each} number=${number} firsts=${firsts} view=${view} current=${number === turn} notes=${html`<${NotesOn} about=${about} turn=${number} ...${notebook} />`} />`)}
    ${!episode.turns.length && html`<p class="empty">No turns.</p>`}
    ${!about.one && episode.turns.some((each) => each.tokens) && html`<p><button type="button" onClick=${() => setTokens(!tokens)}>${tokens ? "Hide" : "Show"} tokens as they were sampled</button></p>${tokens && html`<${Tokens} run=${run} offset=${offset} />`}`}`;
};
