// Elements, made without markup: whatever a model is called stays text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

/** Control and direction characters made visible, so that a name cannot reorder or hide what stands around it. */
function plain(text) {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const measure = (() => {
  const context = document.createElement("canvas").getContext("2d"),
    known = new Map();
  return (text, font) =>
    getOr(known, `${font}|${text}`, () => {
      context.font = font;
      return context.measureText(text).width;
    });
})();

/** A text that fits, cut with an ellipsis if it has to be. */
function fitted(text, width, font) {
  const shown = plain(text).slice(0, 400);
  if (measure(shown, font) <= width) return shown;
  const characters = Array.from(shown);
  let low = 0,
    high = characters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(characters.slice(0, middle).join("") + "…", font) <= width) low = middle;
    else high = middle - 1;
  }
  return characters.slice(0, low).join("") + "…";
}
