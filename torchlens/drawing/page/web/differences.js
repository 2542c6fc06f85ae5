// How far two runs are apart.

/** Where the steps of the scale begin. */
const DISTANCES = [
  [0, "below 1e-6"],
  [1e-6, "from 1e-6"],
  [1e-4, "from 1e-4"],
  [1e-2, "from 0.01"],
  [1e-1, "from 0.1"],
];

function differencePalette(scene) {
  const steps = DISTANCES.map(([, text], at) => [`filled q${at + 1}`, text]).reverse();
  return {
    title: "Largest relative difference",
    of: (part) => differenceClass(scene, part),
    legend: [
      ["added", "+ only in the second run"],
      ["removed", "− only in the first run"],
      ...steps,
      ["filled q0", "equal bit for bit"],
      ["filled among", "equal but for what is added or removed in it"],
      UNKNOWN,
    ],
  };
}

function differenceClass(scene, part) {
  const { added, removed, equal, apart, worst } = differencesOf(scene)[part];
  if (added && !removed && !equal && !apart) return "added";
  if (removed && !added && !equal && !apart) return "removed";
  if (!apart && added + removed + equal) return `filled ${added || removed ? "among" : "q0"}`;
  return worst === null ? "unknown" : `filled q${1 + DISTANCES.findLastIndex(([from]) => worst >= from)}`;
}

/**
 * For each part how many of the ops in it one run has alone, are equal, and are not equal or not known to be;
 * and how far these are apart at most, null where that is not known.
 * @returns {{added: number, removed: number, equal: number, apart: number, worst: number|null}[]}
 */
function differencesOf(scene) {
  scene.differences ??= (() => {
    const found = Array.from({ length: scene.size }, () => ({ added: 0, removed: 0, equal: 0, apart: 0, worst: null }));
    for (let part = scene.size - 1; part >= 0; part--) {
      const own = found[part],
        mark = scene.kind[part] === OP ? scene.marks.get(part) : null;
      if (mark)
        own[mark.status === ADDED ? "added" : mark.status === REMOVED ? "removed" : mark.equal ? "equal" : "apart"] = 1;
      if (mark && own.apart) own.worst = mark.distance;
      if (part === 0) continue;
      const around = found[scene.parent[part]];
      for (const name of ["added", "removed", "equal", "apart"]) around[name] += own[name];
      if (own.worst !== null) around.worst = Math.max(around.worst ?? 0, own.worst);
    }
    return found;
  })();
  return scene.differences;
}

const statusOf = (scene, part) => scene.marks.get(part)?.status ?? 0;
