// A run over time: episodes in rows, with how each spent its time, and its steps and evaluations as marks.
// Drawn on a canvas that is as large as what is seen of it; the text of a run only ever stands beside it.
import { html } from "./html.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { runPath } from "./api.js";
import { counted, percent, seconds, visible, whole } from "./format.js";
import { link, replaceQuery, toEpisode } from "./route.js";
import { Fold, Problem, Reward, When, useAnswer } from "./bits.js";

const HEAD = 42;
const KINDS = [["model", "the model answers"], ["tools", "tools run in the sandbox"], ["rest", "the agent itself"], ["grading", "graded"], ["before", "the sandbox starts or ends"]];

// When an episode starts is stored in whole milliseconds, cut off: one that ends within so many after another's start has ended before.
const SLACK_MS = 2;

// Each episode in the first row that is free when it starts; they come in the order of their starts, so there are as many rows as
// episodes at a time.
export const packed = (starts, ends) => {
  const until = [];
  return starts.map((start, i) => {
    let row = 0;
    while (row < until.length && until[row] > start + SLACK_MS) row += 1;
    until[row] = ends[i];
    return row;
  });
};

const sum = (numbers, first, by) => { let made = 0; for (let i = first; i < numbers.length; i += by) made += numbers[i]; return made; };

const laidOut = (data) => {
  const { columns } = data;
  const n = columns.start.length;
  const ends = columns.end;
  const row = packed(columns.start, ends);
  const rows = [];
  for (let i = 0; i < n; i += 1) (rows[row[i]] ||= []).push(i);
  const spent = { model: 0, tools: 0, rest: 0, grading: 0, before: 0 };
  for (let i = 0; i < n; i += 1) {
    spent.model += sum(columns.turns[i], 0, 2);
    spent.tools += sum(columns.turns[i], 1, 2);
    spent.rest += columns.rest[i];
    spent.grading += columns.grading[i];
    spent.before += columns.before[i] + columns.after[i];
  }
  const versions = new Set();
  for (const each of columns.versions) for (const version of each) if (version !== null) versions.add(version);
  return { ...data, n, ends, row, rows, spent, versions: [...versions].sort((a, b) => a - b), ms: Math.max(1, data.ms) };
};

// The first episode of a row that ends after a time.
const firstAfter = (made, indices, time) => {
  let low = 0;
  let high = indices.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (made.ends[indices[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
};

const rowHeight = (rows) => Math.max(4, Math.min(18, Math.floor(520 / Math.max(1, rows))));
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].map((each) => 1000 * each)];
const tickOf = (span, width) => STEPS.find((each) => each * Math.max(2, width / 90) >= span) || 86400000 * Math.ceil(span / 86400000 / 8);
const since = (ms) => {
  if (ms > 0 && ms < 1000) return `${ms} ms`;
  const all = Math.round(ms / 1000);
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (ms < 60000) return `${+(ms / 1000).toFixed(1)} s`;
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${String(rest).padStart(2, "0")}` : `${minutes}:${String(rest).padStart(2, "0")} min`;
};

const NAMES = ["card", "ink", "soft", "good", "bad", "warn", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const themeOf = (node) => {
  const style = getComputedStyle(node);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
};

// The colours of a theme as the numbers of an image: each as it is, and pale on the ground.
const numbersOf = (context, theme) => {
  const parts = (css) => {
    context.fillStyle = css;
    const [, ...found] = /^#(..)(..)(..)$/.exec(context.fillStyle);
    return found.map((text) => parseInt(text, 16));
  };
  const ground = parts(theme.card);
  const number = (css, share) => parts(css).reduce((made, value, i) => made + (Math.round(share * value + (1 - share) * ground[i]) << (8 * i)), 255 << 24) >>> 0;
  const all = (share) => [0, 1, 2, 3, 4, 5, 6, 7].map((i) => number(theme[`c${i}`], share));
  return { model: all(1), tools: all(0.4), grading: number(theme.soft, 0.7), thin: number(theme.soft, 0.8), ...Object.fromEntries(["card", "good", "bad", "warn"].map((name) => [name, number(theme[name], 1)])) };
};

const hue = (version) => (version === null || version === undefined ? 0 : Math.abs(version) % 8);

// An episode in the pixels of its row: of the model in its version's colour, of tools in the same but pale, of grading
// in grey, and of all else only in the pixels of the middle. A line of them is copied as often as the row is high.
const paint = (made, i, x, full, middle, paints, caps) => {
  const { columns } = made;
  const turns = columns.turns[i];
  const versions = columns.versions[i];
  let at = columns.start[i];
  let left = Math.round(x(at));
  const piece = (ms, colour, into) => {
    at += ms;
    const right = Math.round(x(at));
    if (right > left) into.fill(colour, Math.max(0, left), Math.max(0, right));
    left = right;
  };
  piece(columns.before[i], paints.thin, middle);
  for (let turn = 0; turn < turns.length; turn += 2) {
    const colour = hue(versions.length > 1 ? versions[turn / 2] : versions[0]);
    piece(turns[turn], paints.model[colour], full);
    piece(turns[turn + 1], paints.tools[colour], full);
  }
  piece(columns.rest[i], paints.model[hue(versions.at(-1))], middle);
  piece(columns.grading[i], paints.grading, full);
  piece(columns.after[i], paints.thin, middle);
  const first = Math.round(x(columns.start[i]));
  if (left === first && left >= 0) full[left] = paints.model[hue(versions[0])];
  if (left - first < caps) return;
  const reward = columns.reward[i];
  full.fill(reward === null ? paints.warn : reward >= 1 ? paints.good : paints.bad, Math.max(0, left - caps / 4), Math.max(0, left));
};

const paintRows = (context, made, view, paints, ratio) => {
  const { from, to, top, size } = view;
  const { width, height } = context.canvas;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer).fill(paints.card);
  const x = (ms) => (width * (ms - from)) / (to - from);
  const last = Math.min(made.rows.length, Math.ceil((top + height / ratio - HEAD) / size));
  for (let row = Math.floor(top / size); row < last; row += 1) {
    const full = new Uint32Array(width).fill(paints.card);
    const middle = new Uint32Array(width);
    const indices = made.rows[row];
    for (let k = firstAfter(made, indices, from); k < indices.length && made.columns.start[indices[k]] <= to; k += 1) paint(made, indices[k], x, full, middle, paints, size >= 8 ? 8 * ratio : Infinity);
    const begin = Math.round(ratio * (HEAD + row * size - top + 1));
    const end = Math.round(ratio * (HEAD + (row + 1) * size - top));
    for (let y = Math.max(0, begin); y < Math.min(height, end); y += 1) pixels.set(full, y * width);
    const line = Math.floor((begin + end) / 2);
    for (let y = line; y < Math.min(height, line + Math.max(1, Math.floor(ratio))); y += 1) for (let k = 0; k < width; k += 1) if (middle[k] && y >= 0) pixels[y * width + k] = middle[k];
  }
  context.putImageData(image, 0, 0);
};

const rateOf = (facts) => (facts.n_graded ? ` ${percent(facts.n_succeeded / facts.n_graded)}` : "");
const markName = ([kind, , facts]) => (kind === "step" ? `step ${facts.step}` : kind === "evaluation" ? `evaluation${rateOf(facts)}` : kind === "end" ? visible(facts.outcome || "end") : "start");
const shortName = ([kind, , facts]) => (kind === "step" ? `${facts.step}` : kind === "evaluation" ? `eval${rateOf(facts)}` : kind === "end" ? "end" : "start");

const drawHead = (context, made, view, x, theme) => {
  const { from, to, width, height } = view;
  context.globalAlpha = 1;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const tick = tickOf(to - from, width);
  context.fillStyle = theme.soft;
  for (let at = Math.ceil(from / tick) * tick; at <= to; at += tick) {
    const text = since(at);
    const wide = context.measureText(text).width;
    context.fillText(text, Math.max(0, Math.min(width - wide, x(at) - wide / 2)), 9);
    context.fillRect(Math.round(x(at)), 17, 1, 4);
  }
  let free = -1;
  for (const mark of made.marks) {
    const [kind, at] = mark;
    if (at < from || at > to) continue;
    const left = Math.round(x(at));
    const colour = kind === "step" ? theme.soft : kind === "evaluation" ? theme.c3 : theme.ink;
    context.globalAlpha = kind === "step" ? 0.4 : 0.8;
    context.fillStyle = colour;
    context.fillRect(left, HEAD - 8, 1, height - HEAD + 8);
    context.globalAlpha = 1;
    context.beginPath();
    if (kind === "evaluation") { context.moveTo(left, HEAD - 12); context.lineTo(left + 4, HEAD - 8); context.lineTo(left, HEAD - 4); context.lineTo(left - 4, HEAD - 8); }
    else { context.moveTo(left - 3, HEAD - 11); context.lineTo(left + 4, HEAD - 11); context.lineTo(left + 0.5, HEAD - 5); }
    context.fill();
    const text = shortName(mark);
    const wide = context.measureText(text).width;
    const start = Math.min(width - wide, Math.max(0, left - wide / 2));
    if (start > free) { context.fillText(text, start, HEAD - 18); free = start + wide + 6; }
  }
};

const draw = (canvas, made, view) => {
  const { from, to, top, width, height, size, selected } = view;
  const theme = themeOf(canvas);
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  paintRows(context, made, view, numbersOf(context, theme), ratio);
  context.scale(ratio, ratio);
  const x = (ms) => (width * (ms - from)) / (to - from);
  if (selected !== null) {
    const [left, right] = [x(made.columns.start[selected]), x(made.ends[selected])];
    context.strokeStyle = theme.ink;
    context.lineWidth = 2;
    context.strokeRect(left - 1, HEAD + made.row[selected] * size - top, Math.max(3, right - left) + 2, size + 1);
  }
  context.fillStyle = theme.card;
  context.fillRect(0, 0, width, HEAD);
  drawHead(context, made, view, x, theme);
};

const at = (made, view, left, y) => {
  const row = Math.floor((y - HEAD + view.top) / view.size);
  const indices = y < HEAD ? undefined : made.rows[row];
  if (!indices) return null;
  const slack = (3 * (view.to - view.from)) / view.width;
  const time = view.from + (left / view.width) * (view.to - view.from);
  const i = indices[firstAfter(made, indices, time - slack)];
  return i !== undefined && made.columns.start[i] <= time + slack ? i : null;
};

// Another episode in a row, or the one of another row that is nearest in time.
const nextOf = (made, i, key) => {
  if (i === null) return made.n ? 0 : null;
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  const row = made.row[i];
  if (step) return made.rows[row][made.rows[row].indexOf(i) + step] ?? i;
  const indices = made.rows[row + { ArrowDown: 1, ArrowUp: -1 }[key]];
  if (!indices) return i;
  return indices[Math.min(indices.length - 1, firstAfter(made, indices, made.columns.start[i]))];
};

const within = (from, to, ms) => {
  const span = Math.max(1, Math.min(ms, to - from));
  const start = Math.max(0, Math.min(ms - span, from));
  return { from: Math.round(start), to: Math.round(start + span) };
};

const versionsOf = (versions) => {
  const found = [...new Set(versions)].filter((version) => version !== null);
  return found.length === 0 ? "" : found.length === 1 ? `policy ${found[0]}` : `policies ${found[0]} to ${found.at(-1)}`;
};

const Said = ({ run, made, i }) => {
  if (i === null || i === undefined || i >= made.n) return html`<p class="said" role="status"><small>Choose an episode: click, or use the arrow keys.</small></p>`;
  const { columns } = made;
  const ms = { model: sum(columns.turns[i], 0, 2), tools: sum(columns.turns[i], 1, 2), graded: columns.grading[i] };
  return html`<p class="said" role="status"><${Reward} value=${columns.reward[i]} /> <a href=${toEpisode(run, { offset: columns.offset[i], id: columns.id[i] })}><b>${columns.id[i]}</b></a>${" "}
    <small>${[columns.evaluation[i] ? "evaluation" : `step ${columns.step[i]}`, versionsOf(columns.versions[i]), `from ${since(columns.start[i])} to ${since(made.ends[i])}`,
    ...Object.entries(ms).map(([name, spent]) => `${name} ${seconds(spent / 1000)}`)].filter(Boolean).join(" \u00b7 ")}</small></p>`;
};

const Key = ({ made }) => {
  const all = Object.values(made.spent).reduce((a, b) => a + b, 0) || 1;
  const [first, last] = [made.versions[0], made.versions.at(-1)];
  return html`<p class="key spans">${KINDS.map(([kind, name]) => html`<span><i class=${`span-${kind}`}></i>${name} ${percent(made.spent[kind] / all)}</span>`)}
    <span><i class="good"></i><i class="bad"></i><i class="warn"></i>succeeded, failed, broken</span></p>
    ${made.versions.length > 0 && html`<p class="key">the policy that sampled: ${made.versions.length > 12 ? `${counted(made.versions.length, "version")}, ${first} to ${last}, in turn` : ""}
      ${made.versions.slice(0, made.versions.length > 12 ? 8 : 12).map((version) => html`<span class=${`c${Math.abs(version) % 8}`}><i></i>${version}</span>`)}</p>`}`;
};

const MOST_MARKS = 1000;
const Marks = ({ made }) => made.marks.length > 0 && html`<${Fold} title=${`Starts, steps and evaluations (${whole(made.marks.length)})`}>
  <div class="scroll short" tabindex="0"><table><thead><tr><th class="num">after</th><th>what</th><th class="num">took</th></tr></thead><tbody>
  ${made.marks.slice(-MOST_MARKS).map((mark) => html`<tr><td class="num">${since(mark[1])}</td><td>${markName(mark)}</td><td class="num">${mark[2].training !== undefined ? `training ${seconds(mark[2].training)}` : mark[2].seconds !== undefined ? seconds(mark[2].seconds) : ""}</td></tr>`)}</tbody></table></div><//>`;

const number = (text) => (/^\d{1,15}$/.test(text || "") ? Number(text) : null);
const asked = (query, ms) => {
  const [from, to] = [number(query.get("from")), number(query.get("to"))];
  return from !== null && to !== null && to > from ? within(from, to, ms) : { from: 0, to: ms };
};

// The size of the box and whether the page is dark: the canvas is drawn again as they change.
const useBox = (box) => {
  const [state, set] = useState({ width: 0, dark: 0 });
  useLayoutEffect(() => {
    const seen = new ResizeObserver(() => set((was) => ({ ...was, width: box.current.clientWidth })));
    seen.observe(box.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => set((was) => ({ ...was, dark: was.dark + 1 }));
    dark.addEventListener("change", changed);
    return () => { seen.disconnect(); dark.removeEventListener("change", changed); };
  }, []);
  return state;
};

// The part of the run that is seen. It goes into the address once it has stayed for a moment.
const useRange = (query, ms) => {
  const text = `${query.get("from") || ""}-${query.get("to") || ""}`;
  const [range, set] = useState(null);
  const written = useRef(text);
  useEffect(() => { if (text !== written.current) { written.current = text; set(null); } }, [text]);
  useEffect(() => {
    if (!range) return undefined;
    const timer = setTimeout(() => {
      const all = range.from === 0 && range.to >= ms;
      const now = { from: all ? "" : `${range.from}`, to: all ? "" : `${range.to}` };
      written.current = `${now.from}-${now.to}`;
      replaceQuery(now);
    }, 150);
    return () => clearTimeout(timer);
  }, [range?.from, range?.to]);
  return [range || asked(query, ms), set];
};

const Episodes = ({ run, made, query }) => {
  const box = useRef(null);
  const canvas = useRef(null);
  const [top, setTop] = useState(0);
  const [over, setOver] = useState(null);
  const drag = useRef(null);
  const { width, dark } = useBox(box);
  const [range, setRange] = useRange(query, made.ms);
  const size = rowHeight(made.rows.length);
  const inner = HEAD + made.rows.length * size;
  const height = Math.min(inner, 620);
  const chosen = number(query.get("e"));
  const selected = useMemo(() => { const i = made.columns.offset.indexOf(chosen); return i < 0 ? null : i; }, [made, chosen]);
  const view = { ...range, top, width, height, size, selected };
  useLayoutEffect(() => { if (width) draw(canvas.current, made, view); }, [made, range.from, range.to, top, width, dark, selected]);
  const select = (i) => { if (i !== null) replaceQuery({ e: made.columns.offset[i] }); };
  const zoom = (factor, middle) => {
    const span = (range.to - range.from) * factor;
    const share = (middle - range.from) / (range.to - range.from);
    setRange(within(middle - share * span, middle + (1 - share) * span, made.ms));
  };
  const pan = (ms) => setRange(within(range.from + ms, range.to + ms, made.ms));
  const shownAt = (i) => {
    const y = made.row[i] * size;
    if (y < top || y + size > top + height - HEAD) box.current.scrollTop = y - (height - HEAD) / 2;
    if (made.ends[i] < range.from || made.columns.start[i] > range.to) pan(made.columns.start[i] - (range.from + range.to) / 2);
  };
  const center = () => (selected === null ? (range.from + range.to) / 2 : made.columns.start[selected]);
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    if (event.shiftKey && (key === "ArrowLeft" || key === "ArrowRight")) pan((key === "ArrowLeft" ? -1 : 1) * (range.to - range.from) / 4);
    else if (key.startsWith("Arrow")) { const i = nextOf(made, selected, key); if (i !== null) { select(i); shownAt(i); } }
    else if (key === "Enter" && selected !== null) location.hash = toEpisode(run, { offset: made.columns.offset[selected], id: made.columns.id[selected] });
    else if (key === "+" || key === "=") zoom(0.5, center());
    else if (key === "-") zoom(2, center());
    else if (key === "0") setRange({ from: 0, to: made.ms });
    else return;
    event.preventDefault();
  };
  const place = (event) => { const seen = canvas.current.getBoundingClientRect(); return [event.clientX - seen.left, event.clientY - seen.top]; };
  const moved = (event) => {
    const [left, y] = place(event);
    if (drag.current && event.buttons) {
      const ms = ((drag.current.left - left) / width) * (range.to - range.from);
      if (Math.abs(drag.current.left - left) > 3 || drag.current.moved) { drag.current = { left, moved: true }; pan(ms); }
    } else setOver(at(made, view, left, y));
  };
  const turned = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, range.from + (place(event)[0] / width) * (range.to - range.from));
  };
  const down = (event) => { drag.current = { left: place(event)[0], moved: false }; };
  const up = (event) => { if (drag.current && !drag.current.moved) select(at(made, view, ...place(event))); drag.current = null; };
  return html`<div class="modes"><button type="button" onClick=${() => zoom(0.5, center())} aria-label="zoom in">+</button><button type="button" onClick=${() => zoom(2, center())} aria-label="zoom out">\u2212</button>
      <button type="button" onClick=${() => setRange({ from: 0, to: made.ms })}>all</button><small>arrow keys choose, Enter opens, + and \u2212 zoom, Shift and arrow keys move; Ctrl and wheel zoom, dragging moves</small></div>
    <div class="timeline" ref=${box} tabindex="0" role="application" aria-label=${`${counted(made.n, "episode")} in ${counted(made.rows.length, "row")} over ${since(made.ms)}`}
      style=${{ height: `${height + 2}px` }} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${pressed}>
      <div style=${{ height: `${inner}px` }}><canvas ref=${canvas} style=${{ width: `${width}px`, height: `${height}px` }} onMouseMove=${moved} onMouseLeave=${() => setOver(null)}
        onMouseDown=${down} onMouseUp=${up} onWheel=${turned}></canvas></div></div>
    <${Said} run=${run} made=${made} i=${over ?? selected} />`;
};

export const Timeline = ({ changes, run, query }) => {
  const { data, error } = useAnswer(runPath(run, "/timeline"), [run, changes[run]]);
  useEffect(() => { document.title = `timeline \u00b7 ${visible(run)}`; }, [run]);
  const made = useMemo(() => data && laidOut(data), [data]);
  if (!made) return html`<${Problem} error=${error} />${!error && html`<p class="empty">Reading the episodes</p>`}`;
  return html`<${Problem} error=${error} /><h1>Timeline of <a href=${link(["run", run])}>${visible(run)}</a></h1>
    <p class="sub">from <${When} at=${made.began} />${" \u00b7 "}${[since(made.ms), made.n < made.episodes ? `the last ${whole(made.n)} of ${counted(made.episodes, "episode")}` : counted(made.n, "episode"),
    `at most ${whole(made.rows.length)} at a time`, made.untimed > 0 && `${counted(made.untimed, "episode")} without a time`].filter(Boolean).join(" \u00b7 ")}</p>
    ${made.n > 0 ? html`<${Episodes} run=${run} made=${made} query=${query} /><${Key} made=${made} />` : html`<p class="empty">No episode has ended yet.</p>`}
    <${Marks} made=${made} /><p class="note">An episode is drawn once it has ended. A row is not a worker: an episode stands in the first row that is free when it begins.</p>`;
};
