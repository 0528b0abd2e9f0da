"use strict";
// Text that a model or a tool wrote is inserted as text, never as markup.
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Charts.
const COLOURS = 8, DOTS = 25, NOISE = 1e-3;
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const shortNumber = (value, share) => {
  if (value === null || value === undefined) return "-";
  if (share) return `${+(100 * value).toPrecision(3)}%`;
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  for (const [unit, above, by] of [["T", 1e12, 1e12], ["G", 1e9, 1e9], ["M", 1e6, 1e6], ["k", 1e4, 1e3]]) {
    if (size >= above) return `${+(value / by).toPrecision(3)}${unit}`;
  }
  return `${+value.toPrecision(4)}`;
};

// A change that is no more than rounding noise is drawn as a flat line.
const rangeOf = (chart) => (_, low, high) => {
  if (chart.range) return chart.range;
  if (low === null) return [0, 1];
  if (high - low < NOISE * Math.max(Math.abs(low), Math.abs(high)) || high === low) {
    const middle = (low + high) / 2, pad = Math.abs(middle) / 100 || 1;
    return [middle - pad, middle + pad];
  }
  return uPlot.rangeNum(low > 0 && low < 0.6 * high ? 0 : low, high, 0.1, true);
};

const curvesOf = (chart) => {
  const columns = [chart.xs], series = [{ label: chart.x, value: (_, x) => (x === null ? "" : `${+x.toPrecision(6)}`) }], bands = [];
  for (const each of chart.series) {
    const stroke = colourOf(`c${each.colour % COLOURS}`), dash = each.colour >= COLOURS ? [6, 4] : [];
    columns.push(each.ys);
    series.push({
      label: each.name, stroke, dash, width: 1.75, spanGaps: true,
      points: { show: chart.xs.length <= DOTS, size: 5, fill: stroke },
      value: (_, y, __, i) => (i === null ? "" : !each.low || y === null ? shortNumber(y, chart.share)
        : `${shortNumber(y, chart.share)} (${shortNumber(each.low[i], chart.share)} to ${shortNumber(each.high[i], chart.share)})`),
    });
    if (!each.low) continue;
    for (const bound of [each.high, each.low]) {
      columns.push(bound);
      series.push({ class: "bound", spanGaps: true, width: 0, stroke: "transparent", points: { show: false } });
    }
    bands.push({ series: [columns.length - 2, columns.length - 1], fill: `color-mix(in srgb, ${stroke} ${dash.length ? 9 : 17}%, transparent)` });
  }
  return { columns, series, bands };
};

const draw = (plot, chart) => {
  const { columns, series, bands } = curvesOf(chart);
  const axis = { stroke: colourOf("soft"), font: "11px system-ui, sans-serif", grid: { stroke: colourOf("line"), width: 1 }, ticks: { show: false } };
  const powers = (_, ys) => ys.map((y) => (Number.isInteger(Math.log10(y)) ? y : null));
  const whole = [1, 2, 5].flatMap((n) => [...Array(10).keys()].map((power) => n * 10 ** power)).sort((a, b) => a - b);
  const drawn = new uPlot({
    width: plot.clientWidth, height: Number(getComputedStyle(plot).getPropertyValue("--plot-height")) || 180,
    scales: { x: { time: false }, y: chart.log ? { distr: 3 } : { range: rangeOf(chart) } },
    axes: [
      { ...axis, size: 26, gap: 4, incrs: whole, space: 45, values: (_, xs) => xs.map((x) => (x === null ? "" : shortNumber(x))) },
      { ...axis, size: 48, gap: 5, space: 28, ...(chart.log ? { filter: powers, grid: { ...axis.grid, filter: powers } } : {}), values: (_, ys) => ys.map((y) => (y === null ? "" : shortNumber(y, chart.share))) },
    ],
    series, bands, cursor: { y: false, points: { size: 6 } }, legend: { live: true, markers: { fill: (self, i) => series[i].stroke } },
  }, columns, plot);
  plot.querySelector(".u-legend").setAttribute("aria-live", "polite");
  return drawn;
};

const plots = [];
// Draws a chart into an element, and keeps it as wide as that is; `forget` ends this.
const plotted = (plot, chart) => {
  const state = { plot, chart, drawn: draw(plot, chart) };
  plot.addEventListener("keydown", (event) => {
    const at = state.drawn.cursor.idx ?? -1;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: chart.xs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const x = chart.xs[Math.max(0, Math.min(chart.xs.length - 1, to))];
    state.drawn.setCursor({ left: state.drawn.valToPos(x, "x"), top: 1 });
  });
  state.observer = new ResizeObserver(() => {
    if (plot.clientWidth !== state.drawn.width) state.drawn.setSize({ width: plot.clientWidth, height: state.drawn.height });
  });
  state.observer.observe(plot);
  plots.push(state);
  return state;
};
const forget = (state) => {
  state.observer.disconnect();
  state.drawn.destroy();
  plots.splice(plots.indexOf(state), 1);
};
all(".plot").forEach((plot) => plotted(plot, JSON.parse(plot.dataset.chart)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const state of plots) {
    state.drawn.destroy();
    state.drawn = draw(state.plot, state.chart);
  }
});

// Tables: a button in each head sorts by its column, unless the head has data-plain. A cell whose
// data-value is empty has none: its row comes last, in both directions.
const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
for (const table of all("table.sortable")) {
  const body = table.tBodies[0];
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value === "") return null;
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  all("th", table).forEach((head, column) => {
    if ("plain" in head.dataset) return;
    const button = make("button", { type: "button" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
      rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : compare(a, b) * (down ? -1 : 1)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
