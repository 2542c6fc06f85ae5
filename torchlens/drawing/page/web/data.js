// The page's data, as torchlens/drawing/page/columns.py and scenes.py wrote it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const OPS = DATA.ops;

const [OP, MODULE, GROUP] = ["op", "module", "group"].map((kind) => DATA.kinds.indexOf(kind));
/** In a page of two runs; 0 is no status. */
const [BOTH, REMOVED, ADDED] = ["both", "removed", "added"].map((status) => DATA.statuses.indexOf(status));
/** The class of what has a status, and the word for it; empty for what is in both runs. */
const statusClass = (status) => (status === BOTH ? "" : DATA.statuses[status]);

const string = (number) => (number < 0 ? "" : DATA.strings[number]);
const strings = (number) => DATA.lists[number].map(string);

/** @returns {{file: string, line: number, func: string, text: string}[]} the outermost frame first */
function frames(op) {
  return DATA.sites[OPS.site[op]].map((number) => {
    const [file, line, func, text] = DATA.frames[number];
    return { file: string(file), line, func: string(func), text: string(text) };
  });
}

const baseName = (file) => file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);

/**
 * A scene: parts by number, each before what is in it, so that `part` and what is in it are the numbers
 * from `part` up to, without, `end[part]`. Part 0 holds all and is always open.
 */
class Scene {
  constructor(raw) {
    this.raw = raw;
    this.rolled = raw.rolled;
    this.size = raw.parts.kind.length;
    this.kind = raw.parts.kind;
    this.parent = raw.parts.parent;
    this.open = new Uint8Array(this.size);
    this.children = Array.from({ length: this.size }, () => null);
    this.slot = new Int32Array(this.size);
    this.depth = new Int32Array(this.size);
    this.end = new Int32Array(this.size);
    for (let part = this.size - 1; part >= 0; part--) {
      this.end[part] = this.end[part] || part + 1;
      const parent = this.parent[part];
      if (parent >= 0) this.end[parent] = Math.max(this.end[parent], this.end[part]);
    }
    for (let part = 1; part < this.size; part++) {
      const parent = this.parent[part];
      this.depth[part] = this.depth[parent] + 1;
      const siblings = (this.children[parent] ??= []);
      this.slot[part] = siblings.length;
      siblings.push(part);
    }
    this.modules = new Map(raw.modules.map(([part, silent, ...boxes]) => [part, { silent, boxes }]));
    this.marks = new Map(
      raw.marks.map(([part, status, distance, text, twin, equal]) => [
        part,
        { status, distance, text, twin, equal: !!equal },
      ]),
    );
    this.readLinks(raw.links);
    for (const [box, edge, link] of raw.loops) {
      push(
        getOr(this.bundles, this.parent[box], () => new Map()),
        edge,
        link,
      );
    }
  }

  readLinks(links) {
    this.links = links;
    this.into = new Map();
    this.outOf = new Map();
    /** By box, then by the number of an edge in it: the links it is drawn for. */
    this.bundles = new Map();
    for (let link = 0; link < links.source.length; link++) {
      push(this.outOf, links.source[link], link);
      push(this.into, links.target[link], link);
      const way = this.way(link);
      way.boxes.forEach((box, at) =>
        push(
          getOr(this.bundles, box, () => new Map()),
          way.edges[at],
          link,
        ),
      );
    }
  }

  /** The boxes that a link passes, with the number of its edge in each; `across` is where it passes over. */
  way(link) {
    const out = [],
      into = [];
    let source = this.parent[this.links.source[link]],
      target = this.parent[this.links.target[link]];
    while (source !== target) {
      if (source > target) {
        out.push(source);
        source = this.parent[source];
      } else {
        into.push(target);
        target = this.parent[target];
      }
    }
    return { boxes: [...out, source, ...into.reverse()], across: out.length, edges: [].concat(this.links.way[link]) };
  }

  template(box) {
    return this.raw.templates[this.raw.parts.template[box]];
  }
  text(part, column) {
    return string(this.raw.parts[column][part]);
  }
  ops(part) {
    return this.kind[part] === OP ? [].concat(this.raw.parts.ops[part]) : [];
  }
  holds(box, part) {
    return box <= part && part < this.end[box];
  }
  isBox(part) {
    return this.kind[part] !== OP;
  }

  *leaves(part) {
    for (let at = part; at < this.end[part]; at++) if (this.kind[at] === OP) yield at;
  }

  /** The part itself if it is seen, otherwise the closed box that it is in. */
  shown(part) {
    let found = part;
    for (let box = this.parent[part]; box > 0; box = this.parent[box]) if (!this.open[box]) found = box;
    return found;
  }

  /** The name that an address in the address bar has: the op's label or the module call's. */
  name(part) {
    if (this.kind[part] === OP) return ["op", this.text(part, "label")];
    if (this.kind[part] === GROUP || part === 0) return null;
    const [label, , type, calls] = this.modules.get(part).boxes[0];
    const names = strings(calls);
    return ["module", names.length === 1 ? names[0] : string(label) || string(type)];
  }

  /** Whether only the second of two runs has it: both may call something else the same. */
  isAdded(part) {
    return this.marks.get(part)?.status === ADDED;
  }

  /** What a name means here, in the run that is asked for if it is there; -1 if nothing. */
  find(kind, name, added = false) {
    let other = -1;
    for (let part = 1; part < this.size; part++) {
      if (!this.goesBy(part, kind, name)) continue;
      if (this.isAdded(part) === added) return part;
      if (other < 0) other = part;
    }
    return other;
  }

  goesBy(part, kind, name) {
    if (kind === "op")
      return (
        this.kind[part] === OP &&
        (this.text(part, "label") === name || this.ops(part).some((op) => string(OPS.label[op]) === name))
      );
    return !!this.modules
      .get(part)
      ?.boxes.some(
        ([label, address, type, calls]) =>
          string(label) === name ||
          string(address) === name ||
          (string(address) || string(type)) === name ||
          strings(calls).includes(name),
      );
  }

  get partOfOp() {
    const found = new Map();
    for (const part of this.leaves(0)) for (const op of this.ops(part)) found.set(op, part);
    Object.defineProperty(this, "partOfOp", { value: found });
    return found;
  }
}

function getOr(map, key, make) {
  let found = map.get(key);
  if (found === undefined) map.set(key, (found = make()));
  return found;
}

const push = (map, key, value) => getOr(map, key, () => []).push(value);
