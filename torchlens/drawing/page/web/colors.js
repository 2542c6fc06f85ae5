// Colors: which class a node gets for what it is colored by, and what the legend says of it.

const STEPS = 6;
/** A step begins at this part of the largest that is shown. */
const PARTS = [0, 0.01, 0.05, 0.1, 0.25, 0.5];
const WORD_COLORS = 8;
const REST = "f8";

/**
 * One way to color, by a column of the ops.
 * @typedef {{key: string, name: string, text: Function, adds: boolean, column: any[]}} Measure
 */
const [askedName, askedAdds, askedIsNamed] = DATA.color ?? [];
/** @type {Measure[]} */
const MEASURES = [
  { key: "time", name: "Time", text: duration, adds: true, column: OPS.time },
  { key: "flops", name: "FLOPs", text: (number) => spaced(number, "FLOPs"), adds: true, column: OPS.flops },
  { key: "bytes", name: "Bytes", text: byteCount, adds: true, column: OPS.bytes },
];
if (DATA.color && !askedIsNamed) {
  MEASURES.push({ key: "own", name: askedName, text: fourDigits, adds: askedAdds, column: OPS.own });
}

/** What all ops of a part have together. */
function amountOf(scene, key, part) {
  scene.amounts ??= new Map();
  return getOr(
    getOr(scene.amounts, key, () => new Map()),
    part,
    () => {
      const { column, adds } = MEASURES.find((entry) => entry.key === key),
        values = [];
      for (const leaf of scene.leaves(part)) for (const op of scene.ops(leaf)) values.push(column[op]);
      return together(values, adds);
    },
  );
}

const isTwoRuns = () => view.scene.marks.size > 0;

/** What the colors are of all nodes that are seen: `of(part)` gives a class, `legend` its meanings. */
function palette(scene, shown) {
  if (view.color === "type") return familyPalette(scene, shown);
  if (view.color === "difference") return differencePalette(scene);
  if (view.color === "none") return { of: () => "", legend: [], title: "" };
  const entry = MEASURES.find(({ key }) => key === view.color),
    amount = (part) => amountOf(scene, view.color, part);
  const seen = shown.map(amount).filter((value) => value !== null);
  if (!seen.length) return { title: entry.name, of: () => "unknown", legend: [UNKNOWN] };
  if (seen.some((value) => typeof value !== "number")) return wordPalette(amount, seen, entry);
  return entry.adds ? sharePalette(amount, seen, entry) : rangePalette(amount, seen, entry);
}

function familyPalette(scene, shown) {
  const family = (part) => OPS.family[scene.ops(part)[0]],
    last = DATA.families.length - 1;
  const color = (number) => (number === last ? REST : `f${number}`);
  const isCall = (part) =>
    scene.kind[part] === OP && ["call", "boundary"].includes(string(OPS.kind[scene.ops(part)[0]]));
  const found = [...new Set(shown.filter(isCall).map(family))].sort((a, b) => a - b);
  return {
    title: "Function",
    of: (part) => (isCall(part) ? `family ${color(family(part))}` : ""),
    legend: found.map((number) => [`${color(number)} family`, DATA.families[number]]),
  };
}

const UNKNOWN = ["unknown", "not known"];
const largest = (values) => values.reduce((most, value) => Math.max(most, value));

function sharePalette(amount, seen, entry) {
  const most = largest(seen);
  const step = (value) => PARTS.findLastIndex((part) => value >= part * most);
  const range = (at) => (at ? `from ${entry.text(PARTS[at] * most)}` : `below ${entry.text(PARTS[1] * most)}`);
  return {
    title: `${entry.name}, of what is shown`,
    of: (part) => (amount(part) === null ? "unknown" : `filled q${most ? step(amount(part)) : 0}`),
    legend: [...PARTS.map((_, at) => [`filled q${at}`, range(at)]).reverse(), UNKNOWN],
  };
}

function rangePalette(amount, seen, entry) {
  const high = largest(seen),
    low = -largest(seen.map((value) => -value)),
    each = (high / 2 - low / 2) / STEPS; // halves, as the whole may be too large
  const step = (value) => Math.floor((value / 2 - low / 2) / each);
  const starts = each
    ? [...Array(STEPS).keys()].map((at) => `from ${entry.text(low + 2 * at * each)}`)
    : [entry.text(low)];
  return {
    title: entry.name,
    of: (part) => (amount(part) === null ? "unknown" : `filled q${each ? clamp(step(amount(part)), 0, STEPS - 1) : 0}`),
    legend: [...starts.map((text, at) => [`filled q${at}`, text]).reverse(), UNKNOWN],
  };
}

function wordPalette(amount, seen, entry) {
  const text = (value) => (typeof value === "number" ? entry.text(value) : value);
  const words = [...new Set(seen.map(text))].sort();
  const color = (word) => (words.indexOf(word) < WORD_COLORS ? `f${words.indexOf(word)}` : REST);
  const rest = words.length > WORD_COLORS ? [[`${REST} family`, `${words.length - WORD_COLORS} more`]] : [];
  return {
    title: entry.name,
    of: (part) => (amount(part) === null ? "" : `family ${color(text(amount(part)))}`),
    legend: [...words.slice(0, WORD_COLORS).map((word) => [`${color(word)} family`, word]), ...rest],
  };
}
