// Comes after the shared script of ale-figures, whose `make` and `all` it uses.
// From ten digits before the point on in powers of ten, as `ale.text.number`.
const plain = (value, digits) => (Math.abs(value) < 1e9 ? value.toFixed(digits) : `${+value.toPrecision(4)}`);
const signed = (value) => (value === null ? "-" : (value >= 0 ? "+" : "\u2212") + plain(Math.abs(value), 3));

// Filters.
const byId = (id) => document.getElementById(id);
all(".filter").forEach((form) => {
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
});
byId("find-task").addEventListener("input", () => {
  const wanted = byId("find-task").value.toLowerCase();
  all("#tasks tbody tr").forEach((row) => { row.hidden = !row.dataset.task.toLowerCase().includes(wanted); });
});
const episodes = all(".episode");
const filter = () => {
  const wanted = byId("find").value.toLowerCase();
  const outcome = byId("outcome") ? byId("outcome").value : "";
  const kind = byId("kind") ? byId("kind").value : "";
  let shown = 0;
  for (const node of episodes) {
    const text = `${node.querySelector("b").textContent} ${node.dataset.task}`.toLowerCase();
    const fits = text.includes(wanted) && (!outcome || node.dataset.outcome === outcome) && (!kind || node.dataset.kind === kind);
    node.hidden = !fits;
    shown += fits;
  }
  byId("count").textContent = `${shown} shown`;
};
["find", "outcome", "kind"].map(byId).forEach((field) => field && field.addEventListener("input", filter));
filter();
all("a.pick").forEach((link) => link.addEventListener("click", () => {
  byId("find").value = link.textContent;
  filter();
}));

// Episodes: built when they are opened.
const shade = (sign, strength, most) =>
  `rgb(var(--${sign >= 0 ? "plus" : "minus"}) / ${(most * Math.min(1, strength)).toFixed(3)})`;
const folded = (title, text) => make("details", {}, make("summary", {}, title), make("pre", {}, text));

const token = (text, logp, logRatio) => {
  const parts = [logp === null || logp === undefined ? null : `probability ${Math.exp(logp).toPrecision(3)}`,
    logRatio === undefined || logRatio === null ? null : `ratio ${Math.exp(logRatio).toPrecision(4)}`];
  const node = make("span", { title: parts.filter(Boolean).join(", ") }, text);
  node.paint = (mode) => {
    node.style.background = mode === "probability" && Number.isFinite(logp) ? shade(-1, -logp / 5, 0.55)
      : mode === "ratio" && Number.isFinite(logRatio) ? shade(logRatio, Math.abs(logRatio), 0.6) : "";
  };
  return node;
};

const call = (each) => make("div", { class: "call" },
  make("pre", {}, `${each.name} ${each.args === undefined ? "(read from the text)" : each.args}`),
  make("pre", {}, each.seen === undefined ? "(no observation)" : each.seen),
  each.error ? make("pre", { class: "wrong" }, each.error) : null);

const fork = ([turns, wonBefore, before, wonAfter, after, pValue, crucial]) => make("span",
  { title: `turn ${turns} of the expert, p-value ${pValue}` },
  `success before ${wonBefore} of ${before}, after ${wonAfter} of ${after} `,
  crucial ? make("span", { class: "badge warn" }, "crucial fork") : null);

const part = (episode, piece, again, most) => {
  const chunk = episode.chunks[piece.k];
  const facts = [`chunk ${piece.k}`, chunk.kind];
  if (chunk.r !== undefined) facts.push(`reward ${signed(chunk.r)}`, `return ${signed(chunk.g)}`);
  if (chunk.n) facts.push(`${chunk.n} tokens`);
  if (chunk.p !== undefined && chunk.p !== null) facts.push(`mean probability ${Math.exp(chunk.p).toFixed(3)}`);
  if (chunk.rho !== undefined) facts.push(`ratio ${chunk.rho}`);
  const header = make("header", {}, ...(again ? [make("span", { class: "joined" }, `chunk ${piece.k}, continued`)]
    : facts.map((fact) => make("span", {}, fact))));
  if (!again) header.append(...(chunk.forks || []).map(fork));
  const crucial = (chunk.forks || []).some((each) => each[6]);
  const node = make("div", { class: crucial ? "chunk crucial" : "chunk" }, header);
  if (chunk.w !== undefined) {
    const strength = Math.abs(chunk.w) / (most || 1);
    node.style.borderLeftColor = chunk.w ? shade(chunk.w, 0.25 + 0.75 * strength, 1) : "";
    if (!again) header.prepend(make("b", { style: { background: chunk.w ? shade(chunk.w, strength, 0.45) : "" } }, `weight ${signed(chunk.w)}`));
  }
  if (piece.tok) {
    const tokens = piece.tok.map((text, i) => token(text, piece.lp[i], piece.lr ? piece.lr[i] : undefined));
    node.append(make("pre", {}, ...tokens));
  } else if (piece.text) node.append(make("pre", {}, piece.text));
  node.append(...(piece.calls || []).map(call));
  return node;
};

const turnOf = (episode, turn, number, seen, most) => {
  const facts = [`turn ${number}`];
  if (turn.tokens) facts.push(`${turn.tokens} tokens`);
  if (turn.versions) facts.push(`policy ${turn.versions.join(", ")}`);
  if (turn.forced) facts.push("forced, not sampled");
  if (turn.finish) facts.push(`ended by ${turn.finish}`);
  return make("section", { class: "turn" },
    turn.fresh && number ? make("p", { class: "note" }, "A new conversation starts here.") : null,
    turn.replaced || turn.dropped ? make("p", { class: "note" }, `${turn.dropped || 0} earlier messages were given otherwise.`) : null,
    ...(turn.replaced || []).map(([role, text]) => folded(`${role}, in their place`, text)),
    ...turn.prompt.map(([role, text]) => folded(`${role} (${text.length.toLocaleString("en")} characters)`, text)),
    make("h4", {}, facts.join(" \u00b7 ")),
    turn.reasoning ? folded("reasoning", turn.reasoning) : null,
    ...turn.parts.map((piece) => {
      const again = seen.has(piece.k);
      seen.add(piece.k);
      return part(episode, piece, again, most);
    }));
};

const modes = (episode, body) => {
  const pieces = episode.turns.flatMap((turn) => turn.parts);
  const kinds = ["plain"];
  if (pieces.some((piece) => piece.lp)) kinds.push("probability");
  if (pieces.some((piece) => piece.lr)) kinds.push("ratio");
  if (kinds.length === 1) return;
  const legends = { plain: "", probability: "the less probable a token, the darker", ratio: "the trainer's policy over the sampler: blue above 1, orange below" };
  const legend = make("span");
  const buttons = kinds.map((kind) => make("button", { type: "button" }, kind));
  const paint = (kind) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", kinds[i] === kind));
    legend.textContent = legends[kind];
    all("pre > span", body).forEach((node) => node.paint && node.paint(kind));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => paint(kinds[i])));
  body.querySelector(".modes").append(make("span", {}, "colour tokens by:"), ...buttons, legend);
  paint(kinds[kinds.length - 1]);
};

// V of the states between chunks as a line, and below it the weight of each chunk under each scheme.
const LEFT = 150, WIDE = 720, LINE = 90, ROW = 26;
const drawing = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const said = (text) => drawing("title", {}, text);

const worth = (episode) => {
  if (!episode.values) return null;
  const { values, trials, bars } = episode;
  const step = (WIDE - LEFT - 20) / (values.length - 1);
  const x = (k) => LEFT + k * step, y = (v) => 14 + LINE * (1 - v);
  const label = (text, at) => drawing("text", { x: 0, y: at }, text);
  const rule = (a, b, c, d) => drawing("line", { class: "rule", x1: a, y1: b, x2: c, y2: d });
  const top = LINE + 40, height = top + bars.length * ROW;
  const parts = [label("V, by rollouts", 14 + LINE / 2), ...[0, 0.5, 1].flatMap((v) => [rule(LEFT, y(v), WIDE - 20, y(v)),
    drawing("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, `${v}`)])];
  parts.push(drawing("polyline", { class: "value", points: values.map((v, k) => `${x(k)},${y(v)}`).join(" ") }));
  values.forEach((v, k) => parts.push(rule(x(k), 14, x(k), height), drawing("circle", { class: "value", cx: x(k), cy: y(v), r: 4 },
    said(k < values.length - 1 || trials[k] > 1 ? `before chunk ${k}: V ${plain(v, 2)}, of ${trials[k]} rollouts` : `the outcome: ${plain(v, 2)}`))));
  bars[0][1].forEach((_, k) => parts.push(drawing("text", { x: x(k + 0.5), y: top - 8, "text-anchor": "middle" }, `chunk ${k}`)));
  bars.forEach(([name, weights], row) => {
    const middle = top + row * ROW + ROW / 2, most = Math.max(...weights.map(Math.abs)) || 1;
    parts.push(label(name, middle + 4), rule(LEFT, middle, WIDE - 20, middle));
    weights.forEach((weight, k) => {
      const size = (ROW / 2 - 2) * Math.abs(weight) / most, up = weight >= 0;
      parts.push(drawing("rect", { class: up ? "plus" : "minus", x: x(k + 0.5) - Math.min(14, step / 3), width: 2 * Math.min(14, step / 3),
        y: up ? middle - size : middle, height: size }, said(`${name}, chunk ${k}: ${signed(weight)}`)));
    });
  });
  const picture = drawing("svg", { class: "worth", viewBox: `0 0 ${WIDE} ${height}`, role: "img",
    "aria-label": "value of the states of this episode, and the credit of its chunks by scheme" }, ...parts);
  return make("figure", {}, picture, make("figcaption", {}, "Line: V, the success rate of rollouts from each state. "
    + "Bars: what each chunk was worth (V after it minus V before it), and its weight under each credit scheme; "
    + "each row has its own scale, blue above 0 and orange below."));
};

const build = (episode) => {
  const weights = episode.chunks.map((chunk) => Math.abs(chunk.w || 0));
  const most = Math.max(0, ...weights);
  const seconds = Object.entries(episode.seconds).map(([stage, spent]) => `${stage} ${spent.toFixed(2)} s`);
  const facts = [`agent ended: ${episode.stop}${episode.detail ? ` (${episode.detail})` : ""}`, ...seconds,
    episode.sandbox && `sandbox ${episode.sandbox}`, episode.start && `start ${episode.start}`, episode.started];
  const cut = episode.chunker ? `chunker ${episode.chunker}, credit ${episode.scheme}` : "not credited: one chunk per turn";
  const scores = episode.scores.map(([criterion, passed, value, weight, detail]) => make("li", {},
    make("span", { class: `badge ${passed ? "good" : "bad"}` }, passed ? "passed" : "failed"),
    make("span", {}, `${criterion} ${plain(value, 2)} \u00d7 ${weight}`), make("pre", {}, detail)));
  const failures = episode.failures.map(([stage, kind, message, traceback]) => make("div", { class: "fail" },
    make("p", {}, `broke in ${stage}: ${kind}`), make("pre", {}, message), traceback ? folded("traceback", traceback) : null));
  const scale = most ? make("span", { class: "scale" }, make("span", {}, "credit weight"), `\u2212${plain(most, 3)}`,
    make("i", { style: { background: "linear-gradient(90deg, rgb(var(--minus) / .9), transparent, rgb(var(--plus) / .9))" } }), `+${plain(most, 3)}`) : null;
  const seen = new Set();
  return [make("p", {}, make("small", {}, facts.filter(Boolean).join(" \u00b7 "))), ...failures,
    make("ul", { class: "scores" }, ...scores),
    make("div", { class: "modes" }, make("span", {}, cut), scale),
    episode.skipped ? make("p", { class: "note" }, `Not trained on: ${episode.skipped}`) : null,
    worth(episode),
    ...episode.turns.map((turn, number) => turnOf(episode, turn, number, seen, most))].filter(Boolean);
};

for (const node of episodes) {
  node.addEventListener("toggle", () => {
    const body = node.querySelector(".body");
    if (!node.open || body.childElementCount) return;
    const episode = JSON.parse(node.querySelector("script").textContent);
    body.append(...build(episode));
    modes(episode, body);
  });
}
const target = location.hash && byId(location.hash.slice(1));
if (target && target.matches(".episode")) target.open = true;
