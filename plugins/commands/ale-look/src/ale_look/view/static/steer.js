// What can be asked of a run while it runs: the server asks it as `ale steer` does. Of other runs, nothing is shown.
import { html } from "./html.js";
import { useEffect, useRef, useState } from "./preact-htm.js";
import { get, post, runPath } from "./api.js";
import { counted, seconds } from "./format.js";
import { Badge, Fold, Problem } from "./bits.js";

const EVERY_MS = 2000;

// The state of the run, asked for again while it runs, and a function that asks something of it. What refuses that is there until
// the next is asked.
const useSteering = (run, version) => {
  const [state, set] = useState(null);
  const [error, fail] = useState(null);
  const [refusal, refuse] = useState(null);
  const asked = useRef(0);
  useEffect(() => {
    const end = new AbortController();
    let again;
    const ask = async () => {
      const before = asked.current;
      try {
        const found = await get(runPath(run, "/steer"), end.signal);
        // What was asked for before something was done lacks it.
        if (before === asked.current) { set(found); fail(null); }
        if (!found.alive && !found.problem) return;
      } catch (problem) {
        if (end.signal.aborted) return;
        fail(problem);
      }
      again = setTimeout(ask, EVERY_MS);
    };
    ask();
    return () => { end.abort(); clearTimeout(again); };
  }, [run, version]);
  const steer = async (action, to) => {
    asked.current += 1;
    refuse(null);
    try {
      set(await post(runPath(run, "/steer"), { action, ...(to !== undefined && { to }) }));
      fail(null);
    } catch (problem) { refuse(problem); }
    asked.current += 1;
  };
  return { state, error: refusal || error, steer };
};

// A button that is to be pressed twice: what it does is not taken back by another one.
const Sure = ({ label, act, children }) => {
  const [once, set] = useState(false);
  const press = () => { if (once) act(); set(!once); };
  return html`<button type="button" aria-label=${label} aria-pressed=${once} onBlur=${() => set(false)} onClick=${press}>${once ? "Press again to " : ""}${once ? children.toLowerCase() : children}</button> `;
};

const Concurrency = ({ state, steer }) => {
  const [text, set] = useState(null);
  const send = (event) => { event.preventDefault(); steer("concurrency", Number(text ?? state.concurrency)); set(null); };
  return html`<form onSubmit=${send}><label>episodes at once <input type="number" min="1" step="1" required value=${text ?? state.concurrency} onInput=${(e) => set(e.target.value)} /></label> <button>Set</button>
    <button type="button" aria-pressed=${state.auto} title="the run finds how many are worth it" onClick=${() => steer("concurrency", "auto")}>auto</button></form>`;
};

const Running = ({ episodes, cancel }) => html`<${Fold} title=${`${counted(episodes.length, "episode")} running`}><div class="scroll short" tabindex="0"><table><thead><tr><th>episode</th><th>stage</th><th class="num">for</th>${cancel && html`<th></th>`}</tr></thead><tbody>
  ${episodes.map((each) => html`<tr key=${each.id}><td class="long">${each.id}</td><td>${each.stage}</td><td class="num">${seconds(each.seconds)}</td>${cancel && html`<td><${Sure} label=${`cancel ${each.id}`} act=${() => cancel(each.id)}>Cancel<//></td>`}</tr>`)}</tbody></table></div><//>`;

const said = (state) => [state.paused && "paused", state.stopping && "ending: no further episode starts", state.evaluates_after_step && "evaluates after this step", state.stops_after_step && "ends after this step"].filter(Boolean);

// Buttons for what the run takes: a loop, whose episodes come from elsewhere, can only be ended.
export const Steering = ({ run, version }) => {
  const { state, error, steer } = useSteering(run, version);
  if (!state || !state.alive) return html`<${Problem} error=${error} />${state && state.problem && html`<p class="note">It can't be steered: ${state.problem}</p>`}`;
  const takes = (action) => state.takes.includes(action);
  return html`<section id="steer" aria-label="steer the run"><div class="modes">
    ${takes("pause") && html`<button type="button" onClick=${() => steer(state.paused ? "resume" : "pause")}>${state.paused ? "Resume" : "Pause"}</button>`}
    ${takes("concurrency") && html`<${Concurrency} state=${state} steer=${steer} />`}
    ${takes("evaluate") && html`<button type="button" disabled=${state.evaluates_after_step} onClick=${() => steer("evaluate")}>Evaluate after this step</button>`}
    ${takes("stop-after-step") && !state.stops_after_step && html`<${Sure} label="end the run after this step" act=${() => steer("stop-after-step")}>End after this step<//>`}
    ${takes("stop") && !state.stopping && html`<${Sure} label="end the run" act=${() => steer("stop")}>Finish what runs and end<//>`}
    ${said(state).map((text) => html`<${Badge} kind="warn">${text}<//> `)}</div>
    <${Problem} error=${error} /><${Running} episodes=${state.episodes} cancel=${takes("cancel") && ((id) => steer("cancel", id))} /></section>`;
};
