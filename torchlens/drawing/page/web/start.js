// What a person does, and the start.

/** For those who do not see what changes; `aloud` also on the screen. */
function say(text, aloud = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("aloud", aloud);
}

/** What was said on the screen goes with the next thing that is done. */
const hush = () => byId("status").classList.remove("aloud");
addEventListener("pointerdown", hush);
addEventListener("keydown", hush);

function select(part) {
  if (part !== view.selected) passShown = 0;
  view.selected = part;
  if (part <= 0) view.reach = "";
  if (!panel.hidden) showDetails();
  writeFragment();
  if (part > 0) say(spoken(view.scene, part));
  draw();
}

/** Selects a part wherever it is, and goes there. */
function visit(part) {
  reveal(part);
  select(part);
  if (part > 0) center(part);
}

function focusNode() {
  drawNow();
  const entry = drawn.get(`n${view.selected}`);
  if (entry) entry.element.focus({ preventScroll: true });
  else stage.focus({ preventScroll: true });
}

function toggleOpen(part) {
  const scene = view.scene;
  anchored(part, () => setOpen(part, !scene.open[part]));
  if (!scene.open[part] && view.selected !== part && scene.holds(part, view.selected)) select(part);
  else if (!panel.hidden) showDetails();
  say(`${plain(scene.text(part, "title"))} ${scene.open[part] ? "opened" : "closed"}`);
  draw();
}

/** Opens or closes much at once. */
function reopen(change) {
  change();
  if (view.selected > 0) {
    view.selected = view.scene.shown(view.selected);
    bringIntoView(view.selected);
  } else fit(START_LEAST);
  if (!panel.hidden) showDetails();
  draw();
}

function showScene(number, selected) {
  view.number = number;
  view.scene = sceneNumbered(number);
  view.selected = selected;
  view.version++;
  hideCard();
  for (const button of byId("views").children)
    button.setAttribute("aria-pressed", String(Number(button.dataset.scene) === number));
  if (selected > 0) {
    reveal(selected);
    center(selected);
  } else fit(START_LEAST);
  if (!panel.hidden) showDetails();
}

function switchScene(number = (view.number + 1) % DATA.scenes.length) {
  if (number === view.number) return;
  const to = sceneNumbered(number),
    op = passOf(view.scene, view.selected),
    part = counterpart(view.scene, view.selected, to);
  passShown = Math.max(to.ops(part).indexOf(op), 0);
  showScene(number, part);
  writeFragment();
  draw();
}

function fillViews() {
  byId("views").hidden = DATA.scenes.length < 2;
  byId("views").replaceChildren(
    ...DATA.scenes.map((raw, number) =>
      h(
        "button",
        {
          type: "button",
          class: "button",
          "data-scene": number,
          "aria-pressed": "false",
          onclick: () => switchScene(number),
        },
        raw.rolled ? "Rolled" : "Unrolled",
      ),
    ),
  );
}

let pressed = { part: -1, time: 0 };
stage.addEventListener("click", (event) => {
  if (moved >= 4) return;
  const node = event.target.closest("[data-part]");
  closeResults();
  hideCard();
  if (!node) return select(0);
  const part = Number(node.dataset.part);
  if (event.target.closest(".toggle")) {
    toggleOpen(part);
    return focusNode();
  }
  const isDouble = pressed.part === part && event.timeStamp - pressed.time < 400;
  pressed = { part: isDouble ? -1 : part, time: event.timeStamp };
  if (isDouble && view.scene.isBox(part)) {
    toggleOpen(part);
    return focusNode();
  }
  openPanel(true);
  select(part);
  focusNode();
});

const BUTTONS = {
  "zoom-in": () => zoomBy(1.25),
  "zoom-out": () => zoomBy(0.8),
  fit: () => fit(),
  "open-all": () => reopen(() => setAll(true)),
  "close-all": () => reopen(() => setAll(false)),
  "open-level": () => reopen(() => stepLevel(true)),
  "close-level": () => reopen(() => stepLevel(false)),
  "help-button": () => showHelp(help.hidden),
  "help-close": () => showHelp(false),
  "panel-button": () => openPanel(panel.hidden),
  "details-close": () => {
    openPanel(false);
    focusNode();
  },
};
for (const [id, action] of Object.entries(BUTTONS)) byId(id).addEventListener("click", action);
addEventListener("resize", draw);

byId("title").textContent = plain(DATA.title);
fillViews();
fillColors();
fillHelp();
showScene(0, 0);
drawNow();
fit(START_LEAST); // again, now that the legend is there
if (location.hash) readFragment();
drawNow();
document.documentElement.dataset.ready = "true";
