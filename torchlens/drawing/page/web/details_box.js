// In the panel: a module or group.

function moduleSections(scene, part) {
  return (scene.modules.get(part)?.boxes ?? []).map(([label, address, type, calls, own, numel]) => {
    const names = strings(calls);
    return section(
      "Module",
      rows([
        ["class", string(type)],
        ["address", string(address) || "the root"],
        [
          names.length > 1 ? `${names.length} calls` : "call",
          names.length > 6 ? `${names.slice(0, 5).join(", ")} … ${names[names.length - 1]}` : names.join(", "),
        ],
        ["parameters", numel ? `${grouped(numel)} numbers` : "none"],
      ]),
      strings(own).length
        ? h(
            "ul",
            { class: "names" },
            strings(own)
              .slice(0, MOST_LISTED)
              .map((name) => h("li", {}, plain(name))),
          )
        : null,
    );
  });
}

function boxDetails(scene, part) {
  const { silent = -1 } = scene.modules.get(part) ?? {},
    mark = scene.marks.get(part);
  const toggles = h(
    "button",
    { class: "button", type: "button", onclick: () => toggleOpen(part) },
    scene.open[part] ? "Close" : "Open",
  );
  const names = silent >= 0 ? strings(silent) : [];
  const ends = borderLinks(scene, part);
  return [
    titleOf(scene, part),
    path(scene, part),
    h("div", { class: "buttons" }, toggles),
    reachButtons(),
    mark && section("Two runs", h("p", { class: "mark" }, markText(mark))),
    ...moduleSections(scene, part),
    section("Totals", rows(boxTotals(scene, part))),
    section(
      "Reads",
      ends.sources.length
        ? list(ends.sources, (other) => goTo(other, scene.text(other, "label")))
        : h("p", { class: "quiet" }, "nothing from outside"),
    ),
    section(
      "Read by",
      ends.users.length
        ? list(ends.users, (other) => goTo(other, scene.text(other, "label")))
        : h("p", { class: "quiet" }, "nothing outside"),
    ),
    section(
      "Inside",
      list(scene.children[part], (inner) => goTo(inner, scene.text(inner, "title"), scene.text(inner, "tag"))),
    ),
    names.length
      ? section(
          "Called, but ran no op",
          h(
            "ul",
            { class: "names" },
            names.map((name) => h("li", {}, plain(name))),
          ),
        )
      : null,
  ];
}

/** What outside a box gives to it, and what takes from it. */
function borderLinks(scene, box) {
  const sources = new Set(),
    users = new Set();
  for (const leaf of scene.leaves(box)) {
    for (const link of scene.into.get(leaf) ?? [])
      if (!scene.holds(box, scene.links.source[link])) sources.add(scene.links.source[link]);
    for (const link of scene.outOf.get(leaf) ?? [])
      if (!scene.holds(box, scene.links.target[link])) users.add(scene.links.target[link]);
  }
  return { sources: [...sources], users: [...users] };
}
