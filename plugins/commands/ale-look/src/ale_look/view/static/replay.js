// The calls of an episode played in the time that they took. Its place stands in the address as the number of the call.
import { html } from "./html.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { counted, seconds } from "./format.js";
import { replaceQuery } from "./route.js";
import { Arguments, Seen } from "./turns.js";

const SPEEDS = [1, 2, 4, 8, 16, 32, 64];
const KEPT = 60;

// Each call with when it began and ended, in seconds since the agent's first turn: a turn's time before its calls is the model's.
export const framesOf = (turns) => {
  const frames = [];
  let begun = 0;
  turns.forEach((turn, number) => {
    const calls = turn.parts.flatMap((piece) => piece.calls || []);
    const used = calls.reduce((sum, call) => sum + (call.s || 0), 0);
    let at = begun + Math.max(0, (turn.s || 0) - used);
    for (const call of calls) {
      frames.push({ turn: number, call, from: at, to: at + (call.s || 0) });
      at += call.s || 0;
    }
    begun = Math.max(at, begun + (turn.s || 0));
  });
  return { frames, ends: begun };
};

const lastBegun = (frames, time) => {
  let low = 0;
  let high = frames.length;
  while (low < high) { const middle = (low + high) >> 1; if (frames[middle].from <= time) low = middle + 1; else high = middle; }
  return low - 1;
};

const Frame = ({ frame, time, raw }) => html`<div class="call"><${Arguments} call=${frame.call} />
  ${time < frame.to ? html`<p class="note">running</p>` : html`${frame.call.seen !== undefined && html`<${Seen} raw=${raw} text=${frame.call.seen} />`}${frame.call.error && html`<pre class="wrong">${frame.call.error}</pre>`}`}</div>`;

// The time of a film that runs or stands, and the call that is shown: several may have the same time.
const useClock = (frames, ends, first) => {
  const [state, set] = useState({ time: frames[first].from, at: first, playing: false, speed: 1 });
  useEffect(() => {
    if (!state.playing) return undefined;
    let last = performance.now();
    const tick = () => {
      const now = performance.now();
      const passed = (now - last) / 1000;
      last = now;
      set((was) => { const time = Math.min(ends, was.time + passed * was.speed); return { ...was, time, at: lastBegun(frames, time), playing: was.playing && time < ends }; });
    };
    const timer = setInterval(tick, 50);
    return () => clearInterval(timer);
  }, [state.playing, ends]);
  return [state, set];
};

const Player = ({ frames, ends, raw, first, jump }) => {
  const box = useRef(null);
  const screen = useRef(null);
  const [{ time, at, playing, speed }, set] = useClock(frames, ends, first);
  const over = at >= 0 && time >= frames[at].to;
  useLayoutEffect(() => { screen.current.scrollTop = screen.current.scrollHeight; }, [at, over]);
  useLayoutEffect(() => box.current.focus({ preventScroll: true }), []);
  useEffect(() => { if (!playing) replaceQuery({ replay: `${Math.max(0, at)}` }); }, [playing, at]);
  const go = (number) => { const to = Math.max(0, Math.min(frames.length - 1, number)); set((was) => ({ ...was, playing: false, at: to, time: frames[to].to })); };
  const next = () => go(over ? at + 1 : at);
  const play = () => set((was) => (was.time >= ends ? { ...was, playing: !was.playing, time: 0, at: lastBegun(frames, 0) } : { ...was, playing: !was.playing }));
  const faster = (by) => set((was) => ({ ...was, speed: SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(was.speed) + by))] }));
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const done = { " ": event.target.matches("button, input") ? undefined : play, ".": next, ",": () => go(at - 1), ">": () => faster(1), "<": () => faster(-1), Escape: () => replaceQuery({ replay: "" }) }[event.key];
    if (!done) return;
    done();
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<section class="replay" ref=${box} tabindex="-1" aria-label="replay of the terminal" onKeyDown=${pressed}>
    <div class="modes"><button type="button" onClick=${play}>${playing ? "pause" : "play"}</button><button type="button" onClick=${() => go(at - 1)} aria-label="previous call">\u2039</button>
      <button type="button" onClick=${next} aria-label="next call">\u203a</button><button type="button" onClick=${() => faster(-1)} aria-label="slower">\u2212</button><b>${speed}\u00d7</b><button type="button" onClick=${() => faster(1)} aria-label="faster">+</button>
      <input type="range" aria-label="time" min="0" max=${ends} step="any" value=${time} onInput=${(event) => { const to = Number(event.target.value); set((was) => ({ ...was, time: to, at: lastBegun(frames, to) })); }} />
      <output>${seconds(time)} of ${seconds(ends)}</output>${at >= 0 && html`<button type="button" onClick=${() => jump(frames[at].turn)}>turn ${frames[at].turn}</button>`}<span class="spacer"></span><button type="button" onClick=${() => replaceQuery({ replay: "" })}>close</button></div>
    <div class="screen" ref=${screen} tabindex="0" role="log" aria-label="terminal">${frames.slice(Math.max(0, at + 1 - KEPT), at + 1).map((frame, i) => html`<${Frame} key=${Math.max(0, at + 1 - KEPT) + i} frame=${frame} time=${time} raw=${raw} />`)}
      ${at < frames.length - 1 && (over || at < 0) && html`<p class="note">the model answers</p>`}</div>
    <small>Space plays and pauses, . and , step to the next and previous call, > and ${"<"} change the speed, Esc closes. An output is shown once its call has ended: when each line came is not stored.</small></section>`;
};

export const Replay = ({ episode, raw, query, jump }) => {
  const { frames, ends } = useMemo(() => framesOf(episode.turns), [episode]);
  const asked = query.get("replay");
  if (!frames.length) return null;
  if (!/^\d{1,9}$/.test(asked || "")) return html`<p class="modes"><button type="button" onClick=${() => replaceQuery({ replay: "0" })}>Replay the terminal</button> <small>${counted(frames.length, "call")} in ${seconds(ends)}</small></p>`;
  return html`<${Player} key=${episode.offset} frames=${frames} ends=${ends} raw=${raw} jump=${jump} first=${Math.min(frames.length - 1, Number(asked))} />`;
};
