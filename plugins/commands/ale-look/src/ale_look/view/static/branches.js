// The conversations of an episode as a tree: which turn each continues, with links to where it begins.
import { html } from "./html.js";
import { useLayoutEffect, useMemo } from "./preact-htm.js";
import { link, parse } from "./route.js";

const SAYS = {
  first: ({ title }) => title || "the conversation",
  own: ({ after }) => `the agent's own turns, after those that were replayed until turn ${after}`,
  again: ({ after, title }) => `continues turn ${after} again${title && `: ${title}`}`,
  compacted: ({ after, title }) => `compacted after turn ${after}${title && `: ${title}`}`,
  called: ({ after, title }) => `called in turn ${after}: ${title}`,
  other: ({ after, title }) => `another conversation, begun after turn ${after}${title && `: ${title}`}`,
};

const turnsOf = ({ first, last }) => (first === last ? `turn ${first}` : `turns ${first} to ${last}`);
const to = (turn) => { const { parts, query } = parse(); return link(parts, { ...Object.fromEntries(query), turn }); };

const Tree = ({ branches, within, turn }) => {
  const here = branches.filter((each) => (within ? each.after !== null && within.first <= each.after && each.after <= within.last : each.after === null));
  return here.length > 0 && html`<ul>${here.map((each) => html`<li><a href=${to(each.first)} aria-current=${each.first <= turn && turn <= each.last ? "true" : undefined}>${turnsOf(each)}</a> ${SAYS[each.kind](each)}
    <${Tree} branches=${branches} within=${each} turn=${turn} /></li>`)}</ul>`;
};

export const Branches = ({ branches, turn, jump }) => {
  const firsts = useMemo(() => branches.map((each) => each.first), [branches]);
  useLayoutEffect(() => {
    const pressed = (event) => {
      if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      const found = { "[": firsts.filter((first) => first < turn).at(-1), "]": firsts.find((first) => first > turn) }[event.key];
      if (found !== undefined) jump(found);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [firsts, turn, jump]);
  return branches.length > 0 && html`<nav class="branches" aria-label="branches"><small>${branches.length} branches</small><${Tree} branches=${branches} turn=${turn} /></nav>`;
};
