// Numbers as short text, as torchlens/report/amounts.py has them.

const PREFIXES = ["", "K", "M", "G", "T", "P", "E"];

function threeDigits(value) {
  return value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(number) {
  let value = number,
    power = 0;
  while (value >= 999.5 && power < PREFIXES.length - 1) {
    value /= 1000;
    power++;
  }
  return [threeDigits(value), PREFIXES[power]];
}

const grouped = (number) =>
  Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");

function spaced(number, unit) {
  if (number < 10000) return `${grouped(number)} ${unit}`;
  const [digits, prefix] = scaled(number);
  return `${digits} ${prefix}${unit}`;
}

function byteCount(number) {
  if (number < 1000) return `${Math.round(number)} B`;
  const [digits, prefix] = scaled(number);
  return `${digits} ${prefix.replace("K", "k")}B`;
}

function duration(nanoseconds) {
  if (nanoseconds < 1000) return `${Math.round(nanoseconds)} ns`;
  for (const [unit, size] of [
    ["µs", 1e3],
    ["ms", 1e6],
  ]) {
    if (nanoseconds < 999.5 * size) return `${threeDigits(nanoseconds / size)} ${unit}`;
  }
  return `${threeDigits(nanoseconds / 1e9)} s`;
}

/** As a picture has what a function of the user's gave: Python's `.4g`. */
function fourDigits(number) {
  const [digits, power] = number.toExponential(3).split("e");
  if (number === 0 || (power >= -4 && power < 4)) return String(Number(number.toPrecision(4)));
  return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

/** Names with commas, the later ones counted. */
const listed = (names, most = 3) =>
  names.slice(0, most).join(", ") + (names.length > most ? ` and ${names.length - most} more` : "");

/** Of several ops together the sum or mean of what is known, or their words; null where nothing is known. */
function together(values, addsUp) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  if (known.some(Array.isArray)) {
    return listed([...new Set(known.map((value) => (Array.isArray(value) ? string(value[0]) : fourDigits(value))))]);
  }
  const amount = known.reduce((sum, value) => sum + value, 0) / (addsUp ? 1 : known.length);
  return Number.isFinite(amount) ? amount : null;
}

function shortNumber(number) {
  if (number === null || number === undefined) return "–";
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number);
  const size = Math.abs(number);
  return size >= 1e5 || size < 1e-3 ? number.toExponential(2) : String(Number(number.toPrecision(4)));
}
