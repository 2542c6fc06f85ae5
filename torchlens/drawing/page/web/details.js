// The panel on the right: everything about the selected node.

const panel = byId("details"),
  panelBody = byId("details-body");
/** Which pass of a layer is shown, and how much of long lists. */
let passShown = 0;
const MOST_LISTED = 30;

const section = (title, ...content) => h("section", {}, h("h3", {}, title), content);

/** A button that goes to a part. */
function goTo(part, text, note) {
  return h(
    "button",
    { class: "link", type: "button", onclick: () => visit(part) },
    plain(text),
    note && h("span", { class: "note" }, note),
  );
}

function list(items, make) {
  const shown = items.slice(0, MOST_LISTED).map((item) => h("li", {}, make(item))),
    rest = items.length - MOST_LISTED;
  const element = h("ul", { class: "links" }, shown);
  if (rest > 0) {
    element.append(
      h(
        "li",
        {},
        h(
          "button",
          {
            class: "link",
            type: "button",
            onclick: () => {
              element.replaceChildren(...items.map((item) => h("li", {}, make(item))));
            },
          },
          `${grouped(rest)} more`,
        ),
      ),
    );
  }
  return element;
}

function showDetails() {
  const part = view.selected,
    scene = view.scene;
  panelBody.replaceChildren(
    ...(part <= 0
      ? overview(scene)
      : scene.kind[part] === OP
        ? opDetails(scene, part)
        : boxDetails(scene, part)
    ).filter(Boolean),
  );
  panel.scrollTop = 0;
}

function openPanel(open) {
  panel.hidden = !open;
  byId("panel-button").setAttribute("aria-expanded", String(open));
  if (open) showDetails();
}

function titleOf(scene, part) {
  const note = scene.text(part, "tag");
  return h("h2", { tabindex: -1 }, plain(scene.text(part, "title")), note && h("small", {}, plain(note)));
}

/** The boxes a part is in, outermost first, as a way back out. */
function path(scene, part) {
  const boxes = [];
  for (let box = scene.parent[part]; box > 0; box = scene.parent[box]) boxes.unshift(box);
  if (!boxes.length) return null;
  return h(
    "nav",
    { class: "path", "aria-label": "Inside of" },
    boxes.map((box, place) => [place ? " › " : "", goTo(box, scene.text(box, "title"))]),
  );
}

function reachButtons() {
  const button = (way, text) =>
    h(
      "button",
      {
        class: "button",
        type: "button",
        "aria-pressed": String(view.reach === way),
        onclick: () => {
          view.reach = view.reach === way ? "" : way;
          showDetails();
          draw();
        },
      },
      text,
    );
  return h(
    "div",
    { class: "buttons", role: "group", "aria-label": "Highlight" },
    button("up", "↑ upstream"),
    button("down", "↓ downstream"),
    button("both", "↕ both"),
  );
}

function overview(scene) {
  const ofStatus = (status) =>
    [...scene.marks].filter(([part, mark]) => mark.status === status && scene.kind[part] === OP).map(([part]) => part);
  const root = [...scene.modules.values()].map(({ boxes }) => boxes[0]).find((box) => string(box[2]));
  const added = ofStatus(ADDED),
    removed = ofStatus(REMOVED),
    name = (part) => goTo(part, scene.text(part, "label"), scene.text(part, "third") || scene.text(part, "second"));
  const apart = [...scene.marks]
    .filter(([, mark]) => mark.distance > 0)
    .sort(([, a], [, b]) => b.distance - a.distance)
    .map(([part]) => part);
  return [
    h("h2", {}, plain(DATA.title)),
    h("p", { class: "quiet" }, "Click a node for everything about it. Press ? for the keys."),
    section("Totals", rows([...boxTotals(scene, 0), ["parameters", root && root[5] ? grouped(root[5]) : null]])),
    isTwoRuns() &&
      section(`Added: ${added.length}`, added.length ? list(added, name) : h("p", { class: "quiet" }, "none")),
    isTwoRuns() &&
      apart.length > 0 &&
      section(
        "Furthest apart",
        list(apart.slice(0, 8), (part) => goTo(part, scene.text(part, "label"), string(scene.marks.get(part).text))),
      ),
    isTwoRuns() &&
      section(`Removed: ${removed.length}`, removed.length ? list(removed, name) : h("p", { class: "quiet" }, "none")),
  ];
}
