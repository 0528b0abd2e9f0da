// Parts that several views use. Text of a run only ever becomes a text node.
import { html } from "./html.js";
import { createContext, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { get } from "./api.js";
import { looks, pieces } from "./ansi.js";
import { counted, moment, percent, rewardText, tone } from "./format.js";

// How often the server was gone and answers again: what asks it does so again then.
export const Returns = createContext(0);
export const useReturns = () => useContext(Returns);

// What an address answers: asked again if one of `needs` changes, while what was there stays.
export const useAnswer = (path, needs) => {
  const [state, set] = useState({});
  const returns = useReturns();
  useEffect(() => {
    const end = new AbortController();
    get(path, end.signal).then((data) => set({ data }), (error) => { if (!end.signal.aborted) set((was) => ({ ...was, error })); });
    return () => end.abort();
  }, [...needs, returns]);
  return state;
};

export const Problem = ({ error }) => error && html`<p class="warning" role="alert">${error.message}</p>`;
export const Badge = ({ kind, children, title }) => html`<span class=${`badge ${kind || ""}`} title=${title}>${children}</span>`;
export const Reward = ({ value }) => html`<${Badge} kind=${tone(value)}>${rewardText(value)}<//>`;

export const When = ({ at }) => { const { text, exact } = moment(at); return html`<time datetime=${exact || undefined} title=${exact || undefined}>${text}</time>`; };

// Passes that may be forged: what the agent changed of the check's own tools decided them.
export const Contested = ({ n }) => n > 0 && html` <${Badge} kind="warn" title="without what the agent changed of the check's own tools these have another value">${counted(n, "contested pass", "contested passes")}<//>`;

// A share with its 95% interval.
export const Rate = ({ share, low, high }) => (share === null || share === undefined ? "-" : html`
  <span class="rate" aria-hidden="true" title=${`95% interval ${percent(low)} to ${percent(high)}`}>
    ${low !== null && low !== undefined && html`<span class="between" style=${{ left: `${100 * low}%`, width: `${100 * (high - low)}%` }}></span>`}
    <span class="at" style=${{ left: `${100 * share}%` }}></span></span>${percent(share)}`);

// A text as a terminal shows it.
export const Terminal = ({ text, raw, class: name }) => {
  const parts = useMemo(() => (raw ? [{ text, style: {} }] : pieces(text)), [text, raw]);
  return html`<pre class=${name}>${parts.map((part) => {
    const look = looks(part.style);
    return look.class || Object.keys(look.style).length ? html`<span ...${look}>${part.text}</span>` : part.text;
  })}</pre>`;
};

// A section that is folded; what is in it is made when it is opened.
export const Fold = ({ title, children, open: first = false, class: name }) => {
  const [open, set] = useState(first);
  return html`<details class=${name} open=${open} onToggle=${(event) => set(event.currentTarget.open)}>
    <summary>${title}</summary>${open && children}</details>`;
};

const ROW = 34;

// A list of which only the rows in sight are made.
export const Rows = ({ rows, row, height = 520, size = ROW, label }) => {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => { if (box.current && box.current.scrollTop !== top) setTop(box.current.scrollTop); });
  const first = Math.max(0, Math.floor(top / size) - 8);
  const last = Math.min(rows.length, first + Math.ceil(height / size) + 16);
  return html`<div class="rows" ref=${box} tabindex="0" role="list" aria-label=${label}
      style=${{ maxHeight: `${height}px` }} onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <div style=${{ height: `${rows.length * size}px`, position: "relative" }}>
      ${rows.slice(first, last).map((each, i) => html`<div role="listitem" class="row" key=${first + i}
        style=${{ top: `${(first + i) * size}px`, height: `${size}px` }}>${row(each, first + i)}</div>`)}
    </div></div>`;
};

const looksOf = (column) => [column.num && "num", column.class].filter(Boolean).join(" ");
const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
const empty = (value) => value === null || value === undefined || value === "";

// Rows in the order of a column; those without a value come last in both directions.
export const sorted = (rows, value, down) => rows.map((row) => [value(row), row])
  .sort(([a], [b]) => (empty(a) || empty(b) ? empty(a) - empty(b) : order(a, b) * (down ? -1 : 1))).map(([, row]) => row);

// A table whose heads sort. A column has a name, the cell of a row, and the value to sort by.
export const Table = ({ columns, rows, start, most = 1000, id }) => {
  const [by, setBy] = useState(start || { column: null, down: false });
  const column = columns.find((each) => each.name === by.column);
  const shown = useMemo(() => (column ? sorted(rows, column.value, by.down) : rows), [rows, by.column, by.down]);
  return html`<div class="scroll" tabindex="0"><table id=${id}><thead><tr>${columns.map((each) => html`
    <th scope="col" class=${looksOf(each)} aria-sort=${each.name === by.column ? (by.down ? "descending" : "ascending") : undefined}>
      ${each.value ? html`<button type="button" onClick=${() => setBy({ column: each.name, down: each.name === by.column ? !by.down : Boolean(each.num) })}>${each.name}</button>` : each.name}</th>`)}
    </tr></thead><tbody>${shown.slice(0, most).map((row) => html`<tr key=${row.key || row.id}>${columns.map((each) => html`
      <td class=${looksOf(each)}>${each.cell(row)}</td>`)}</tr>`)}</tbody></table>
    ${shown.length > most && html`<p class="note">The first ${most} of ${shown.length}.</p>`}</div>`;
};

// Waits until nothing was typed for a moment.
export const useLater = (value, milliseconds = 200) => {
  const [late, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value]);
  return late;
};

// A chart of ale-figures: `plotted` and `forget` are its script's.
export const Chart = ({ chart }) => {
  const plot = useRef(null);
  const text = JSON.stringify(chart);
  useLayoutEffect(() => {
    const state = plotted(plot.current, chart);
    return () => forget(state);
  }, [text]);
  const last = chart.series.length === 1 ? chart.series[0].ys.filter((y) => y !== null).at(-1) : undefined;
  const notes = [chart.note, chart.log && "logarithmic"].filter(Boolean).join("; ");
  return html`<figure class=${`chart ${chart.wide ? "wide" : ""}`}><figcaption><b>${chart.title}</b>
    ${last !== undefined && html`<span class="last">${shortNumber(last, chart.share)}</span>`}
    ${notes && html`<small>${notes}</small>`}</figcaption>
    <div class="plot" ref=${plot} tabindex="0" role="img" aria-label=${`${chart.label} Arrow keys show single values.`}></div></figure>`;
};
