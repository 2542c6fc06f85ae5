// One node or edge as elements.

const TITLE_FONT = '600 13px system-ui, -apple-system, "Segoe UI", sans-serif';
const SMALL_FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
const PAD = 12;

/** What assistive technology says of a part. */
function spoken(scene, part) {
  const lines = ["title", "tag", "second", "third"].map((column) => scene.text(part, column)).filter(Boolean);
  const badge = scene.text(part, "badge"),
    kind = DATA.kinds[scene.kind[part]];
  const status = ["", "", "only in the first run", "only in the second run"][statusOf(scene, part)];
  return plain([kind, ...lines, spokenBadge(badge), status].filter(Boolean).join(", "));
}

const spokenBadge = (badge) =>
  badge.startsWith("×")
    ? `${badge.slice(1)} times`
    : badge.replace(/\+(\d+)/, "$1 added").replace(/−(\d+)/, "$1 removed");

function nodeElement(scene, part, place) {
  const isOpen = scene.isBox(part) && scene.open[part];
  const group = svg("g", {
    class: "node",
    "data-part": part,
    tabindex: -1,
    role: "button",
    "aria-label": spoken(scene, part),
    "aria-expanded": scene.isBox(part) ? String(!!isOpen) : null,
  });
  group.append(svg("rect", { class: "body", width: place.width, height: place.height, rx: isOpen ? 12 : 9 }));
  if (isOpen) group.append(svg("path", { class: "strip", d: strip(place.width) }));
  else if (scene.isBox(part))
    group.append(svg("path", { class: "stack", d: `M8 ${place.height + 3}H${place.width - 8}` }));
  group.append(svg("path", { class: "accent", d: `M1.5 ${isOpen ? 8 : 9}V${isOpen ? HEADER - 8 : place.height - 9}` }));
  heading(group, scene, part, place.width, isOpen);
  if (!isOpen) below(group, scene, part, place.width);
  if (scene.isBox(part)) group.append(toggle(place.width, isOpen));
  return group;
}

const strip = (width) => `M0 ${HEADER}V12Q0 0 12 0H${width - 12}Q${width} 0 ${width} 12V${HEADER}Z`;

function heading(group, scene, part, width, isOpen) {
  const sign = ["", "", "− ", "+ "][statusOf(scene, part)];
  const badge = plain(scene.text(part, "badge")),
    baseline = isOpen ? 20 : 19;
  let room = width - 2 * PAD - (scene.isBox(part) ? 22 : 0);
  const badgeWidth = badge ? measure(badge, SMALL_FONT) + 12 : 0;
  room -= badge ? badgeWidth + 6 : 0;
  const title = fitted(sign + scene.text(part, "title"), room, TITLE_FONT),
    titleWidth = measure(title, TITLE_FONT);
  group.append(svg("text", { class: "title", x: PAD, y: baseline }, title));
  const tag = fitted(scene.text(part, "tag"), room - titleWidth - 7, SMALL_FONT);
  if (tag && tag !== "…") group.append(svg("text", { class: "tag", x: PAD + titleWidth + 7, y: baseline }, tag));
  if (!badge) return;
  const right = width - PAD - (scene.isBox(part) ? 22 : 0);
  group.append(
    svg("rect", { class: "badge", x: right - badgeWidth + 4, y: baseline - 12, width: badgeWidth, height: 16, rx: 8 }),
    svg("text", { class: "badge-text", x: right - badgeWidth / 2 + 4, y: baseline, "text-anchor": "middle" }, badge),
  );
}

function below(group, scene, part, width) {
  ["second", "third"].forEach((column, row) => {
    const text = fitted(scene.text(part, column), width - 2 * PAD, SMALL_FONT);
    if (text) group.append(svg("text", { class: "line", x: PAD, y: 35 + 15 * row }, text));
  });
}

function toggle(width, isOpen) {
  const x = width - 17,
    y = 15;
  return svg(
    "g",
    { class: "toggle", transform: `translate(${x} ${y})` },
    svg("circle", { r: 8.5 }),
    svg("path", { d: isOpen ? "M-4 0H4" : "M-4 0H4M0-4V4" }),
  );
}

function edgeElement(scene, curve) {
  const { links } = scene;
  const group = svg(
    "g",
    { class: "edge", "data-key": curve.key, "data-inside": curve.inside, "data-from": curve.from, "data-to": curve.to },
    svg("path", { class: "hit", d: curve.d }),
    svg("path", { class: "wire", d: curve.d }),
    curve.tip && svg("path", { class: "tip", d: curve.tip }),
  );
  group.classList.toggle("back", curve.back);
  const statuses = new Set(curve.links.map((link) => links.status[link]));
  if (statuses.size === 1) group.classList.add(statusClass([...statuses][0]) || "same");
  const count = Math.max(...curve.links.map((link) => links.count[link]));
  if (curve.back && count > 1) group.append(edgeLabel(`×${count}`, curve.middle));
  return group;
}

function edgeLabel(text, [x, y]) {
  const width = measure(text, SMALL_FONT) + 10;
  return svg(
    "g",
    { class: "count", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
    svg("rect", { x: -width / 2, y: -9, width, height: 18, rx: 9 }),
    svg("text", { y: 4, "text-anchor": "middle" }, text),
  );
}
