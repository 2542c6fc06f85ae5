// Where everything stands: a box's layout as it came, stretched until what is open in it fits.
//
// Along each axis the stretch is monotone: nothing changes its order, so nothing can come to lie over anything.

const HEADER = 30,
  SIDE = 18,
  ROOM = 14;
/** Of layouts: the height each item is given, and the space between ranks, in which nothing stands. */
const SLOT = DATA.slot,
  GAP = DATA.gap;

/**
 * A map of one axis. Each span (from, to, needed) becomes at least as long as it needs to be;
 * places that no span covers keep their distances.
 * @param {number[][]} spans
 */
function stretch(spans) {
  if (!spans.length) return (place) => place;
  const cuts = [...new Set(spans.flatMap(([from, to]) => [from, to]))].sort((a, b) => a - b);
  const mapped = [cuts[0]];
  for (let at = 1; at < cuts.length; at++) {
    let density = 1;
    for (const [from, to, needed] of spans) {
      if (from <= cuts[at - 1] && cuts[at] <= to) density = Math.max(density, needed / (to - from));
    }
    mapped.push(mapped[at - 1] + density * (cuts[at] - cuts[at - 1]));
  }
  const last = cuts.length - 1;
  return (place) => {
    if (place <= cuts[0]) return place;
    if (place >= cuts[last]) return mapped[last] + place - cuts[last];
    let low = 0,
      high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (cuts[middle] <= place) low = middle;
      else high = middle;
    }
    return mapped[low] + ((place - cuts[low]) * (mapped[high] - mapped[low])) / (cuts[high] - cuts[low]);
  };
}

/**
 * The layout of an open box, from the box's upper left corner.
 * `left` and `top` are where its inside begins; `x` and `y` map places of the template into the inside.
 * @typedef {{width: number, height: number, left: number, top: number, x: Function, y: Function,
 *            items: {x: number, y: number, width: number, height: number}[]}} Layout
 */

/** @returns {Layout} */
function layoutOf(scene, box) {
  scene.layouts ??= new Map();
  return getOr(scene.layouts, box, () => computeLayout(scene, box));
}

function forgetLayout(scene, part) {
  for (let box = part; box >= 0; box = scene.parent[box]) scene.layouts?.delete(box);
}

function sizeOf(scene, part) {
  if (scene.isBox(part) && scene.open[part]) return layoutOf(scene, part);
  return { width: scene.raw.parts.width[part], height: scene.raw.parts.height[part] };
}

/** More space above and below an open box, as its edges may have far to go sideways. */
const roomAround = (size) => Math.min(size.width / 16, 60);

function computeLayout(scene, box) {
  const template = scene.template(box),
    children = scene.children[box] ?? [],
    across = [],
    down = [];
  const sizes = children.map((part) => sizeOf(scene, part));
  children.forEach((part, slot) => {
    if (!scene.isBox(part) || !scene.open[part]) return;
    const x = template.items[2 * slot],
      y = template.items[2 * slot + 1],
      size = sizes[slot];
    across.push([x, x + scene.raw.parts.width[part], size.width + 2 * ROOM]);
    const middle = y + scene.raw.parts.height[part] / 2,
      low = middle - SLOT / 2,
      high = middle + SLOT / 2;
    down.push([low, high, size.height]);
    const room = GAP + roomAround(size);
    if (low >= GAP - 1) down.push([low - GAP, low, room]);
    if (high <= template.size[1] - GAP + 1) down.push([high, high + GAP, room]);
  });
  const x = stretch(across),
    y = stretch(down);
  const width = x(template.size[0]),
    height = y(template.size[1]);
  const least = box === 0 ? 0 : scene.raw.parts.width[box];
  const full = Math.max(width + 2 * SIDE, least);
  const top = box === 0 ? 0 : HEADER + (template.entries.length ? 0 : ROOM / 2),
    left = (full - width) / 2;
  const items = children.map((part, slot) => ({
    x: left + placed(x, template.items[2 * slot], scene.raw.parts.width[part], sizes[slot].width),
    y:
      top +
      placed(y, template.items[2 * slot + 1] + (scene.raw.parts.height[part] - SLOT) / 2, SLOT, sizes[slot].height),
    width: sizes[slot].width,
    height: sizes[slot].height,
  }));
  const below = template.exits.length ? 0 : ROOM;
  return { width: full, height: top + height + below, left, top, x, y, items };
}

/** Where a thing begins that is centered where its middle went, within where its span went. */
function placed(map, from, length, size) {
  const low = map(from),
    high = map(from + length);
  return Math.min(Math.max(map(from + length / 2) - size / 2, low), high - size);
}

/** Where a part stands, from the corner of the whole. */
function placeOf(scene, part) {
  let x = 0,
    y = 0;
  for (let at = part; at > 0; at = scene.parent[at]) {
    const item = layoutOf(scene, scene.parent[at]).items[scene.slot[at]];
    x += item.x;
    y += item.y;
  }
  const { width, height } = sizeOf(scene, part);
  return { x, y, width, height };
}
