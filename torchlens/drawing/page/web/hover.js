// The card beside the pointer: an op's shapes, times and statistics, or what an edge carries.

const card = byId("card");
let hovered = null;

function rows(pairs) {
  return pairs
    .filter(([, value]) => value !== null && value !== "" && value !== undefined)
    .map(([name, value]) =>
      h(
        "div",
        { class: "row" },
        h("span", { class: "name" }, name),
        h("span", { class: "value" }, plain(String(value))),
      ),
    );
}

/** Texts that several passes have, each once, at most three. */
function several(ops, read) {
  return listed([...new Set(ops.map(read).filter((text) => text !== null && text !== ""))]);
}

const flopsOf = (op) => (OPS.flops[op] === null ? null : spaced(OPS.flops[op], "FLOPs"));

/** The range of all passes of a layer that were kept, and how much of them is not finite. */
function statisticRowsOf(ops) {
  if (ops.length === 1) return statisticRows(ops[0]);
  const all = ops.map((op) => OPS.statistics[op]).filter(Boolean),
    known = (column) => all.map((row) => row[column]).filter((value) => value !== null);
  if (!all.length) return [["values", several(ops, (op) => string(OPS.reason[op]))]];
  const sum = (...columns) =>
    all.reduce((total, row) => total + columns.reduce((part, column) => part + row[column], 0), 0);
  const of = (number) => (number ? `${grouped(number)} of ${grouped(sum(0))}` : "none");
  return [
    [
      "min … max",
      known(5).length ? `${shortNumber(Math.min(...known(5)))} … ${shortNumber(Math.max(...known(6)))}` : null,
    ],
    ["NaN", of(sum(1))],
    ["infinite", of(sum(2, 3))],
  ];
}

/** `mean` and its kin of one op; a list of names and texts. */
function statisticRows(op) {
  const found = OPS.statistics[op];
  if (!found) return [["value", string(OPS.reason[op])]];
  const [count, nan, positive, negative, , low, high, mean, std] = found;
  return [
    ["min … max", `${shortNumber(low)} … ${shortNumber(high)}`],
    ["mean ± std", `${shortNumber(mean)} ± ${shortNumber(std)}`],
    ["NaN", nan ? `${grouped(nan)} of ${grouped(count)}` : "none"],
    ["infinite", positive + negative ? `${grouped(positive + negative)} of ${grouped(count)}` : "none"],
  ];
}

/** What a function of the user's gave for the ops of a part. */
function ownRows(scene, part) {
  const entry = MEASURES.find(({ key }) => key === "own");
  if (!entry) return [];
  const amount = amountOf(scene, "own", part);
  return [[plain(entry.name), typeof amount === "number" ? entry.text(amount) : amount]];
}

function opCard(scene, part) {
  const ops = scene.ops(part),
    column = (name) => (op) => string(OPS[name][op]);
  const time = together(
      ops.map((op) => OPS.time[op]),
      true,
    ),
    flops = together(
      ops.map((op) => OPS.flops[op]),
      true,
    );
  const argumentNames = (scene.into.get(part) ?? []).length > 1 ? ` of ${scene.into.get(part).length} inputs` : "";
  return [
    h(
      "div",
      { class: "card-title" },
      plain(scene.text(part, "title")),
      h("small", {}, plain(several(ops, column("func"))), argumentNames),
    ),
    ...rows([
      [
        "op",
        ops.length > 1 ? `${scene.text(part, "label")}, ${grouped(ops.length)} passes` : scene.text(part, "label"),
      ],
      ["shape", several(ops, column("shape"))],
      ["dtype", several(ops, column("dtype"))],
      ["time", time === null ? null : duration(time)],
      ["FLOPs", flops === null ? several(ops, column("flopsReason")) || null : spaced(flops, "FLOPs")],
      [
        "bytes",
        byteCount(
          together(
            ops.map((op) => OPS.bytes[op]),
            true,
          ) ?? 0,
        ),
      ],
      ...ownRows(scene, part),
      ...statisticRowsOf(ops),
      ["difference", scene.marks.has(part) ? string(scene.marks.get(part).text) : null],
    ]),
  ];
}

function boxTotals(scene, part) {
  const amount = (key) => amountOf(scene, key, part);
  const num = [...scene.leaves(part)].length;
  return [
    ["ops", grouped(num)],
    ["time", amount("time") === null ? null : duration(amount("time"))],
    ["FLOPs", amount("flops") === null ? null : spaced(amount("flops"), "FLOPs")],
    ["bytes of values", amount("bytes") === null ? null : byteCount(amount("bytes"))],
    ...ownRows(scene, part),
  ];
}

function boxCard(scene, part) {
  const facts = scene.modules.get(part)?.boxes[0];
  return [
    h("div", { class: "card-title" }, plain(scene.text(part, "title")), h("small", {}, plain(scene.text(part, "tag")))),
    ...rows([
      ["address", facts ? string(facts[1]) : null],
      ["calls", facts ? strings(facts[3]).length : null],
      ["parameters", facts && facts[5] ? grouped(facts[5]) : null],
      ...boxTotals(scene, part),
    ]),
  ];
}

function edgeCard(scene, key) {
  const curve = shownCurves.find((entry) => entry.key === key);
  if (!curve) return null;
  const { source, target, shape, names, count } = scene.links;
  const lines = curve.links
    .slice(0, 8)
    .map((link) =>
      h(
        "div",
        { class: "edge-line" },
        h("span", {}, plain(`${scene.text(source[link], "label")} → ${scene.text(target[link], "label")}`)),
        h(
          "span",
          { class: "value" },
          [string(shape[link]), argumentsOf(scene, link), count[link] > 1 ? `×${count[link]}` : ""]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
    );
  const more = curve.links.length - lines.length;
  return [...lines, more > 0 ? h("div", { class: "edge-line" }, `and ${more} more`) : null];
}

/** Where a link goes in, said where the target has several inputs. */
function argumentsOf(scene, link) {
  if ((scene.into.get(scene.links.target[link]) ?? []).length < 2) return "";
  return `as ${strings(scene.links.names[link])
    .map((name) => (/^\d+$/.test(name) ? `argument ${name}` : plain(name)))
    .join(", ")}`;
}

function showCard(content, x, y) {
  card.replaceChildren(...content.filter(Boolean));
  card.hidden = false;
  const box = card.getBoundingClientRect(),
    gap = 14;
  card.style.left = `${x + gap + box.width > innerWidth ? Math.max(x - gap - box.width, 4) : x + gap}px`;
  card.style.top = `${Math.max(Math.min(y + gap, innerHeight - box.height - 8), 4)}px`;
}

function hideCard() {
  card.hidden = true;
  hovered = null;
}

stage.addEventListener("pointermove", (event) => {
  if (pointers.size || event.pointerType === "touch") return hideCard();
  const node = event.target.closest("[data-part]"),
    edge = event.target.closest("[data-key]");
  const found = node ? `n${node.dataset.part}` : edge ? `e${edge.dataset.key}` : null;
  if (!found) return hideCard();
  const part = node && Number(node.dataset.part);
  const content =
    hovered === found
      ? [...card.childNodes]
      : node
        ? (view.scene.kind[part] === OP ? opCard : boxCard)(view.scene, part)
        : edgeCard(view.scene, edge.dataset.key);
  hovered = found;
  if (content) showCard(content, event.clientX, event.clientY);
});
stage.addEventListener("pointerleave", hideCard);
