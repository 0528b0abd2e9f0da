// The turns of an episode: prompts, the answer by chunk with its credit, tool calls and what they gave.
import { html } from "./html.js";
import { useMemo } from "./preact-htm.js";
import { counted, plain, seconds, signed, visible, whole } from "./format.js";
import { Badge, Fold, Terminal } from "./bits.js";
import { Diff, isDiff, withChanges } from "./diff.js";

export const shade = (sign, strength, most) => `rgb(var(--${sign >= 0 ? "plus" : "minus"}) / ${(most * Math.min(1, strength)).toFixed(3)})`;

// The versions of the policy in turn, each with a colour.
const versionColour = (version) => `color-mix(in srgb, var(--c${Math.abs(version) % 8}) 28%, transparent)`;

const PAINT = {
  probability: (piece, i) => (Number.isFinite(piece.lp?.[i]) ? shade(-1, -piece.lp[i] / 5, 0.55) : ""),
  ratio: (piece, i) => (Number.isFinite(piece.lr?.[i]) ? shade(piece.lr[i], Math.abs(piece.lr[i]), 0.6) : ""),
  version: (piece, i, turn) => { const at = piece.v ? piece.v[i] : turn.versions?.[0]; return at === undefined ? "" : versionColour(at); },
  credit: (piece, i, turn, weights) => (weights && weights.most ? shade(weights.of[piece.k], Math.abs(weights.of[piece.k]) / weights.most, 0.4) : ""),
};
export const LEGENDS = {
  plain: "",
  probability: "the less probable a token, the darker",
  ratio: "the trainer's policy over the sampler: blue above 1, orange below",
  version: "a colour per version of the policy",
  credit: "weight of the chunk: blue above 0, orange below",
};

const tokenTitle = (piece, i, turn) => [
  Number.isFinite(piece.lp?.[i]) && `probability ${Math.exp(piece.lp[i]).toPrecision(3)} (log ${plain(piece.lp[i])})`,
  Number.isFinite(piece.lr?.[i]) && `ratio ${Math.exp(piece.lr[i]).toPrecision(4)}`,
  (piece.v || turn.versions) && `policy ${piece.v ? piece.v[i] : turn.versions[0]}`].filter(Boolean).join(", ");

const Text = ({ piece, turn, mode, weights }) => {
  if (!piece.tok) return piece.text ? html`<${Terminal} text=${piece.text} />` : null;
  if (mode === "plain") return html`<pre>${piece.tok.join("")}</pre>`;
  return html`<pre class="tokens">${piece.tok.map((text, i) => html`<span title=${tokenTitle(piece, i, turn)} style=${{ backgroundColor: PAINT[mode](piece, i, turn, weights) }}>${text}</span>`)}</pre>`;
};

// What was escaped in JSON is made visible here: the server sees its escape.
const shown = (value) => visible(typeof value === "string" ? value : JSON.stringify(value));

// Arguments in JSON by name, so that a script in them has its lines; what is no object stays as it is.
export const parsed = (text) => {
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" && !Array.isArray(found) ? Object.entries(found).map(([name, value]) => [visible(name), shown(value)]) : null;
  } catch { return null; }
};
export const Arguments = ({ call }) => {
  const entries = useMemo(() => (call.args === undefined ? null : parsed(call.args)), [call.args]);
  if (call.args === undefined) return html`<pre class="command"><b>${call.name}</b> <i>(read from the text)</i></pre>`;
  if (!entries) return html`<pre class="command"><b>${call.name}</b> ${call.args}</pre>`;
  if (entries.length === 1 && !isDiff(entries[0][1])) return html`<pre class="command" title=${entries[0][0]}><b>${call.name}</b> ${entries[0][1]}</pre>`;
  return html`<div class="command"><b>${call.name}</b><dl>${withChanges(entries).map(({ name, value, diff }) => html`<dt>${name}</dt><dd>${diff ? html`<${Diff} text=${value} />` : html`<pre>${value}</pre>`}</dd>`)}</dl></div>`;
};

// What a tool gave: a diff, or what a terminal shows.
export const Seen = ({ text, raw }) => (!raw && isDiff(text) ? html`<${Diff} class="seen" text=${text} />` : html`<${Terminal} class="seen" raw=${raw} text=${text} />`);

// A call in a line: its name and the beginning of its arguments.
const LINE = 90;
const lineOf = (call) => html`<b>${call.name}</b> ${(parsed(call.args || "") || [["", call.args || ""]]).map(([, value]) => value).join(" ").slice(0, LINE)}${call.error && html` <${Badge} kind="bad">failed<//>`}`;

const Call = ({ call, view: { raw, folded } }) => (folded ? html`<${Fold} class="message" title=${lineOf(call)}><${Called} call=${call} raw=${raw} /><//>` : html`<${Called} call=${call} raw=${raw} />`);

const Called = ({ call, raw }) => html`<div class="call"><${Arguments} call=${call} />
  ${call.seen === undefined ? html`<p class="note">no observation</p>` : html`<${Seen} raw=${raw} text=${call.seen} />`}
  ${call.error && html`<pre class="wrong">${call.error}</pre>`}
  ${call.s > 1 && html`<small class="took">${seconds(call.s)}</small>`}</div>`;

const Fork = ({ fork: [turns, wonBefore, before, wonAfter, after, p, crucial] }) => html`<span title=${`turn ${turns} of the expert, p-value ${p}`}>
  success before ${wonBefore} of ${before}, after ${wonAfter} of ${after}${crucial && html` <${Badge} kind="warn">crucial fork<//>`}</span>`;

// What stands above a chunk: its number, and its credit under each scheme.
const ChunkHead = ({ chunk, number, columns }) => html`<header>${columns.map((column) => html`<b title=${column.name}
    style=${{ backgroundColor: column.of[number] && column.most ? shade(column.of[number], Math.abs(column.of[number]) / column.most, 0.45) : "" }}>${columns.length > 1 && html`<small>${column.name}</small> `}${columns.length > 1 ? "" : "weight "}${signed(column.of[number])}</b>`)}
  <span>chunk ${number}</span><span>${chunk.kind}</span>
  ${chunk.r !== undefined && html`<span>reward ${signed(chunk.r)}</span><span>return ${signed(chunk.g)}</span>`}
  ${chunk.n && html`<span>${counted(chunk.n, "token")}</span>`}${chunk.p !== undefined && chunk.p !== null && html`<span>mean probability ${Math.exp(chunk.p).toFixed(3)}</span>`}
  ${chunk.rho !== undefined && html`<span>ratio ${chunk.rho}</span>`}${(chunk.forks || []).map((fork) => html`<${Fork} fork=${fork} />`)}</header>`;

// What a scorer said of a chunk; a long reason is folded, with both of its ends in sight.
const BRIEF = 200;
const ends = (text) => `${text.slice(0, BRIEF / 2)} \u2026 ${text.slice(-BRIEF / 2)}`;
export const Reason = ({ text }) => (!text ? null : text.length > 2 * BRIEF
  ? html`<${Fold} title=${ends(text)}><${Evidence} text=${text} /><//>` : html`<${Evidence} text=${text} />`);
export const Evidence = ({ text }) => (isDiff(text) ? html`<${Diff} text=${text} />` : html`<pre>${text}</pre>`);
const Judgement = ({ name, score: [value, why] }) => html`<div class="judged"><b style=${{ backgroundColor: value === null ? "" : shade(1, value, 0.45) }}>${value === null ? "abstains" : plain(value)}</b> <span>${name}</span> <${Reason} text=${why} /></div>`;

const Part = ({ episode, piece, turn, first, view }) => {
  const chunk = episode.chunks[piece.k];
  const main = view.columns[0];
  const weight = main?.of[piece.k];
  const colour = weight && main.most ? shade(weight, 0.25 + 0.75 * Math.abs(weight) / main.most, 1) : "";
  const crucial = (chunk.forks || []).some((fork) => fork[6]);
  return html`<div class=${`chunk ${crucial ? "crucial" : ""}`} style=${{ borderLeftColor: colour }}>
    ${first ? html`<${ChunkHead} chunk=${chunk} number=${piece.k} columns=${view.columns} />` : html`<header><span class="joined">chunk ${piece.k}, continued</span></header>`}
    ${first && episode.judged.map(([name, scores]) => html`<${Judgement} name=${name} score=${scores[piece.k]} />`)}
    <${Text} piece=${piece} turn=${turn} mode=${view.mode} weights=${main} />
    ${(piece.calls || []).map((call) => html`<${Call} call=${call} view=${view} />`)}</div>`;
};

const message = (role, text, view) => html`<${Fold} class="message" title=${`${role} (${whole(text.length)} characters)`} open=${role !== "system" && text.length < 1500}><${Terminal} text=${text} raw=${view.raw} /><//>`;

export const Turn = ({ episode, turn, number, firsts, view, current, notes }) => html`<section class=${`turn ${current ? "current" : ""}`} id=${`turn-${number}`} tabindex="-1" aria-label=${`turn ${number}`}>
  ${turn.fresh && number > 0 && html`<p class="note">A new conversation starts here.</p>`}
  ${(turn.replaced || turn.dropped) && html`<p class="note">${turn.dropped || 0} earlier messages were given otherwise.</p>`}
  ${(turn.replaced || []).map(([role, text]) => message(`${role}, in their place`, text, view))}
  ${turn.prompt.map(([role, text]) => message(role, text, view))}
  <h3>turn ${number}<small>${[turn.tokens && counted(turn.tokens, "token"), turn.versions && `policy ${turn.versions.join(", ")}`, turn.forced && "forced, not sampled", turn.finish && `ended by ${turn.finish}`].filter(Boolean).map((text) => ` · ${text}`)}</small></h3>
  ${notes}
  ${turn.reasoning && html`<${Fold} class="message" title=${`reasoning (${whole(turn.reasoning.length)} characters)`}><${Terminal} text=${turn.reasoning} raw=${view.raw} /><//>`}
  ${turn.parts.map((piece, i) => html`<${Part} episode=${episode} piece=${piece} turn=${turn} first=${firsts.get(piece.k) === `${number}.${i}`} view=${view} />`)}</section>`;

// Where each chunk begins: its first part, by turn and place.
export const beginnings = (episode) => {
  const found = new Map();
  episode.turns.forEach((turn, number) => turn.parts.forEach((piece, i) => {
    if (!found.has(piece.k)) found.set(piece.k, `${number}.${i}`);
  }));
  return found;
};

export const scoreText = ([criterion, , value, weight]) => `${criterion} ${plain(value, 2)} \u00d7 ${weight}`;
