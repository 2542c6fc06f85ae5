// The curves of edges: a layout's splines, stretched with it, with their ends led to where things stand now.

/** Courses of edges: on, back to what began to run no later, on to a later pass. */
const FORWARD = 0,
  BACK = 1,
  LATER = 2;
const EDGE_INSET = 10,
  TIP = 8;
const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/**
 * One curve to draw.
 * @typedef {{key: string, inside: number, from: number, to: number, d: string, tip: string, back: boolean,
 *            links: number[], middle: number[], ends: number[][]}} Curve
 */

/** @returns {Curve[]} of a box's inside, from the box's upper left corner */
function curvesOf(scene, box) {
  const template = scene.template(box),
    layout = layoutOf(scene, box),
    found = [];
  for (const [edge, links] of scene.bundles.get(box) ?? []) {
    const [start, end, course, ...numbers] = template.edges[edge],
      points = [];
    const item = scene.children[box][start];
    if (start === end && scene.isBox(item) && scene.open[item]) continue; // its inside shows what goes round
    for (let i = 0; i < numbers.length; i += 2) points.push([numbers[i], numbers[i + 1]]);
    for (const group of byEnds(scene, box, start, end, links)) {
      const from = endOf(scene, box, layout, start, group.exit, true);
      const to = endOf(scene, box, layout, end, group.entry, false);
      found.push({
        inside: box,
        from: partOf(scene, box, start),
        to: partOf(scene, box, end),
        key: `${box}.${edge}.${group.exit}.${group.entry}`,
        back: course !== FORWARD,
        links: group.links,
        ...curveBy(start, end, course)({ from, to }, points, layout),
      });
    }
  }
  return found;
}

/** What goes back takes a lane beside the items; all else goes down between them. */
function curveBy(start, end, course) {
  if (start === end) return (ends) => loopCurve(ends.from);
  if (course !== BACK) return forwardCurve;
  return start < end ? againCurve : backCurve;
}

/** The part that an edge ends at: an item, or the box itself at its border. */
const partOf = (scene, box, number) => scene.children[box][number] ?? box;

/** Links of one edge apart by where they pass the borders of open boxes at its ends; -1 at what is closed. */
function byEnds(scene, box, start, end, links) {
  const children = scene.children[box],
    groups = new Map();
  const isOpen = (number) => number < children.length && scene.isBox(children[number]) && scene.open[children[number]];
  const startOpen = isOpen(start),
    endOpen = isOpen(end);
  for (const link of links) {
    let exit = -1,
      entry = -1;
    if (startOpen || endOpen) {
      const way = scene.way(link),
        place = way.boxes.indexOf(box);
      if (startOpen) exit = borderPlace(scene, way, place - 1, 1);
      if (endOpen) entry = borderPlace(scene, way, place + 1, 0);
    }
    const group = getOr(groups, `${exit}.${entry}`, () => ({ exit, entry, links: [] }));
    group.links.push(link);
  }
  return groups.values();
}

/** Which place on the border of the box at `place` of a way the way passes: the end or start of its edge there. */
function borderPlace(scene, way, place, side) {
  const box = way.boxes[place],
    template = scene.template(box),
    number = template.edges[way.edges[place]][side];
  return number - scene.children[box].length - (side ? template.entries.length : 0);
}

/**
 * Where an edge ends: a place on the upper or lower side of an item, or on the border of the box itself.
 * In places of the template, `near` is where the space between ranks begins there, and `far` where it ends.
 */
function endOf(scene, box, layout, number, place, lower) {
  const children = scene.children[box],
    template = scene.template(box),
    step = lower ? 1 : -1;
  if (number >= children.length) {
    const own = number - children.length,
      isEntry = own < template.entries.length,
      near = isEntry ? 0 : template.size[1];
    const x = isEntry ? template.entries[own] : template.exits[own - template.entries.length];
    return { x: layout.left + layout.x(x), y: isEntry ? layout.top : layout.height, near, far: near + step * GAP };
  }
  const item = layout.items[number],
    part = children[number],
    y = lower ? item.y + item.height : item.y;
  const near = template.items[2 * number + 1] + scene.raw.parts.height[part] / 2 + (step * SLOT) / 2,
    far = near + step * GAP;
  if (place < 0) return { item, y, near, far, tip: !lower };
  const inner = layoutOf(scene, part),
    inside = scene.template(part);
  const x = lower ? inside.exits[place] : inside.entries[place];
  return { item, x: item.x + inner.left + inner.x(x), y, near, far, open: true };
}

/**
 * Down from an item, within the space below its rank to where the layout's spline goes on, and the same above
 * the other item. What lies between ranks is free, so that the ends may be wherever things stand now.
 */
function forwardCurve({ from, to }, points, layout) {
  const place = ([x, y]) => [layout.left + layout.x(x), layout.top + layout.y(y)],
    down = (y) => layout.top + layout.y(y);
  const x1 = from.x ?? beneath(place(points[0])[0], from.item),
    x2 = to.x ?? beneath(place(points[points.length - 1])[0], to.item);
  const y2 = to.y - (to.tip ? TIP : 0),
    start = [x1, down(from.near)],
    end = [x2, Math.min(down(to.near), y2)];
  const inner =
    to.far - from.far < 4
      ? []
      : cut(points, from.far, to.far)
          .flatMap(finer)
          .map((piece) => piece.map(place));
  let d = `M${at(x1, from.y)}` + (start[1] > from.y + 0.5 ? `L${at(...start)}` : "");
  if (!inner.length) d += lead(start, 0, end, 0);
  else {
    const first = inner[0],
      last = inner[inner.length - 1];
    d += lead(start, 0, first[0], slope(first[0], first[1]));
    for (const [, ...piece] of inner) d += `C${piece.map((point) => at(...point)).join(" ")}`;
    d += lead(last[3], slope(last[2], last[3]), end, 0);
  }
  if (y2 > end[1] + 0.5) d += `L${at(x2, y2)}`;
  const middle = inner.length ? inner[inner.length >> 1][0] : [(start[0] + end[0]) / 2, (start[1] + end[1]) / 2];
  return {
    d,
    tip: to.tip ? `M${at(x2, to.y)}l-3.6-${TIP}h7.2z` : "",
    ends: [
      [x1, from.y],
      [x2, to.y],
    ],
    middle,
  };
}

const beneath = (x, item) => clamp(x, item.x + EDGE_INSET, item.x + item.width - EDGE_INSET);

/** The pieces of a spline between two heights; its cubic pieces go downwards. */
function cut(points, low, high) {
  const pieces = [];
  for (let i = 0; i + 3 < points.length; i += 3) {
    let piece = points.slice(i, i + 4);
    if (piece[3][1] <= low || piece[0][1] >= high) continue;
    if (piece[0][1] < low) piece = split(piece, partAt(piece, low))[1];
    if (piece[3][1] > high) piece = split(piece, partAt(piece, high))[0];
    pieces.push(piece);
  }
  return pieces;
}

const splineParts = (points) =>
  points.flatMap((_, i) => (i % 3 || i + 3 >= points.length ? [] : [points.slice(i, i + 4)]));

function partAt(piece, height) {
  let low = 0,
    high = 1;
  for (let round = 0; round < 12; round++) {
    const middle = (low + high) / 2;
    if (split(piece, middle)[0][3][1] < height) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** A cubic piece in two, by de Casteljau's construction. */
function split([a, b, c, d], part) {
  const between = (p, q) => [p[0] + (q[0] - p[0]) * part, p[1] + (q[1] - p[1]) * part];
  const ab = between(a, b),
    bc = between(b, c),
    cd = between(c, d),
    abc = between(ab, bc),
    bcd = between(bc, cd),
    middle = between(abc, bcd);
  return [
    [a, ab, abc, middle],
    [middle, bcd, cd, d],
  ];
}

/** In four, so that what is stretched unevenly keeps to where the spline went. */
const finer = (piece) => split(piece, 0.5).flatMap((half) => split(half, 0.5));

/** How far to go sideways for each step down. */
const slope = ([x1, y1], [x2, y2]) => clamp((x2 - x1) / Math.max(Math.abs(y2 - y1), 1), -4, 4);

/** A curve down between two places, with a slope at each. */
function lead([x1, y1], slope1, [x2, y2], slope2) {
  const half = (y2 - y1) / 2;
  return `C${at(x1 + half * slope1, y1 + half)} ${at(x2 - half * slope2, y2 - half)} ${at(x2, y2)}`;
}

/** Up along a lane on the right; out of the lower and into the upper border of what is open. */
function backCurve({ from, to }, spline, layout) {
  const points = spline.map(([x, y]) => [layout.left + layout.x(x), layout.top + layout.y(y)]),
    { items } = layout;
  const right = (end) => end.item.x + end.item.width,
    middle = (end) => end.item.y + end.item.height / 2;
  const low = middle(from),
    high = middle(to),
    furthest = Math.max(
      ...splineParts(points)
        .flatMap(finer)
        .map((piece) => piece[3][0]),
    );
  const lane = Math.min(Math.max(furthest, right(from) + 16, right(to) + 16), layout.width - 8);
  const start = from.open ? [from.x, from.y] : [right(from), low],
    end = to.open ? [to.x, to.y] : [right(to), high];
  const tip = to.open ? "" : `M${at(right(to), high)}l${TIP}-3.6v7.2z`,
    ends = [start, end];
  const others = items.filter((item) => item !== from.item && item !== to.item);
  const isFree = others.every((item) => {
    const misses = (x1, x2, y) =>
      item.x > x2 || item.x + item.width < x1 || item.y - 4 > y || item.y + item.height + 4 < y;
    const missesLane =
      lane < item.x - 4 || lane > item.x + item.width + 4 || item.y > start[1] || item.y + item.height < end[1];
    return missesLane && (from.open || misses(right(from), lane, low)) && (to.open || misses(right(to), lane, high));
  });
  if (!isFree && !from.open && !to.open) {
    const back = points.reverse(),
      d = back
        .slice(1)
        .map((point, i) => `${i % 3 ? " " : "C"}${at(...point)}`)
        .join("");
    return {
      d: `M${at(...start)}L${at(...back[0])}${d}L${at(end[0] + TIP - 1, end[1])}`,
      middle: back[back.length >> 1],
      tip,
      ends,
    };
  }
  let d = `M${at(...start)}`;
  d += from.open
    ? `C${at(from.x, from.y + 26)} ${at(lane, from.y + 26)} ${at(lane, from.y - 16)}`
    : `L${at(lane - 12, low)}Q${at(lane, low)} ${at(lane, low - 12)}`;
  d += to.open
    ? `L${at(lane, to.y + 16)}C${at(lane, to.y - 26)} ${at(to.x, to.y - 26)} ${at(to.x, to.y)}`
    : `L${at(lane, high + 12)}Q${at(lane, high)} ${at(lane - 12, high)}L${at(right(to) + TIP - 1, high)}`;
  return { d, tip, middle: [lane, (start[1] + end[1]) / 2], ends };
}

/** Down along a lane on the left, from one output of a call to a later one; what comes back does so on the right. */
function againCurve({ from, to }, spline, layout) {
  const points = spline.map(([x, y]) => [layout.left + layout.x(x), layout.top + layout.y(y)]),
    { items } = layout;
  const [start, end] = [from, to].map(({ item }) => [item.x, item.y + item.height / 2]),
    tip = `M${at(...end)}l-${TIP}-3.6v7.2z`,
    ends = [start, end];
  const lane = Math.max(Math.min(...points.map(([x]) => x), start[0] - 16, end[0] - 20), 14),
    turn = clamp(Math.min(start[0], end[0] - TIP) - lane, 2, 12);
  const isFree = items.every(
    (item) =>
      item === from.item ||
      item === to.item ||
      lane > item.x + item.width + 4 ||
      item.x > Math.max(start[0], end[0]) ||
      item.y > end[1] + 4 ||
      item.y + item.height < start[1] - 4,
  );
  if (!isFree) {
    const d = points
      .slice(1)
      .map((point, i) => `${i % 3 ? " " : "C"}${at(...point)}`)
      .join("");
    return {
      d: `M${at(...start)}L${at(...points[0])}${d}L${at(end[0] - TIP + 1, end[1])}`,
      middle: points[points.length >> 1],
      tip,
      ends,
    };
  }
  const out = `M${at(...start)}L${at(lane + turn, start[1])}Q${at(lane, start[1])} ${at(lane, start[1] + 12)}`;
  const into = `L${at(lane, end[1] - 12)}Q${at(lane, end[1])} ${at(lane + turn, end[1])}`;
  const d = `${out}${into}L${at(end[0] - TIP + 1, end[1])}`;
  return { d, tip, middle: [lane, (start[1] + end[1]) / 2], ends };
}

/** From an op's right side back to it. */
function loopCurve({ item }) {
  const x = item.x + item.width,
    y = item.y + item.height / 2;
  return {
    d: `M${at(x, y + 15)}C${at(x + 36, y + 21)} ${at(x + 36, y - 21)} ${at(x + TIP - 1, y - 15)}`,
    tip: `M${at(x, y - 15)}l${TIP}-3.6v7.2z`,
    middle: [x + 29, y],
    ends: [
      [x, y + 15],
      [x, y - 15],
    ],
  };
}
