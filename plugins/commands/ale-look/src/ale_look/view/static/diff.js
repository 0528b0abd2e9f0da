// A diff with its lines in colour: what a command has printed, what a call was given, or two texts of which one takes the other's place.
import { html } from "./html.js";
import { useMemo } from "./preact-htm.js";

const FORM = /^(?:diff --git [^\n]+|--- [^\n]+\n\+\+\+ [^\n]+\n@@ )/m;
export const isDiff = (text) => FORM.test(text);

const PLACES = /^(?:diff --git |index |--- |\+\+\+ |@@ |new file |deleted file |rename |similarity )/;
const kindOf = (line) => (PLACES.test(line) ? "place" : { "+": "added", "-": "removed" }[line[0]] || "");

// Lines of one kind that follow each other, so that a long diff has few elements.
const stretches = (text) => {
  const found = [];
  for (const line of text.split("\n")) {
    const kind = kindOf(line);
    if (found.length && found.at(-1).kind === kind) found.at(-1).lines.push(line);
    else found.push({ kind, lines: [line] });
  }
  return found;
};

export const Diff = ({ text, class: name = "" }) => {
  const parts = useMemo(() => stretches(text), [text]);
  return html`<pre class=${`diff ${name}`}>${parts.map(({ kind, lines }, i) => {
    const shown = lines.join("\n") + (i < parts.length - 1 ? "\n" : "");
    return kind ? html`<span class=${kind}>${shown}</span>` : shown;
  })}</pre>`;
};

// The names that tools of editors give to a text and to what takes its place.
const PAIRS = [["old_str", "new_str"], ["old_string", "new_string"], ["old_text", "new_text"], ["search", "replace"]];
const marked = (sign, text) => text.split("\n").map((line) => sign + line).join("\n");

// Arguments of a call, where such a pair stands as one diff.
export const withChanges = (entries) => {
  const names = entries.map(([name]) => name);
  const pair = PAIRS.find((each) => each.every((name) => names.includes(name)));
  if (!pair) return entries.map(([name, value]) => ({ name, value, diff: isDiff(value) }));
  const [old, now] = pair.map((name) => entries[names.indexOf(name)][1]);
  const kept = entries.filter(([name]) => name !== pair[1]);
  return kept.map(([name, value]) => (name === pair[0] ? { name: "change", value: `${marked("-", old)}\n${marked("+", now)}`, diff: true } : { name, value, diff: false }));
};

// Names that tools give to a file, and to all of its text.
const PATHS = ["path", "file_path", "file", "filename"];
const TEXTS = ["content", "contents", "file_text"];
const valueOf = (entries, names) => entries.find(([name]) => names.includes(name))?.[1];

// What a call has changed, as far as its arguments say so: the file, if they name one, and a diff.
const changesOf = (entries) => {
  const path = valueOf(entries, PATHS);
  const found = withChanges(entries).filter(({ diff }) => diff).map(({ value }) => ({ path, text: value }));
  const whole = valueOf(entries, TEXTS);
  return found.length || !path || whole === undefined ? found : [{ path, text: marked("+", whole) }];
};

// The changes of an episode in their order: those of calls that did not fail, and diffs that a command has printed.
export const changesIn = (episode, entriesOf) => episode.turns.flatMap((turn, number) => turn.parts.flatMap((piece) => piece.calls || []).flatMap((call) => {
  if (call.error) return [];
  const made = changesOf(entriesOf(call.args || "") || []);
  return [...made, ...(call.seen && isDiff(call.seen) ? [{ printed: true, text: call.seen }] : [])].map((each) => ({ ...each, turn: number, name: call.name }));
}));
