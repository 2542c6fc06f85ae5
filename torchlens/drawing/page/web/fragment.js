// The part of the address after #: which node is selected, in which view.

let written = null,
  isRead = false;
/** In a frame, as in a notebook, nobody sees the address, and each change of it is a step of the outer history. */
const isFramed = parent !== window;

const viewName = (raw) => (raw.rolled ? "rolled" : "unrolled");

function fragmentNow() {
  const parts = [],
    name = view.selected > 0 ? view.scene.name(view.selected) : null;
  if (name) parts.push(`${name[0]}=${encodeURIComponent(name[1]).replaceAll("%3A", ":")}`);
  if (name && view.scene.isAdded(view.selected)) parts.push("run=2");
  if (view.number) parts.push(`view=${viewName(DATA.scenes[view.number])}`);
  return parts.length ? `#${parts.join("&")}` : "";
}

/** Writes what is selected into the address; `back` of the browser then goes to what was before. */
function writeFragment() {
  const fragment = fragmentNow();
  if (isFramed || fragment === location.hash || fragment === written) return;
  written = fragment;
  const address = fragment || location.pathname + location.search;
  try {
    history[isRead ? "replaceState" : "pushState"](null, "", address);
  } catch {
    location.hash = fragment;
  }
}

/** Goes to what the address names, as far as it is there; if it has another name here, the address gets this one. */
function readFragment() {
  isRead = true;
  try {
    goToFragment();
  } finally {
    isRead = false;
  }
}

function goToFragment() {
  written = location.hash;
  const given = new Map(
    location.hash
      .slice(1)
      .split("&")
      .map((pair) => {
        const place = pair.indexOf("="),
          decode = (text) => {
            try {
              return decodeURIComponent(text);
            } catch {
              return text;
            }
          };
        return [pair.slice(0, place), decode(pair.slice(place + 1))];
      }),
  );
  const wanted = Math.max(
    DATA.scenes.findIndex((raw) => viewName(raw) === given.get("view")),
    0,
  );
  if (wanted !== view.number) showScene(wanted, 0);
  for (const kind of ["op", "module"]) {
    const part = given.has(kind) ? view.scene.find(kind, given.get(kind), given.get("run") === "2") : -1;
    if (part > 0) return visit(part);
    if (given.has(kind)) say(`There is no ${kind} ${plain(given.get(kind))} here.`, true);
  }
  select(0);
}

addEventListener("popstate", readFragment);
addEventListener("hashchange", () => {
  if (location.hash !== (written ?? "")) readFragment();
});
