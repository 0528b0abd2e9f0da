// Addresses: each view has one, `#/run/KEY/...?name=value`, so that it can be kept and sent.
export const parse = (hash = location.hash) => {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { parts, query: new URLSearchParams(query) };
};

export const link = (parts, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
};

export const go = (parts, query) => { location.hash = link(parts, query); };

// Changes the query without a new entry in the history.
export const replaceQuery = (changes) => {
  const { parts, query } = parse();
  const now = { ...Object.fromEntries(query), ...changes };
  history.replaceState(null, "", link(parts, now));
  dispatchEvent(new HashChangeEvent("hashchange"));
};

export const toEpisode = (key, row, query) => link(["run", key, "e", String(row.offset), row.id], query);
export const toTask = (key, task, kind, step) => link(["run", key, "task", task], { kind, step });
