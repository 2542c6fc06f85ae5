// Where one looks: pan and zoom.

const camera = { x: 0, y: 0, scale: 1 };
const MOST = 3,
  LEAST = 0.00002;
/** The page opens no smaller than texts can be read; what then is not seen lies further down. */
const START_LEAST = 0.72;
const stage = byId("stage"),
  world = byId("world");

/** The part of the stage that no panel lies over. */
function clear() {
  const box = stage.getBoundingClientRect(),
    panel = byId("details");
  const covered = panel.hidden ? 0 : panel.getBoundingClientRect().width + 12;
  return { width: Math.max(box.width - covered, 80), height: box.height, whole: box.width };
}

function zoomAt(factor, x, y) {
  const scale = clamp(camera.scale * factor, LEAST, MOST),
    real = scale / camera.scale;
  camera.x = x - (x - camera.x) * real;
  camera.y = y - (y - camera.y) * real;
  camera.scale = scale;
  draw();
}

function zoomBy(factor) {
  const { width, height } = clear();
  zoomAt(factor, width / 2, height / 2);
}

function panBy(x, y) {
  camera.x += x;
  camera.y += y;
  draw();
}

/** All of it, beside or above the legend; at the start not so small that nothing can be read. */
function fit(least = LEAST) {
  const { width, height } = clear(),
    [aside, below] = legendRoom();
  const places = [
    placeIn({ left: 0, width, height }, least),
    placeIn({ left: aside, width: width - aside, height }, least),
    placeIn({ left: 0, width, height: height - below }, least),
  ];
  const free = places.filter(({ x, bottom }) => x >= aside || bottom <= height - below);
  const { x, y, scale } = free.reduce((best, place) => (place.scale > best.scale ? place : best), free[0] ?? places[0]);
  Object.assign(camera, { x, y, scale });
  draw();
}

/** Where the whole stands in the middle of an area, as large as may be. */
function placeIn({ left, width, height }, least) {
  const whole = layoutOf(view.scene, 0),
    edge = 28;
  const largest = Math.min((width - 2 * edge) / whole.width, (height - 2 * edge) / whole.height, 1.25);
  const scale = clamp(largest, least, MOST);
  const x = left + (width - whole.width * scale) / 2;
  const y = Math.max((height - whole.height * scale) / 2, edge);
  return { x, y, scale, bottom: y + whole.height * scale };
}

/** A part in the middle, large enough to be read; an open box from its top. */
function center(part) {
  const { width, height } = clear(),
    place = placeOf(view.scene, part);
  const readable = clamp(Math.min(width / (place.width + 60), 1), 0.12, 1);
  camera.scale = Math.max(Math.min(camera.scale, 1.5), readable);
  camera.x = width / 2 - (place.x + place.width / 2) * camera.scale;
  camera.y =
    place.height * camera.scale < height * 0.8
      ? height / 2 - (place.y + place.height / 2) * camera.scale
      : 60 - place.y * camera.scale;
  draw();
}

/** Moves as little as needed for a part to be seen. */
function bringIntoView(part) {
  const { width, height } = clear(),
    place = placeOf(view.scene, part),
    edge = 40,
    k = camera.scale;
  const left = place.x * k + camera.x,
    top = place.y * k + camera.y;
  const right = left + place.width * k,
    bottom = top + Math.min(place.height * k, height - 2 * edge);
  if (k < 0.3) return center(part);
  if (left < edge) camera.x += edge - left;
  else if (right > width - edge) camera.x -= Math.min(right - width + edge, left - edge);
  if (top < edge) camera.y += edge - top;
  else if (bottom > height - edge) camera.y -= bottom - height + edge;
  draw();
}

/** Runs a change with a part staying where it is on the screen. */
function anchored(part, change) {
  const before = placeOf(view.scene, part);
  change();
  const after = placeOf(view.scene, part);
  camera.x += (before.x + before.width / 2 - after.x - after.width / 2) * camera.scale;
  camera.y += (before.y - after.y) * camera.scale;
}

stage.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? stage.clientHeight : 1;
    const box = stage.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      zoomAt(
        Math.exp(-clamp(event.deltaY * unit, -120, 120) * 0.006),
        event.clientX - box.left,
        event.clientY - box.top,
      );
    } else if (event.shiftKey && !event.deltaX) panBy(-event.deltaY * unit, 0);
    else panBy(-event.deltaX * unit, -event.deltaY * unit);
  },
  { passive: false },
);

/** On paper what the window shows, as large as the paper is wide. */
addEventListener("beforeprint", () => stage.setAttribute("viewBox", `0 0 ${stage.clientWidth} ${stage.clientHeight}`));
addEventListener("afterprint", () => stage.removeAttribute("viewBox"));

/** Pointers that are down, by id: one drags, two pinch. */
const pointers = new Map();
let moved = 0;

stage.addEventListener("pointerdown", (event) => {
  if (event.button > 0) return;
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  if (pointers.size === 1) moved = 0;
});
window.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const dx = event.clientX - last[0],
    dy = event.clientY - last[1];
  moved += Math.abs(dx) + Math.abs(dy);
  if (moved < 4) return;
  stage.classList.add("dragging");
  if (pointers.size === 2) pinch(event, last);
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  if (pointers.size === 1) panBy(dx, dy);
});
function release(event) {
  pointers.delete(event.pointerId);
  if (!pointers.size) stage.classList.remove("dragging");
}
window.addEventListener("pointerup", release);
window.addEventListener("pointercancel", release);

function pinch(event, last) {
  const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
  const apart = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
  const box = stage.getBoundingClientRect();
  zoomAt(
    apart([event.clientX, event.clientY]) / apart(last),
    (event.clientX + other[0]) / 2 - box.left,
    (event.clientY + other[1]) / 2 - box.top,
  );
}
