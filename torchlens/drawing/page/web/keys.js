// The keyboard.

const KEYS = [
  ["↑ ↓", "to a parent, to a child"],
  ["← →", "to the node before, after, in the same box"],
  ["Enter", "open or close a module, or show an op"],
  ["Backspace", "out to the enclosing box"],
  ["Escape", "close what is open"],
  ["/", "search"],
  ["+ −", "zoom"],
  ["0", "fit"],
  ["c", "center the selected node"],
  ["] [", "open, close one level"],
  ["o", "open all"],
  ["x", "close all"],
  ["r", "unrolled or rolled"],
  ["d", "light or dark"],
  ["p", "the panel"],
  ["?", "these keys"],
];
const help = byId("help");

const ACTIONS = {
  "/": () => {
    searchBox.focus();
    searchBox.select();
  },
  "?": () => showHelp(help.hidden),
  "+": () => zoomBy(1.25),
  "=": () => zoomBy(1.25),
  "-": () => zoomBy(0.8),
  0: () => fit(),
  c: () => center(Math.max(view.selected, 0)),
  "]": () => reopen(() => stepLevel(true)),
  "[": () => reopen(() => stepLevel(false)),
  o: () => reopen(() => setAll(true)),
  x: () => reopen(() => setAll(false)),
  r: () => switchScene(),
  d: () => switchTheme(),
  p: () => openPanel(panel.hidden),
  ArrowDown: () => along(1),
  ArrowUp: () => along(-1),
  ArrowRight: () => beside(1),
  ArrowLeft: () => beside(-1),
  Enter: () => enter(),
  " ": () => enter(),
  Backspace: () => {
    if (view.scene.parent[view.selected] > 0) move(view.scene.parent[view.selected]);
  },
  Escape: () => escape(),
};

document.addEventListener("keydown", (event) => {
  const target = event.target,
    isField = target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || (isField && event.key !== "Escape")) return;
  if (target.closest("button, summary") && (event.key === "Enter" || event.key === " ")) return;
  if (panel.contains(target) && event.key.startsWith("Arrow")) return;
  const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : null;
  if (!action) return;
  event.preventDefault();
  action();
});

function showHelp(open) {
  help.hidden = !open;
  if (open) help.focus();
  else focusNode();
}

function escape() {
  if (!help.hidden) showHelp(false);
  else if (!panel.hidden) {
    openPanel(false);
    focusNode();
  } else if (view.reach) {
    view.reach = "";
    draw();
  } else if (view.selected > 0) select(0);
}

function enter() {
  const part = view.selected;
  if (part <= 0) return move(view.scene.children[0][0]);
  if (view.scene.isBox(part)) toggleOpen(part);
  else openPanel(true);
}

/** Along an edge that is seen: to the first child, or the last parent; to one that leads further if there is any. */
function along(step) {
  const scene = view.scene,
    part = view.selected;
  if (part <= 0) return move(scene.children[0][0]);
  if (step > 0 && scene.isBox(part) && scene.open[part]) return move(scene.children[part][0]);
  const { source, target } = scene.links,
    lists = step > 0 ? scene.outOf : scene.into;
  let next = -1,
    nextLeads = false;
  for (const leaf of scene.leaves(part)) {
    for (const link of lists.get(leaf) ?? []) {
      const other = step > 0 ? target[link] : source[link];
      if (scene.holds(part, other)) continue;
      const shown = scene.shown(other),
        leads = lists.has(other);
      if (next < 0 || (leads === nextLeads ? (step > 0 ? shown < next : shown > next) : leads))
        [next, nextLeads] = [shown, leads];
    }
  }
  if (next >= 0) move(next);
}

function beside(step) {
  const scene = view.scene,
    part = view.selected;
  if (part <= 0) return move(scene.children[0][0]);
  const next = scene.children[scene.parent[part]][scene.slot[part] + step];
  if (next !== undefined) move(next);
}

function move(part) {
  select(part);
  bringIntoView(part);
  drawNow();
  focusNode();
}

function fillHelp() {
  byId("key-list").replaceChildren(
    ...KEYS.flatMap(([keys, text]) => [
      h(
        "dt",
        {},
        keys.split(" ").map((key) => h("kbd", {}, key)),
      ),
      h("dd", {}, text),
    ]),
  );
}
