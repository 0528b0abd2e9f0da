// V of an episode's states where it was measured, above what each chunk was worth and its credit by scheme.
import { html } from "./html.js";
import { plain, signed } from "./format.js";

const WIDE = 900, LEFT = 110, LINE = 90, ROW = 26;

const Bars = ({ name, weights, row, x, top, step }) => {
  const middle = top + row * ROW + ROW / 2;
  const most = Math.max(...weights.map(Math.abs)) || 1;
  const wide = Math.min(14, step / 3);
  return html`<g><text x="0" y=${middle + 4}>${name}</text><line class="rule" x1=${LEFT} y1=${middle} x2=${WIDE - 20} y2=${middle} />
    ${weights.map((weight, k) => { const size = (ROW / 2 - 2) * Math.abs(weight) / most;
      return html`<rect class=${weight >= 0 ? "plus" : "minus"} x=${x(k + 0.5) - wide} width=${2 * wide} y=${weight >= 0 ? middle - size : middle} height=${size}><title>${`${name}, chunk ${k}: ${signed(weight)}`}</title></rect>`; })}</g>`;
};

export const Worth = ({ found: { values, trials, bars } }) => {
  const step = (WIDE - LEFT - 20) / (values.length - 1);
  const x = (k) => LEFT + k * step;
  const y = (v) => 14 + LINE * (1 - v);
  const top = LINE + 40;
  const height = top + bars.length * ROW;
  const said = (k) => (k < values.length - 1 || trials[k] > 1 ? `before chunk ${k}: V ${plain(values[k])}, of ${trials[k]} rollouts` : `the outcome: ${plain(values[k])}`);
  return html`<figure class="worth"><svg viewBox=${`0 0 ${WIDE} ${height}`} role="img" aria-label="value of the states of this episode, and the credit of its chunks by scheme">
    <text x="0" y=${14 + LINE / 2}>V, by rollouts</text>
    ${[0, 0.5, 1].map((v) => html`<g><line class="rule" x1=${LEFT} y1=${y(v)} x2=${WIDE - 20} y2=${y(v)} /><text x=${LEFT - 6} y=${y(v) + 4} text-anchor="end">${v}</text></g>`)}
    <polyline class="value" points=${values.map((v, k) => `${x(k)},${y(v)}`).join(" ")} />
    ${values.map((v, k) => html`<g><line class="rule" x1=${x(k)} y1="14" x2=${x(k)} y2=${height} /><circle class="value" cx=${x(k)} cy=${y(v)} r="4"><title>${said(k)}</title></circle></g>`)}
    ${bars[0][1].map((_, k) => html`<text x=${x(k + 0.5)} y=${top - 8} text-anchor="middle">chunk ${k}</text>`)}
    ${bars.map(([name, weights], row) => html`<${Bars} name=${name} weights=${weights} row=${row} x=${x} top=${top} step=${step} />`)}</svg>
    <figcaption><small>Line: V, the success rate of rollouts from each state. Bars: what each chunk was worth (V after it minus V before it), and its weight under each scheme; each row has its own scale, blue above 0 and orange below.</small></figcaption></figure>`;
};
