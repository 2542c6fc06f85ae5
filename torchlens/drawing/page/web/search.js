// Search by label, address, function, module class or source line.

const searchBox = byId("search"),
  results = byId("results");
const MOST_FOUND = 80;
let found = [],
  chosen = 0;

/** For each string of the page whether it is (3), begins with (2) or holds (1) the words. */
function matches(words) {
  searchBox.lower ??= DATA.strings.map((text) => text.toLowerCase());
  return Uint8Array.from(searchBox.lower, (text) =>
    text.includes(words) ? (text === words ? 3 : text.startsWith(words) ? 2 : 1) : 0,
  );
}

/** The places in the code that the words are in: as `file:line`, path, function or text of the line. */
function siteMatches(words, hits) {
  const frame = DATA.frames.map(
    ([file, line, func, text]) =>
      hits[file] || hits[func] || hits[text] || `${searchBox.lower[file]}:${line}`.includes(words),
  );
  return DATA.sites.map((site) => site.findLast((number) => frame[number]) ?? -1);
}

/** @returns {{part: number, rank: number, why: string}[]} best first */
function search(text) {
  const words = text.trim().toLowerCase(),
    scene = view.scene,
    answer = [];
  if (!words) return answer;
  const hits = matches(words),
    sites = siteMatches(words, hits),
    hit = (number) => (number < 0 ? 0 : hits[number]);
  const { title, label, tag } = scene.raw.parts;
  for (let part = 1; part < scene.size; part++) {
    if (scene.kind[part] === GROUP) continue;
    let rank = Math.max(3 * hit(label[part]) + 3, 3 * hit(title[part]) + 2),
      why = "";
    if (rank <= 3) {
      rank = 0;
      for (const [, address, type, calls] of scene.modules.get(part)?.boxes ?? []) {
        rank = Math.max(rank, 2 * hit(address), hit(type), ...DATA.lists[calls].map(hit));
      }
    }
    if (scene.kind[part] === OP) {
      for (const op of scene.ops(part)) {
        rank = Math.max(
          rank,
          2 * hit(OPS.label[op]),
          2 * hit(OPS.name[op]),
          hit(OPS.type[op]),
          hit(OPS.func[op]),
          hit(OPS.call[op]) ? 0.6 : 0,
        );
        if (!rank && sites[OPS.site[op]] >= 0) [rank, why] = [0.5, frameText(sites[OPS.site[op]])];
      }
    } else rank = Math.max(rank, hit(tag[part]));
    if (rank) answer.push({ part, rank, why });
  }
  return answer.sort((a, b) => b.rank - a.rank || a.part - b.part);
}

function frameText(number) {
  const [file, line, , text] = DATA.frames[number];
  return `${baseName(string(file))}:${line} ${string(text)}`;
}

function showResults() {
  const scene = view.scene,
    all = search(searchBox.value);
  found = all.slice(0, MOST_FOUND);
  chosen = 0;
  const none = searchBox.value.trim() && !all.length;
  results.hidden = !found.length && !none;
  searchBox.setAttribute("aria-expanded", String(!results.hidden));
  results.replaceChildren(
    ...found.map(({ part, why }, place) =>
      h(
        "li",
        {
          role: "option",
          id: `result-${place}`,
          onpointerdown: (event) => {
            event.preventDefault();
            take(place);
          },
        },
        h("span", { class: `dot ${DATA.kinds[scene.kind[part]]}` }),
        h(
          "span",
          { class: "result" },
          plain(scene.text(part, "title")),
          h("small", {}, plain(scene.text(part, "tag"))),
        ),
        h("span", { class: "where" }, plain(why || whereabouts(scene, part))),
      ),
    ),
    all.length > found.length ? h("li", { class: "rest" }, `${grouped(all.length - found.length)} more`) : "",
    none ? h("li", { class: "rest" }, "Nothing is called that.") : "",
  );
  choose(0);
  say(none ? "Nothing is called that." : all.length ? `${grouped(all.length)} found` : "");
}

function whereabouts(scene, part) {
  if (scene.kind[part] === OP) {
    const op = scene.ops(part)[0],
      label = scene.text(part, "label");
    return [scene.text(part, "title") === label ? "" : label, string(OPS.call[op])].filter(Boolean).join(" · ");
  }
  return string(scene.modules.get(part).boxes[0][1]);
}

function choose(place) {
  const options = results.querySelectorAll('[role="option"]');
  chosen = clamp(place, 0, Math.max(options.length - 1, 0));
  options.forEach((option, at) => option.setAttribute("aria-selected", String(at === chosen)));
  options[chosen]?.scrollIntoView({ block: "nearest" });
  if (options.length) searchBox.setAttribute("aria-activedescendant", `result-${chosen}`);
  else searchBox.removeAttribute("aria-activedescendant");
}

function take(place) {
  const entry = found[place];
  if (!entry) return;
  closeResults();
  visit(entry.part);
  focusNode();
}

function closeResults() {
  results.hidden = true;
  searchBox.setAttribute("aria-expanded", "false");
}

searchBox.addEventListener("input", showResults);
searchBox.addEventListener("focus", () => {
  if (searchBox.value) showResults();
});
searchBox.addEventListener("blur", closeResults);
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Enter") take(chosen);
  else if (event.key === "Escape") {
    closeResults();
    focusNode();
  } else return;
  event.preventDefault();
  event.stopPropagation();
});
