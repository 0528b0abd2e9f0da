// As Python writes a number: between two of as many digits, the even one.
const fixed = (value, digits) => {
  const times = value * 10 ** digits;
  const between = Number.isInteger(value * 2 ** (digits + 1)) && Math.abs(times % 1) === 0.5;
  return (between ? 2 * Math.round(times / 2) / 10 ** digits : value).toFixed(digits);
};
// Numbers and times as people read them; from ten digits before the point on in powers of ten.
export const plain = (value, digits = 2) => {
  if (value === null || value === undefined) return "-";
  return Math.abs(value) < 1e9 ? fixed(value, digits) : `${+value.toPrecision(4)}`;
};
export const signed = (value, digits = 3) => {
  if (value === null || value === undefined) return "-";
  return (value >= 0 ? "+" : "\u2212") + plain(Math.abs(value), digits);
};
export const percent = (share, digits = 0) => (share === null || share === undefined ? "-" : `${fixed(100 * share, digits)}%`);
export const whole = (value) => (value === null || value === undefined ? "-" : Math.round(value).toLocaleString("en"));
export const counted = (n, noun, several = `${noun}s`) => `${whole(n)} ${n === 1 ? noun : several}`;
export const seconds = (value) => {
  if (value === null || value === undefined) return "-";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};
// A time of the reader's own clock, of seconds since 1970 or of a text as ISO 8601 has it, and the same exactly.
const two = (n) => String(n).padStart(2, "0");
export const moment = (at) => {
  const date = new Date(typeof at === "number" ? 1000 * at : at);
  if (!at || Number.isNaN(date.getTime())) return { text: at ? `${at}` : "-", exact: "" };
  return { text: `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`, exact: date.toISOString() };
};
export const tone = (reward) => (reward === null || reward === undefined ? "warn" : reward >= 1 ? "good" : "bad");
export const rewardText = (reward) => (reward === null || reward === undefined ? "broken" : plain(reward));
// The probability that at least one of k attempts, drawn from n of which c pass, is a pass.
export const passAt = (n, c, k) => {
  if (n < k) return null;
  let none = 1;
  for (let i = n - c + 1; i <= n; i += 1) none *= Math.max(0, 1 - k / i);
  return 1 - none;
};
// Characters that turn the direction of text around, and those that control a terminal, as `ale.text.visible`.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const named = (character) => {
  const code = character.charCodeAt(0);
  return code < 32 ? String.fromCharCode(0x2400 + code) : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
};
export const visible = (text) => text.replace(HIDDEN, named);
