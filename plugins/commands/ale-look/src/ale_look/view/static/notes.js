// Notes: what people say of an episode and of its turns, and the form that writes them.
import { html } from "./html.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./preact-htm.js";
import { get, post, runPath } from "./api.js";
import { visible } from "./format.js";
import { Badge, Problem, When } from "./bits.js";

const BY = "ale-by";
const me = (about) => localStorage.getItem(BY) ?? about.by ?? "";
const TONES = { good: "good", bad: "bad" };

// The notes on a run, asked for again as it changes, and a function that writes one. One is written at a time; what refuses it is
// there until the next.
export const useNotes = (run, version) => {
  const [state, set] = useState({ notes: [] });
  const [refusal, refuse] = useState(null);
  const writes = useRef(0);
  const busy = useRef(false);
  useEffect(() => {
    const end = new AbortController();
    const before = writes.current;
    // What was asked for before a note was written lacks it.
    get(runPath(run, "/notes"), end.signal).then((found) => { if (before === writes.current) set(found); },
      (error) => { if (!end.signal.aborted) set((was) => ({ ...was, error })); });
    return () => end.abort();
  }, [run, version]);
  const write = async (note) => {
    if (busy.current) return false;
    busy.current = true;
    refuse(null);
    try {
      const found = await post(runPath(run, "/notes"), note);
      writes.current += 1;
      set(found);
      return true;
    } catch (error) {
      refuse(error);
      return false;
    } finally { busy.current = false; }
  };
  return { ...state, error: refusal || state.error, write };
};

export const byEpisode = (notes) => {
  const found = new Map();
  for (const note of notes) if (found.has(note.offset)) found.get(note.offset).push(note); else found.set(note.offset, [note]);
  return found;
};

// Their verdicts and labels in a line; how many they are where they have none.
export const Marks = ({ notes }) => {
  const verdicts = [...new Set(notes.map((note) => note.verdict).filter(Boolean))];
  const labels = [...new Set(notes.map((note) => note.label).filter(Boolean))];
  return html`${verdicts.map((each) => html`<${Badge} kind=${TONES[each]}>${each}<//> `)}${labels.slice(0, 3).map((each) => html`<${Badge}>${visible(each)}<//> `)}
    ${notes.length > 0 && !verdicts.length && !labels.length && html`<${Badge}>noted<//> `}`;
};

// A person's own verdict on an episode: given, changed, or taken back where it is given again.
export const marked = (about, episode, notes, verdict) => {
  const by = me(about);
  const own = notes.find((note) => note.turn === null && note.by === by && note.verdict);
  const { id, label, comment } = own || { label: "", comment: "" };
  return { ...(id && { id }), offset: episode.offset, episode: episode.id, turn: null, label, comment, by, verdict: own && own.verdict === verdict ? null : verdict };
};

// A button for each verdict; the person's own is pressed.
export const Verdicts = ({ about, notes, mark }) => {
  const own = notes.filter((note) => note.turn === null && note.by === me(about)).map((note) => note.verdict);
  return Object.keys(TONES).map((each) => html`<button type="button" aria-pressed=${own.includes(each)} onClick=${() => mark(each)}>${each}</button> `);
};

// What stands in the bar of an episode: the verdicts, and where notes begin.
export const Marking = ({ about, notes, turn, mark, begin, error }) => html`<div class="modes"><span>this episode is</span><${Verdicts} about=${about} notes=${notes} mark=${mark} />
    <button type="button" onClick=${() => begin(null)}>Note on the episode</button><button type="button" onClick=${() => begin(turn)}>Note on turn ${turn}</button>${error && html`<${Problem} error=${error} />`}</div>`;

const Form = ({ about, note, labels, save, close }) => {
  const first = useRef(null);
  const [now, set] = useState({ label: note.label || "", comment: note.comment || "", verdict: note.verdict || "", by: me(about) });
  const change = (name) => (event) => set({ ...now, [name]: event.target.value });
  useLayoutEffect(() => first.current.focus(), []);
  const send = async (event) => {
    event.preventDefault();
    localStorage.setItem(BY, now.by.trim());
    if (await save({ ...note, ...now, verdict: now.verdict || null })) close();
  };
  const pressed = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
  };
  return html`<form class="writing" onSubmit=${send} onKeyDown=${pressed} aria-label=${note.turn === null ? "note on the episode" : `note on turn ${note.turn}`}>
    <label>label <input ref=${first} list="labels" maxlength="100" value=${now.label} onInput=${change("label")} /></label><datalist id="labels">${labels.map((each) => html`<option value=${each}></option>`)}</datalist>
    <label>verdict <select value=${now.verdict} onChange=${change("verdict")}><option value="">none</option>${Object.keys(TONES).map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
    <label>by <input maxlength="100" value=${now.by} onInput=${change("by")} /></label>
    <textarea aria-label="comment" placeholder="comment" rows="3" maxlength="20000" value=${now.comment} onInput=${change("comment")}></textarea>
    <span><button>Save</button> <button type="button" onClick=${close}>Cancel</button> <small>Ctrl+Enter saves, Escape cancels</small></span></form>`;
};

const Item = ({ note, edit, withdraw }) => html`<li><${Marks} notes=${note.label || note.verdict ? [note] : []} />${note.comment && html`<pre>${visible(note.comment)}</pre>`}
  <small>${note.by && `${visible(note.by)} \u00b7 `}<${When} at=${note.at} /></small>
  ${edit && html`<button type="button" onClick=${() => edit(note)}>Edit</button><button type="button" onClick=${() => withdraw(note)}>Withdraw</button>`}</li>`;

const asked = ({ id, offset, episode, turn, label, comment, verdict, by }) => ({ ...(id && { id }), offset, episode, turn, label, comment, verdict, by });

// The notes on a turn, or with null on the episode as a whole, and the form where one of them is written.
export const NotesOn = ({ about, turn, notes, labels, writing, set, write }) => {
  const here = notes.filter((note) => note.turn === turn);
  const withdraw = (note) => write(asked({ ...note, label: "", comment: "", verdict: null }));
  const edit = about.live ? (note) => set(note) : null;
  const open = writing && writing.turn === turn;
  if (!here.length && !open) return null;
  return html`<ul class="noted">${here.map((note) => html`<${Item} key=${note.id} note=${note} edit=${edit} withdraw=${withdraw} />`)}</ul>
    ${open && html`<${Form} key=${writing.id || "new"} about=${about} note=${writing} labels=${labels} save=${(note) => write(asked(note))} close=${() => set(null)} />`}`;
};
