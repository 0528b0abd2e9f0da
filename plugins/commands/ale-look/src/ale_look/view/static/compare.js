// Two or more runs side by side: results, and the settings in which they differ.
import { html } from "./html.js";
import { link } from "./route.js";
import { Problem, useAnswer } from "./bits.js";

const Side = ({ keys, rows, head }) => html`<div class="scroll" tabindex="0"><table class="compare"><thead><tr><th scope="col">${head}</th>
  ${keys.map((key) => html`<th scope="col"><a href=${link(["run", key])}>${key}</a></th>`)}</tr></thead>
  <tbody>${rows.map(([name, values]) => html`<tr class=${new Set(values).size > 1 ? "" : "same"}><th scope="row">${name}</th>
    ${values.map((value) => html`<td>${value}</td>`)}</tr>`)}</tbody></table></div>`;

export const Compare = ({ keys }) => {
  const path = `compare.json?${keys.map((key) => `run=${encodeURIComponent(key)}`).join("&")}`;
  const { data, error } = useAnswer(path, [path]);
  if (!data) return html`<${Problem} error=${error} /><p class="empty">Comparing</p>`;
  return html`<h1>Compare ${data.keys.length} runs</h1>
    <h2>Results</h2><${Side} head="" keys=${data.keys} rows=${data.results} />
    <h2>Settings that differ</h2>${data.settings.length ? html`<${Side} head="setting" keys=${data.keys} rows=${data.settings} />` : html`<p class="note">None: the same config.</p>`}`;
};
