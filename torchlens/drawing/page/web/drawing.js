// Keeps the elements in step with what is open and where one looks. Only what is near the window has any.

/** Below this size on the screen, in pixels, the inside of a box is left out. */
const SMALLEST = 22;
/** Below this scale texts are left out. */
const FAR = 0.28;
const drawn = new Map();
let shownParts = [],
  shownCurves = [],
  paletteNow = null,
  paletteVersion = "";

/** @returns {Set<number>|null} the ops upstream or downstream of the selected part, and itself */
const reached = () => {
  if (!view.reach || view.selected <= 0) return null;
  const key = `${view.number}.${view.selected}.${view.reach}`;
  if (reached.key !== key) [reached.key, reached.found] = [key, reach(view.scene, view.selected, view.reach)];
  return reached.found;
};

function reach(scene, part, way) {
  const found = new Set(scene.leaves(part));
  const follow = (lists, ends) => {
    const waiting = [...scene.leaves(part)],
      seen = new Set(waiting);
    while (waiting.length) {
      for (const link of lists.get(waiting.pop()) ?? []) {
        if (seen.has(ends[link])) continue;
        seen.add(ends[link]);
        found.add(ends[link]);
        waiting.push(ends[link]);
      }
    }
  };
  if (way !== "down") follow(scene.into, scene.links.source);
  if (way !== "up") follow(scene.outOf, scene.links.target);
  return found;
}

/** Calls back for all that is in sight, outer before inner: each node, and each curve with its box's corner. */
function walk(onNode, onCurve) {
  const scene = view.scene,
    k = camera.scale,
    { whole, height } = clear(),
    edge = 160;
  const area = {
    left: (-camera.x - edge) / k,
    top: (-camera.y - edge) / k,
    right: (whole - camera.x + edge) / k,
    bottom: (height - camera.y + edge) / k,
  };
  const inside = (box, x, y) => {
    const layout = layoutOf(scene, box);
    for (const curve of cachedCurves(scene, box, layout)) onCurve(curve, x, y, area);
    (scene.children[box] ?? []).forEach((part, slot) => {
      const item = layout.items[slot],
        left = x + item.x,
        top = y + item.y;
      const isSeen =
        left < area.right && left + item.width > area.left && top < area.bottom && top + item.height > area.top;
      if (!isSeen && !scene.holds(part, view.selected)) return;
      onNode(part, { x: left, y: top, width: item.width, height: item.height });
      const isOpen = scene.isBox(part) && scene.open[part];
      if (isOpen && isLarge(item, k)) inside(part, left, top);
    });
  };
  inside(0, 0, 0);
}

const isLarge = (size, k) => size.width * k > SMALLEST && size.height * k > SMALLEST;

function cachedCurves(scene, box, layout) {
  layout.curves ??= curvesOf(scene, box).map((curve) => ({ ...curve, box: boundsOf(curve.d) }));
  return layout.curves;
}

/** Left, top, right, bottom of a path's points. */
function boundsOf(d) {
  const numbers = d.match(/-?\d+(\.\d+)?/g).map(Number),
    xs = numbers.filter((_, i) => i % 2 === 0),
    ys = numbers.filter((_, i) => i % 2);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

let waiting = false;
/** Draws with the next frame. */
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    if (waiting) drawNow();
  });
}

function drawNow() {
  waiting = false;
  const scene = view.scene,
    wanted = new Set(),
    order = [];
  world.setAttribute("transform", `translate(${camera.x.toFixed(2)} ${camera.y.toFixed(2)}) scale(${camera.scale})`);
  stage.classList.toggle("far", camera.scale < FAR);
  shownParts = [];
  shownCurves = [];
  const keep = (key, stamp, x, y, make) => {
    let entry = drawn.get(key);
    if (!entry || entry.stamp !== stamp) {
      const element = make();
      if (entry) {
        if (entry.element.contains(document.activeElement))
          queueMicrotask(() => element.focus({ preventScroll: true }));
        entry.element.remove();
      }
      element.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      drawn.set(key, (entry = { element, stamp }));
    }
    wanted.add(key);
    order.push(entry.element);
  };
  walk(
    (part, place) => {
      shownParts.push({ part, ...place });
      const corner = `${place.x.toFixed(1)}.${place.y.toFixed(1)}`;
      const stamp = `${view.number}.${corner}.${place.width}.${place.height}.${scene.open[part]}`;
      keep(`n${part}`, stamp, place.x, place.y, () => nodeElement(scene, part, place));
    },
    (curve, x, y, area) => {
      const [left, top, right, bottom] = curve.box;
      if (x + left > area.right || x + right < area.left - 40 || y + top > area.bottom || y + bottom < area.top) return;
      shownCurves.push({ ...curve, x, y });
      keep(`e${curve.key}`, `${view.number}.${x.toFixed(1)}.${y.toFixed(1)}.${curve.d}`, x, y, () =>
        edgeElement(scene, curve),
      );
    },
  );
  for (const [key, { element }] of drawn) {
    if (wanted.has(key)) continue;
    element.remove();
    drawn.delete(key);
  }
  place(order);
  paint();
}

/** Puts the elements in order with as few moves as may be. */
function place(order) {
  let next = world.firstChild;
  for (const element of order) {
    if (element === next) next = next.nextSibling;
    else world.insertBefore(element, next);
  }
}

/** Gives every node and edge the classes of its color, the selection and what is reached. */
function paint() {
  const scene = view.scene,
    lit = reached(),
    selected = view.selected;
  const version = `${view.number}.${view.version}.${view.color}`;
  const nodes = allShown(scene, version);
  if (paletteVersion !== version) {
    paletteNow = palette(scene, nodes);
    paletteVersion = version;
    showLegend(paletteNow);
  }
  for (const { part } of shownParts) {
    const { element } = drawn.get(`n${part}`),
      isOpen = scene.isBox(part) && scene.open[part];
    const classes = ["node", DATA.kinds[scene.kind[part]], isOpen ? "open" : "closed"];
    if (isOpen) classes.push(shadeOf(scene.depth[part]));
    if (scene.kind[part] === OP) classes.push(`kind-${string(OPS.kind[scene.ops(part)[0]])}`);
    if (!isOpen || view.color === "difference") classes.push(paletteNow.of(part));
    classes.push(statusClass(statusOf(scene, part)));
    if (part === selected) classes.push("selected");
    if (lit && !hasLit(scene, part, lit)) classes.push("dim");
    const text = classes.filter(Boolean).join(" ");
    if (element.getAttribute("class") !== text) element.setAttribute("class", text);
    element.setAttribute("tabindex", part === selected ? 0 : -1);
  }
  const { source, target } = scene.links;
  for (const curve of shownCurves) {
    const { element } = drawn.get(`e${curve.key}`);
    const near =
      selected > 0 &&
      curve.links.some(
        (link) =>
          scene.holds(selected, source[link]) !== scene.holds(selected, target[link]) ||
          (source[link] === target[link] && selected === source[link]),
      );
    element.classList.toggle("near", near);
    element.classList.toggle(
      "dim",
      !!lit && !curve.links.some((link) => lit.has(source[link]) && lit.has(target[link])),
    );
  }
}

/** Deeper is darker; far down each box is only told from the one around it. */
const shadeOf = (depth) => `l${depth < 5 ? depth : 4 - (depth % 2)}`;

function hasLit(scene, part, lit) {
  if (scene.kind[part] === OP) return lit.has(part);
  for (const leaf of scene.leaves(part)) if (lit.has(leaf)) return true;
  return false;
}

/** All closed nodes of the whole picture, in sight or not: what the colors compare. */
function allShown(scene, version) {
  if (allShown.version === version) return allShown.found;
  const found = [];
  for (let part = 1; part < scene.size; part++) {
    if (scene.isBox(part) && scene.open[part]) continue;
    found.push(part);
    part = scene.end[part] - 1;
  }
  [allShown.version, allShown.found] = [version, found];
  return found;
}
