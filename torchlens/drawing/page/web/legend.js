// The legend, and the choice of colors and of light or dark.

const legend = byId("legend"),
  colorChoice = byId("color");
/** Narrower windows have no room for the legend until one asks for it. */
const LEGEND_LEAST = 700;
legend.open = innerWidth > LEGEND_LEAST;

/** How far the legend reaches into the stage from the left and from below. */
function legendRoom() {
  if (legend.hidden) return [0, 0];
  const { width, height } = legend.getBoundingClientRect(),
    margin = 14;
  return [width + margin, height + margin];
}

function showLegend({ title, legend: entries }) {
  legend.hidden = !entries.length;
  byId("legend-title").replaceChildren(plain(title));
  byId("legend-list").replaceChildren(
    ...entries.map(([classes, text]) => h("li", {}, h("span", { class: `swatch ${classes}` }), plain(text))),
  );
}

function fillColors() {
  const choices = [["type", "Function"], ...MEASURES.map(({ key, name }) => [key, name]), ["none", "No color"]];
  if (DATA.scenes.some((raw) => raw.marks.length)) choices.unshift(["difference", "Difference"]);
  colorChoice.replaceChildren(...choices.map(([key, name]) => h("option", { value: key }, plain(name))));
  view.color = !DATA.color ? choices[0][0] : askedIsNamed ? askedName : "own";
  colorChoice.value = view.color;
}

colorChoice.addEventListener("change", () => {
  view.color = colorChoice.value;
  draw();
});

const THEME = "torchlens-theme",
  dark = matchMedia("(prefers-color-scheme: dark)");

/** Where storage is forbidden, as in some frames, a choice lasts as long as the page. */
function stored() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

function showTheme(theme) {
  const name = theme ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = name;
  byId("theme").setAttribute("aria-pressed", String(name === "dark"));
}

function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    /* it then is not kept */
  }
  showTheme(theme);
}

dark.addEventListener("change", () => showTheme(stored()));
byId("theme").addEventListener("click", switchTheme);
showTheme(stored());
