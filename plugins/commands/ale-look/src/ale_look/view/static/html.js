// Templates. Preact 10.5 loses the place of an element that vanishes among several of one component when that component alone is
// made again, and puts what is new above the others: so several become one part, which is another one each time.
import { h, html as made } from "./preact-htm.js";

const Several = ({ children }) => children;

export const html = (...template) => {
  const found = made(...template);
  return Array.isArray(found) ? h(Several, null, found) : found;
};
