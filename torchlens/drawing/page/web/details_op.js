// In the panel: one op.

function opDetails(scene, part) {
  const ops = scene.ops(part);
  passShown = clamp(passShown, 0, ops.length - 1);
  const op = ops[passShown],
    mark = scene.marks.get(part);
  return [
    titleOf(scene, part),
    path(scene, part),
    reachButtons(),
    mark && section("Two runs", h("p", { class: `mark ${statusClass(mark.status)}` }, plain(markText(mark)))),
    ops.length > 1 && passes(scene, part, ops),
    section("Op", rows(opRows(op))),
    section("Called at", source(op)),
    section("Value", value(op)),
    mark && mark.twin >= 0 && section("Value in the second run", value(mark.twin)),
    ...stateSections(op),
    section("Parents", neighbors(scene, part, scene.into, scene.links.source)),
    section("Children", neighbors(scene, part, scene.outOf, scene.links.target)),
    ...moduleSections(scene, part),
  ];
}

function opRows(op) {
  const word = (name) => string(OPS[name][op]);
  return [
    ["label", word("label")],
    ["name", word("name")],
    ["kind", word("kind") === "call" ? null : word("kind")],
    ["function", word("func")],
    ["type", word("type")],
    ["module call", word("call")],
    ["shape", word("shape")],
    ["dtype", word("dtype")],
    ["device", word("device")],
    ["time", OPS.time[op] === null ? null : duration(OPS.time[op])],
    ["FLOPs", flopsOf(op) ?? (word("flopsReason") && `not known: ${word("flopsReason")}`)],
    ["bytes", byteCount(OPS.bytes[op])],
  ];
}

const markText = (mark) =>
  [["", "In both runs", "− Only in the first run", "+ Only in the second run"][mark.status], string(mark.text)]
    .filter(Boolean)
    .join(": ");

function passes(scene, part, ops) {
  const choose = h(
    "select",
    {
      "aria-label": "Pass",
      onchange: (event) => {
        passShown = Number(event.target.value);
        showDetails();
      },
    },
    ops.map((op, pass) => h("option", { value: pass, selected: pass === passShown }, plain(string(OPS.label[op])))),
  );
  const single = DATA.scenes.findIndex((raw) => !raw.rolled);
  const there =
    single >= 0 &&
    scene.rolled &&
    h(
      "button",
      {
        class: "link",
        type: "button",
        onclick: () => {
          const op = ops[passShown];
          showScene(single, 0);
          visit(view.scene.partOfOp.get(op) ?? 0);
        },
      },
      "show this pass",
    );
  return section(`${ops.length} passes`, h("div", { class: "passes" }, choose, there));
}

function source(op) {
  const found = frames(op);
  if (!found.length)
    return h("p", { class: "quiet" }, string(OPS.kind[op]) === "call" ? "The place is not known." : "Not a call.");
  return h(
    "ol",
    { class: "frames" },
    found.map(({ file, line, func, text }) =>
      h(
        "li",
        {},
        h(
          "div",
          { class: "place", title: plain(file) },
          plain(`${baseName(file)}${line ? `:${line}` : ""}`),
          " in ",
          plain(func),
        ),
        text && h("code", {}, plain(text)),
      ),
    ),
  );
}

function value(op) {
  const found = OPS.statistics[op];
  if (!found) return h("p", { class: "quiet" }, plain(string(OPS.reason[op])));
  const [count, nan, positive, negative, zeros, low, high, mean, std, q05, q50, q95, bins] = found;
  return [
    bins.length && histogram(bins),
    rows([
      ["elements", grouped(count)],
      ["min", shortNumber(low)],
      ["max", shortNumber(high)],
      ["mean", shortNumber(mean)],
      ["std", shortNumber(std)],
      ["5 %, median, 95 %", [q05, q50, q95].map(shortNumber).join(", ")],
      ["zeros", grouped(zeros)],
      ["NaN", grouped(nan)],
      ["+infinite", grouped(positive)],
      ["−infinite", grouped(negative)],
    ]),
  ];
}

function histogram([low, high, byNumber, ...counts]) {
  const most = Math.max(...counts, 1),
    width = 280,
    height = 72,
    each = width / counts.length;
  const bars = counts.map((count, bin) => {
    const tall = count ? Math.max((count / most) * height, 1.5) : 0;
    const from = byNumber ? low + bin : low + ((high - low) * bin) / counts.length,
      to = low + ((high - low) * (bin + 1)) / counts.length;
    const range = byNumber ? shortNumber(from) : `${shortNumber(from)} … ${shortNumber(to)}`;
    return svg(
      "rect",
      { x: bin * each + 1, y: height - tall, width: Math.max(each - 2, 1), height: tall, rx: 1.5 },
      svg("title", {}, `${range}: ${grouped(count)}`),
    );
  });
  const label = `Histogram from ${shortNumber(low)} to ${shortNumber(high)}: ${counts.join(", ")}`;
  return h(
    "figure",
    { class: "histogram" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, bars),
    h("figcaption", {}, h("span", {}, shortNumber(low)), h("span", {}, shortNumber(high))),
  );
}

function stateSections(op) {
  return [
    ["Parameters", OPS.params],
    ["Buffers", OPS.buffers],
  ].map(([title, column]) => {
    const names = strings(column[op]);
    return names.length
      ? section(
          title,
          h(
            "ul",
            { class: "names" },
            names.map((name) => h("li", {}, plain(name))),
          ),
        )
      : null;
  });
}

function neighbors(scene, part, lists, ends) {
  const links = lists.get(part) ?? [];
  if (!links.length) return h("p", { class: "quiet" }, "none");
  const { shape, count } = scene.links;
  return list(links, (link) => {
    const note = [
      string(shape[link]),
      argumentsOf(scene, link),
      count[link] > 1 ? `×${count[link]}` : "",
      statusClass(scene.links.status[link]),
    ];
    return goTo(ends[link], scene.text(ends[link], "label"), note.filter(Boolean).join(" · "));
  });
}
