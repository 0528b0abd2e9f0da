// Colours of a terminal as spans. The server has made control characters visible, so that an escape
// sequence begins with its picture; what is no colour is left out, and nothing of it is carried out.
const ESCAPE = "\u241b";
const SEQUENCE = /\u241b(?:\[([0-9;:?]*)([ -/]*[@-~])|\](?:[^\u2407\u241b]*)(?:\u2407|\u241b\\|$)|[@-Z\\^_()][0-9A-Za-z]?)/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

const cube = (n) => {
  if (n < 8) return `a-${NAMES[n]}`;
  if (n < 16) return `a-${NAMES[n - 8]}`;
  const level = (value) => (value ? 55 + 40 * value : 0);
  const rest = n - 16;
  const grey = 8 + 10 * (n - 232);
  return n >= 232 ? `rgb(${grey} ${grey} ${grey})`
    : `rgb(${level(Math.floor(rest / 36))} ${level(Math.floor(rest / 6) % 6)} ${level(rest % 6)})`;
};
const byte = (value) => Math.max(0, Math.min(255, value | 0));

// The colour of `38;5;n` or `38;2;r;g;b`, and how many numbers it took.
const extended = (codes, i) => {
  if (codes[i + 1] === 5) return [cube(byte(codes[i + 2])), 2];
  if (codes[i + 1] === 2) return [`rgb(${codes.slice(i + 2, i + 5).map(byte).join(" ")})`, 4];
  return [undefined, 0];
};

const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"], 39: ["fg"], 49: ["bg"] };

const applied = (before, codes) => {
  let now = { ...before };
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i];
    if (code === 0) now = {};
    else if (FLAGS[code]) now[FLAGS[code]] = true;
    else if (OFF[code]) OFF[code].forEach((name) => delete now[name]);
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, i);
      now[code === 38 ? "fg" : "bg"] = colour;
      i += used;
    } else if (code >= 30 && code <= 37) now.fg = `a-${NAMES[code - 30]}`;
    else if (code >= 40 && code <= 47) now.bg = `a-${NAMES[code - 40]}`;
    else if (code >= 90 && code <= 97) now.fg = `a-${NAMES[code - 90]}`;
    else if (code >= 100 && code <= 107) now.bg = `a-${NAMES[code - 100]}`;
  }
  return now;
};

// What follows a carriage return overwrites the line: a progress bar is its last state.
const overwritten = (text) => (text.includes("\u240d") ? text.split("\n").map((line) => {
  const states = line.replace(/\u240d+$/, "").split("\u240d");
  let seen = "";
  for (let i = states.length - 1; i >= 0; i -= 1) {
    if (states[i].includes(ESCAPE)) return seen || states[i];
    seen += states[i].slice(seen.length);
  }
  return seen;
}).join("\n") : text);

// Pieces of text, each with its style.
export const pieces = (text) => {
  const shown = overwritten(text);
  if (!shown.includes(ESCAPE)) return [{ text: shown, style: {} }];
  const made = [];
  let at = 0;
  let style = {};
  for (const found of shown.matchAll(SEQUENCE)) {
    if (found.index > at) made.push({ text: shown.slice(at, found.index), style });
    at = found.index + found[0].length;
    if (found[2] === "m") style = applied(style, (found[1] || "0").split(/[;:]/).map(Number));
  }
  if (at < shown.length) made.push({ text: shown.slice(at), style });
  return made;
};

// A style as a class and properties of an element.
export const looks = (style) => {
  const classes = Object.values(FLAGS).filter((name) => style[name]).map((name) => `a-${name}`);
  const css = {};
  for (const [name, property] of [["fg", "color"], ["bg", "backgroundColor"]]) {
    if (!style[name]) continue;
    if (style[name].startsWith("a-")) classes.push(name === "fg" ? style[name] : `${style[name]}-bg`);
    else css[property] = style[name];
  }
  return { class: classes.join(" "), style: css };
};
