// Colors: which class a node gets for what it is colored by, and what the legend says of it.

/** Families of functions; the first that matches a type counts. */
const FAMILIES = [
  ["matrix products, convolutions", /linear|matmul|mm$|bmm|conv|einsum|addmm|baddbmm|dot$|lstm|gru|rnn/],
  ["attention", /attention/],
  ["normalization", /norm/],
  ["activation", /relu|gelu|silu|elu$|tanh|sigmoid|softmax|softplus|mish|hardswish|glu|swish/],
  ["pooling and reduction", /pool|mean|sum$|max|min$|std|var$|prod|amax|argm|topk|interpolate|upsample/],
  ["arithmetic", /add|sub|mul|div|pow|sqrt|exp|log|neg|abs|clamp|sin|cos|square|erf|lerp|where|masked/],
  ["shape and indexing", /view|reshape|transpose|permute|flatten|cat|stack|split|chunk|getitem|setitem|expand|squeeze|slice|select|unbind|gather|index|pad|repeat|roll|^t$|contiguous|^to$|^float$|clone|detach|chunk|narrow|embedding/],
];
const OTHER = FAMILIES.length;
const FAMILY_NAMES = [...FAMILIES.map(([name]) => name), "other"];
const STEPS = 6;
/** A step begins at this part of the largest that is shown. */
const PARTS = [0, 0.01, 0.05, 0.1, 0.25, 0.5];
const WORD_COLOURS = 8;
const REST = "f8";

const familyOf = (() => {
  const known = new Map();
  return (type) => getOr(known, type, () => {
    const found = FAMILIES.findIndex(([, pattern]) => pattern.test(type));
    return found < 0 ? OTHER : found;
  });
})();

/**
 * One way to color: `of` an op's part gives a number, a word, or null.
 * @typedef {{key: string, name: string, text: Function, adds: boolean, of: (scene: Scene, part: number) => any}} Measure
 */
const ownName = DATA.color[0];
const MEASURES = [
  ...[["time", "Time", duration, OPS.time], ["flops", "FLOPs", (n) => spaced(n, "FLOPs"), OPS.flops],
    ["bytes", "Bytes", byteCount, OPS.bytes]].map(([key, name, text, column]) => ({
    key, name, text, adds: true, of: (scene, part) => total(scene.ops(part).map((op) => column[op])),
  })),
  ...(ownName && !["time", "flops", "bytes"].includes(ownName)
    ? [{ key: "own", name: ownName, text: shortNumber, adds: DATA.color[1], of: (scene, part) => ownValue(scene, part) }] : []),
];

function ownValue(scene, part) {
  const value = scene.raw.values[part];
  return Array.isArray(value) ? string(value[0]) : value ?? null;
}

function total(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

/** What a box has in which there are several words. */
const SEVERAL = Symbol("several");

/** For each part the sum or mean of what is in it, or its one word. */
function amountsOf(scene, key) {
  scene.amounts ??= new Map();
  return getOr(scene.amounts, key, () => {
    const measureBy = MEASURES.find((entry) => entry.key === key);
    const found = new Array(scene.size).fill(null), counts = new Int32Array(scene.size);
    const together = (a, b, share) => (a === null ? b : typeof a !== "number" || typeof b !== "number" ? (a === b ? a : SEVERAL)
      : measureBy.adds ? a + b : a * (1 - share) + b * share); // no sum, which may be too large
    for (let part = scene.size - 1; part >= 0; part--) {
      if (scene.kind[part] === OP) found[part] = measureBy.of(scene, part);
      if (found[part] === null) continue;
      counts[part] = counts[part] || 1;
      const parent = scene.parent[part];
      if (parent < 0) continue;
      counts[parent] += counts[part];
      found[parent] = together(found[parent], found[part], counts[part] / counts[parent]);
    }
    return found;
  });
}

const isTwoRuns = () => view.scene.marks.size > 0;

/** What the colors are of all nodes that are seen: `of(part)` gives a class, `legend` its meanings. */
function palette(scene, shown) {
  if (view.color === "type") return familyPalette(scene, shown);
  if (view.color === "difference") return differencePalette(scene);
  if (view.color === "none") return { of: () => "", legend: [], title: "" };
  const amounts = amountsOf(scene, view.color), entry = MEASURES.find(({ key }) => key === view.color);
  const seen = shown.map((part) => amounts[part]).filter((value) => value !== null);
  if (!seen.length) return { title: entry.name, of: () => "unknown", legend: [UNKNOWN] };
  if (seen.some((value) => typeof value !== "number")) return wordPalette(amounts, seen, entry);
  return entry.adds ? sharePalette(amounts, seen, entry) : rangePalette(amounts, seen, entry);
}

function familyPalette(scene, shown) {
  const family = (part) => familyOf(string(OPS.type[scene.ops(part)[0]]));
  const color = (number) => (number === OTHER ? WORD_COLOURS : number);
  const isCall = (part) => scene.kind[part] === OP && ["call", "boundary"].includes(string(OPS.kind[scene.ops(part)[0]]));
  const found = [...new Set(shown.filter(isCall).map(family))].sort((a, b) => a - b);
  return {
    title: "Function",
    of: (part) => (isCall(part) ? `family f${color(family(part))}` : ""),
    legend: found.map((number) => [`f${color(number)} family`, FAMILY_NAMES[number]]),
  };
}

const UNKNOWN = ["unknown", "not known"];
const largest = (values) => values.reduce((most, value) => Math.max(most, value));

function sharePalette(amounts, seen, entry) {
  const most = largest(seen);
  const step = (value) => PARTS.findLastIndex((part) => value >= part * most);
  const range = (at) => (at ? `from ${entry.text(PARTS[at] * most)}` : `below ${entry.text(PARTS[1] * most)}`);
  return {
    title: `${entry.name}, of what is shown`,
    of: (part) => (amounts[part] === null ? "unknown" : `filled q${most ? step(amounts[part]) : 0}`),
    legend: [...PARTS.map((_, at) => [`filled q${at}`, range(at)]).reverse(), UNKNOWN],
  };
}

function rangePalette(amounts, seen, entry) {
  const high = largest(seen), low = -largest(seen.map((value) => -value)), each = (high / 2 - low / 2) / STEPS; // halves, as the whole may be too large
  const step = (value) => Math.floor((value / 2 - low / 2) / each);
  const starts = each ? [...Array(STEPS).keys()].map((at) => `from ${entry.text(low + 2 * at * each)}`) : [entry.text(low)];
  return {
    title: entry.name,
    of: (part) => (amounts[part] === null ? "unknown" : `filled q${each ? clamp(step(amounts[part]), 0, STEPS - 1) : 0}`),
    legend: [...starts.map((text, at) => [`filled q${at}`, text]).reverse(), UNKNOWN],
  };
}

function wordPalette(amounts, seen, entry) {
  const text = (value) => (typeof value === "number" ? shortNumber(value) : value);
  const words = [...new Set(seen.filter((value) => value !== SEVERAL).map(text))].sort();
  const color = (word) => (words.indexOf(word) < WORD_COLOURS ? `f${words.indexOf(word)}` : REST);
  const rest = words.length > WORD_COLOURS ? [[`${REST} family`, `${words.length - WORD_COLOURS} more`]] : [];
  return {
    title: entry.name,
    of: (part) => (amounts[part] === null || amounts[part] === SEVERAL ? "" : `family ${color(text(amounts[part]))}`),
    legend: [...words.slice(0, WORD_COLOURS).map((word) => [`${color(word)} family`, word]), ...rest],
  };
}
