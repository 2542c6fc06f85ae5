// What is shown, and the few ways to change it.

/** At most this many nodes are seen when the page opens. */
const READABLE = DATA.readable;

const scenes = new Map();
const view = {
  number: 0,
  scene: null,
  selected: 0,
  color: "type",
  /** "" or "up" or "down" or "both": what of the selected node's graph stays bright. */
  reach: "",
  /** Rises whenever something moves. */
  version: 0,
};

function sceneNumbered(number) {
  return getOr(scenes, number, () => {
    const scene = new Scene(DATA.scenes[number]);
    openReadable(scene);
    return scene;
  });
}

/** Opens level by level as long as not too much is seen. */
function openReadable(scene) {
  scene.open[0] = 1;
  let level = scene.children[0] ?? [],
    seen = level.length;
  for (;;) {
    const boxes = level.filter((part) => scene.isBox(part));
    const more = boxes.reduce((sum, box) => sum + scene.children[box].length - 1, 0);
    if (!boxes.length || seen + more > READABLE) return;
    seen += more;
    for (const box of boxes) scene.open[box] = 1;
    level = boxes.flatMap((box) => scene.children[box]);
  }
}

function setOpen(part, open) {
  const scene = view.scene;
  if (part <= 0 || !scene.isBox(part) || !!scene.open[part] === open) return;
  scene.open[part] = open ? 1 : 0;
  forgetLayout(scene, part);
  view.version++;
}

/** Opens whatever a part is in. */
function reveal(part) {
  for (let box = view.scene.parent[part]; box > 0; box = view.scene.parent[box]) setOpen(box, true);
}

function setAll(open) {
  const scene = view.scene;
  for (let part = 1; part < scene.size; part++) if (scene.isBox(part)) scene.open[part] = open ? 1 : 0;
  scene.layouts = null;
  view.version++;
}

/** Opens the outermost level of which something is closed, or closes the innermost of which something is open. */
function stepLevel(open) {
  const scene = view.scene,
    { depth } = scene;
  let level = open ? Infinity : 0;
  for (let part = 1; part < scene.size; part++) {
    if (!scene.isBox(part) || !!scene.open[part] === open) continue;
    level = open ? Math.min(level, depth[part]) : Math.max(level, depth[part]);
  }
  for (let part = 1; part < scene.size; part++) {
    if (scene.isBox(part) && depth[part] === level) scene.open[part] = open ? 1 : 0;
  }
  scene.layouts = null;
  view.version++;
}

/** The op of a part that is looked at: of a layer one pass; undefined for a box. */
function passOf(scene, part) {
  const ops = scene.ops(part);
  return ops[passShown] ?? ops[0];
}

/** The part of another scene that stands for the same: by op, or by module and call. */
function counterpart(from, part, to) {
  if (part <= 0) return 0;
  if (from.kind[part] === OP) return to.partOfOp.get(passOf(from, part)) ?? 0;
  const name = from.kind[part] === MODULE ? from.modules.get(part).boxes[0] : null;
  if (!name) return 0;
  const [, address, , calls] = name;
  const byCall = to.find("module", strings(calls)[0]);
  return Math.max(byCall >= 0 ? byCall : to.find("module", string(address)), 0);
}
