"use strict";
// Whatever a model or a tool wrote is put in as text, never as markup.
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Curves: the pointer or the arrow keys pick a place, and its numbers are shown.
for (const plot of all(".plot")) {
  const points = JSON.parse(plot.dataset.curves);
  let at = -1;
  const line = make("i", { class: "at-x" });
  const tip = make("div", { class: "tip", role: "status" });
  const hide = () => { at = -1; line.remove(); tip.remove(); };
  const show = (index) => {
    at = Math.max(0, Math.min(points.length - 1, index));
    const [x, where, rows] = points[at];
    line.style.left = `${100 * x}%`;
    tip.replaceChildren(make("div", {}, where), ...rows.map(([colour, name, said]) =>
      make("div", {}, name ? make("i", { class: colour }) : null, name ? `${name} ${said}` : said)));
    Object.assign(tip.style, x > 0.5 ? { right: `${100 - 100 * x}%`, left: "auto" } : { left: `${100 * x}%`, right: "auto" });
    plot.append(line, tip);
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    let best = 0;
    points.forEach((point, i) => { if (Math.abs(point[0] - x) < Math.abs(points[best][0] - x)) best = i; });
    show(best);
  };
  plot.addEventListener("pointermove", nearest);
  plot.addEventListener("pointerdown", nearest);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: points.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}

// Tables: a button in each head sorts by it, but not in one that holds pictures.
for (const table of all("table.sortable")) {
  const body = table.tBodies[0];
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  all("th", table).forEach((head, column) => {
    if ("plain" in head.dataset) return;
    const button = make("button", { type: "button" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
      rows.sort(([a], [b]) => (typeof a === "number" ? a - b : a.localeCompare(b)) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
