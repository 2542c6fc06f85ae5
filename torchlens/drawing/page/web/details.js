// The panel on the right: everything about the selected node.

const panel = byId("details"), panelBody = byId("details-body");
/** Which pass of a layer is shown, and how much of long lists. */
let passShown = 0;
const MOST_LISTED = 30;

const section = (title, ...content) => h("section", {}, h("h3", {}, title), content);

/** A button that goes to a part. */
function goTo(part, text, note) {
  return h("button", { class: "link", type: "button", onclick: () => visit(part) }, plain(text), note && h("span", { class: "note" }, note));
}

function list(items, make) {
  const shown = items.slice(0, MOST_LISTED).map((item) => h("li", {}, make(item))), rest = items.length - MOST_LISTED;
  const element = h("ul", { class: "links" }, shown);
  if (rest > 0) {
    element.append(h("li", {}, h("button", { class: "link", type: "button", onclick: () => {
      element.replaceChildren(...items.map((item) => h("li", {}, make(item))));
    } }, `${grouped(rest)} more`)));
  }
  return element;
}

function showDetails() {
  const part = view.selected, scene = view.scene;
  panelBody.replaceChildren(...(part <= 0 ? overview(scene) : scene.kind[part] === OP ? opDetails(scene, part) : boxDetails(scene, part)).filter(Boolean));
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
  return h("nav", { class: "path", "aria-label": "Inside of" }, boxes.map((box, place) => [place ? " › " : "", goTo(box, scene.text(box, "title"))]));
}

function opDetails(scene, part) {
  const ops = scene.ops(part);
  passShown = clamp(passShown, 0, ops.length - 1);
  const op = ops[passShown], mark = scene.marks.get(part);
  return [
    titleOf(scene, part), path(scene, part), reachButtons(),
    mark && section("Two runs", h("p", { class: `mark ${statusClass(mark.status)}` }, plain(markText(mark)))),
    ops.length > 1 && passes(scene, part, ops),
    section("Op", rows(opRows(op))),
    section("Called at", source(op)),
    section("Value", value(op)),
    mark && mark.twin >= 0 && section("Value in the second run", value(mark.twin)),
    ...stateSections(op),
    section("Parents", neighbors(scene, part, scene.into, scene.links.source)),
    section("Children", neighbors(scene, part, scene.outOf, scene.links.target)),
    ...moduleSections(scene, part),
  ];
}

function opRows(op) {
  const word = (name) => string(OPS[name][op]);
  return [
    ["label", word("label")], ["name", word("name")], ["kind", word("kind") === "call" ? null : word("kind")], ["function", word("func")], ["type", word("type")],
    ["module call", word("call")], ["shape", word("shape")], ["dtype", word("dtype")], ["device", word("device")],
    ["time", OPS.time[op] === null ? null : duration(OPS.time[op])], ["FLOPs", flopsOf(op) ?? (word("flopsReason") && `not known: ${word("flopsReason")}`)],
    ["bytes", byteCount(OPS.bytes[op])],
  ];
}

const markText = (mark) => [["", "In both runs", "− Only in the first run", "+ Only in the second run"][mark.status], string(mark.text)].filter(Boolean).join(": ");

function passes(scene, part, ops) {
  const choose = h("select", { "aria-label": "Pass", onchange: (event) => { passShown = Number(event.target.value); showDetails(); } },
    ops.map((op, pass) => h("option", { value: pass, selected: pass === passShown }, plain(string(OPS.label[op])))));
  const single = DATA.scenes.findIndex((raw) => !raw.rolled);
  const there = single >= 0 && scene.rolled && h("button", { class: "link", type: "button", onclick: () => {
    const op = ops[passShown];
    showScene(single, 0);
    visit(view.scene.partOfOp.get(op) ?? 0);
  } }, "show this pass");
  return section(`${ops.length} passes`, h("div", { class: "passes" }, choose, there));
}

function source(op) {
  const found = frames(op);
  if (!found.length) return h("p", { class: "quiet" }, string(OPS.kind[op]) === "call" ? "The place is not known." : "Not a call.");
  return h("ol", { class: "frames" }, found.map(({ file, line, func, text }) => h("li", {},
    h("div", { class: "place", title: plain(file) }, plain(`${baseName(file)}${line ? `:${line}` : ""}`), " in ", plain(func)), text && h("code", {}, plain(text)))));
}

function value(op) {
  const found = OPS.statistics[op];
  if (!found) return h("p", { class: "quiet" }, plain(string(OPS.reason[op])));
  const [count, nan, positive, negative, zeros, low, high, mean, std, q05, q50, q95, bins] = found;
  return [
    bins.length && histogram(bins),
    rows([
      ["elements", grouped(count)], ["min", shortNumber(low)], ["max", shortNumber(high)], ["mean", shortNumber(mean)], ["std", shortNumber(std)],
      ["5 %, median, 95 %", [q05, q50, q95].map(shortNumber).join(", ")], ["zeros", grouped(zeros)], ["NaN", grouped(nan)],
      ["+infinite", grouped(positive)], ["−infinite", grouped(negative)],
    ]),
  ];
}

function histogram([low, high, byNumber, ...counts]) {
  const most = Math.max(...counts, 1), width = 280, height = 72, each = width / counts.length;
  const bars = counts.map((count, bin) => {
    const tall = count ? Math.max((count / most) * height, 1.5) : 0;
    const from = byNumber ? low + bin : low + ((high - low) * bin) / counts.length, to = low + ((high - low) * (bin + 1)) / counts.length;
    const range = byNumber ? shortNumber(from) : `${shortNumber(from)} … ${shortNumber(to)}`;
    return svg("rect", { x: bin * each + 1, y: height - tall, width: Math.max(each - 2, 1), height: tall, rx: 1.5 }, svg("title", {}, `${range}: ${grouped(count)}`));
  });
  const label = `Histogram from ${shortNumber(low)} to ${shortNumber(high)}: ${counts.join(", ")}`;
  return h("figure", { class: "histogram" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, bars),
    h("figcaption", {}, h("span", {}, shortNumber(low)), h("span", {}, shortNumber(high))));
}

function stateSections(op) {
  return [["Parameters", OPS.params], ["Buffers", OPS.buffers]].map(([title, column]) => {
    const names = strings(column[op]);
    return names.length ? section(title, h("ul", { class: "names" }, names.map((name) => h("li", {}, plain(name))))) : null;
  });
}

function neighbors(scene, part, lists, ends) {
  const links = lists.get(part) ?? [];
  if (!links.length) return h("p", { class: "quiet" }, "none");
  const { shape, count } = scene.links;
  return list(links, (link) => {
    const note = [string(shape[link]), argumentsOf(scene, link), count[link] > 1 ? `×${count[link]}` : "", statusClass(scene.links.status[link])];
    return goTo(ends[link], scene.text(ends[link], "label"), note.filter(Boolean).join(" · "));
  });
}

function moduleSections(scene, part) {
  return (scene.modules.get(part)?.boxes ?? []).map(([label, address, type, calls, own, numel]) => {
    const names = strings(calls);
    return section("Module", rows([
      ["class", string(type)], ["address", string(address) || "the root"], [names.length > 1 ? `${names.length} calls` : "call", names.length > 6 ? `${names.slice(0, 5).join(", ")} … ${names[names.length - 1]}` : names.join(", ")],
      ["parameters", numel ? `${grouped(numel)} numbers` : "none"],
    ]), strings(own).length ? h("ul", { class: "names" }, strings(own).slice(0, MOST_LISTED).map((name) => h("li", {}, plain(name)))) : null);
  });
}

function boxDetails(scene, part) {
  const { silent = -1 } = scene.modules.get(part) ?? {}, mark = scene.marks.get(part);
  const toggles = h("button", { class: "button", type: "button", onclick: () => toggleOpen(part) }, scene.open[part] ? "Close" : "Open");
  const names = silent >= 0 ? strings(silent) : [];
  const ends = borderLinks(scene, part);
  return [
    titleOf(scene, part), path(scene, part), h("div", { class: "buttons" }, toggles), reachButtons(),
    mark && section("Two runs", h("p", { class: "mark" }, markText(mark))),
    ...moduleSections(scene, part),
    section("Totals", rows(boxTotals(scene, part))),
    section("Reads", ends.sources.length ? list(ends.sources, (other) => goTo(other, scene.text(other, "label"))) : h("p", { class: "quiet" }, "nothing from outside")),
    section("Read by", ends.users.length ? list(ends.users, (other) => goTo(other, scene.text(other, "label"))) : h("p", { class: "quiet" }, "nothing outside")),
    section("Inside", list(scene.children[part], (inner) => goTo(inner, scene.text(inner, "title"), scene.text(inner, "tag")))),
    names.length ? section("Called, but ran no op", h("ul", { class: "names" }, names.map((name) => h("li", {}, plain(name))))) : null,
  ];
}

/** What outside a box gives to it, and what takes from it. */
function borderLinks(scene, box) {
  const sources = new Set(), users = new Set();
  for (const leaf of scene.leaves(box)) {
    for (const link of scene.into.get(leaf) ?? []) if (!scene.holds(box, scene.links.source[link])) sources.add(scene.links.source[link]);
    for (const link of scene.outOf.get(leaf) ?? []) if (!scene.holds(box, scene.links.target[link])) users.add(scene.links.target[link]);
  }
  return { sources: [...sources], users: [...users] };
}

function reachButtons() {
  const button = (way, text) => h("button", {
    class: "button", type: "button", "aria-pressed": String(view.reach === way),
    onclick: () => { view.reach = view.reach === way ? "" : way; showDetails(); draw(); },
  }, text);
  return h("div", { class: "buttons", role: "group", "aria-label": "Highlight" }, button("up", "↑ upstream"), button("down", "↓ downstream"), button("both", "↕ both"));
}

function overview(scene) {
  const ofStatus = (status) => [...scene.marks].filter(([part, mark]) => mark.status === status && scene.kind[part] === OP).map(([part]) => part);
  const root = [...scene.modules.values()].map(({ boxes }) => boxes[0]).find((box) => string(box[2]));
  const added = ofStatus(ADDED), removed = ofStatus(REMOVED), name = (part) => goTo(part, scene.text(part, "label"), scene.text(part, "third") || scene.text(part, "second"));
  const apart = [...scene.marks].filter(([, mark]) => mark.distance > 0).sort(([, a], [, b]) => b.distance - a.distance).map(([part]) => part);
  return [
    h("h2", {}, plain(DATA.title)),
    h("p", { class: "quiet" }, "Click a node for everything about it. Press ? for the keys."),
    section("Totals", rows([...boxTotals(scene, 0), ["parameters", root && root[5] ? grouped(root[5]) : null]])),
    isTwoRuns() && section(`Added: ${added.length}`, added.length ? list(added, name) : h("p", { class: "quiet" }, "none")),
    isTwoRuns() && apart.length > 0 && section("Furthest apart", list(apart.slice(0, 8), (part) => goTo(part, scene.text(part, "label"), string(scene.marks.get(part).text)))),
    isTwoRuns() && section(`Removed: ${removed.length}`, removed.length ? list(removed, name) : h("p", { class: "quiet" }, "none")),
  ];
}
