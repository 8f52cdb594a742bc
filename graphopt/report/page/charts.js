"use strict";
/* The charts. Colours are CSS variables, so a change between light and dark needs no drawing. */
const charts = (() => {
  const colour = (i) => (i < 0 ? "var(--faint)" : `var(--c${i === 0 ? 0 : ((i - 1) % 6) + 1})`);
  const symbols = ["circle", "square", "triangle", "diamond", "star", "cross", "wye"];
  const ms = (x) => (x >= 100 ? x.toFixed(0) : x >= 1 ? x.toFixed(2) : x.toFixed(3));
  const times = (r) => `${r[0].toFixed(3)}× (${r[1].toFixed(3)} to ${r[2].toFixed(3)})`;
  const percent = (x) => {
    const size = Math.abs(100 * x).toFixed(2);
    return `${Number(size) === 0 ? "" : x > 0 ? "+" : "−"}${size} %`;
  };
  const place = (variants, name) => variants.findIndex((v) => v.name === name);

  function draw(box, options) {
    box.replaceChildren(Plot.plot({
      width: box.clientWidth, marginLeft: 8, marginRight: 16, style: {background: "transparent", color: "var(--text)"}, ...options,
    }));
  }

  /* Names stand above their rows, not beside them: they are long, and a telephone is narrow. What is said of a row stands at
     the right of its name, or below it where both don't fit. Of a row of the given height, `head` is for these. */
  function rows(box, entries, field, note, body) {
    const lines = note && box.clientWidth < 520 ? 2 : 1;
    const head = 15 * lines + 4;
    const text = (options) => Plot.text(entries, {fy: field, textOverflow: "ellipsis", ...options});
    const marks = [heads(box, entries, field, note && lines === 1 ? 0.5 : 1)];
    if (note) marks.push(text({text: note, fill: "var(--faint)", stroke: "var(--card)", ...(lines > 1 ? {frameAnchor: "top-left", dx: 4, dy: 15} : {frameAnchor: "top-right"})}));
    return {
      marks, height: 46 + (head + body) * entries.length * 1.06, marginTop: 4, marginBottom: 34,
      y: {axis: null, domain: [1, -head / body]}, fy: {axis: null, domain: entries.map((e) => e[field]), padding: 0.05},
    };
  }

  /* Names of rows, clipped to a part of the width: of 13 pixels each, and bold ones are a tenth wider than Plot reckons. */
  const heads = (box, entries, field, part = 1) => Plot.text(entries, {
    fy: field, text: field, frameAnchor: "top-left", dx: 4, fontWeight: 600, lineWidth: (part * (box.clientWidth - 30)) / 14.5, textOverflow: "ellipsis", stroke: "var(--card)", fill: "var(--text)",
  });

  function latency(box, subject) {
    const variants = subject.variants.filter((v) => v.samples.length);
    const dots = variants.flatMap((v) => v.samples.map((x, i) => ({name: v.name, x, y: ((i * 0.6180339887) % 1) * 0.8 + 0.1})));
    const boxes = variants.map((v) => {
      const sorted = Float64Array.from(v.samples).sort();
      return {name: v.name, low: d3.quantileSorted(sorted, 0.25), mid: d3.quantileSorted(sorted, 0.5), high: d3.quantileSorted(sorted, 0.75)};
    });
    // One slow turn must not squeeze all others into a line: what lies far out is counted, not drawn.
    const low = d3.min(dots, (d) => d.x);
    const top = d3.max(boxes, (b) => b.high + 4 * Math.max(b.high - b.low, 0.01 * b.mid));
    const high = Math.min(d3.max(dots, (d) => d.x), top);
    for (const [i, {samples, count}] of variants.entries()) boxes[i].beyond = Math.round((samples.filter((x) => x > high).length / samples.length) * count);
    const pad = 0.03 * (high - low || low || 1);
    const frame = rows(box, boxes, "name", (b) => `median ${ms(b.mid)} ms${b.beyond ? `, ${plural(b.beyond, "turn")} beyond the edge` : ""}`, 44);
    draw(box, {
      ...frame,
      x: {label: "milliseconds", domain: [low - pad, high + pad], grid: true, ticks: Math.max(3, box.clientWidth / 90)},
      marks: [
        ...frame.marks,
        Plot.rect(boxes, {fy: "name", x1: "low", x2: "high", y1: 0, y2: 1, fill: (b) => colour(place(subject.variants, b.name)), fillOpacity: 0.16}),
        Plot.dot(dots.filter((d) => d.x <= high), {fy: "name", x: "x", y: "y", r: 2.2, fill: (d) => colour(place(subject.variants, d.name)), fillOpacity: 0.5}),
        Plot.ruleX(boxes, {fy: "name", x: "mid", y1: 0, y2: 1, stroke: "var(--text)", strokeWidth: 2}),
      ],
    });
  }

  function speedup(box, subject) {
    const bars = subject.variants.filter((v) => v.ratio).map((v) => ({name: v.name, verdict: v.verdict, ratio: v.ratio, x: v.ratio[0], low: v.ratio[1], high: v.ratio[2]}));
    const low = Math.min(1, d3.min(bars, (r) => r.low)), high = Math.max(1, d3.max(bars, (r) => r.high));
    const pad = 0.06 * Math.max(high - low, 0.02);
    const fill = (r) => ({faster: "var(--c1)", slower: "var(--c2)", equal: "var(--c0)", unclear: "var(--c0)"}[r.verdict]);
    const frame = rows(box, bars, "name", (r) => `${times(r.ratio)} ${r.verdict}`, 30);
    draw(box, {
      ...frame,
      x: {label: "times as fast as the baseline", domain: [low - pad, high + pad], grid: true, ticks: Math.max(3, box.clientWidth / 110)},
      marks: [
        ...frame.marks,
        Plot.rect(bars, {fy: "name", x1: 1, x2: "x", y1: 0.1, y2: 0.9, fill, fillOpacity: 0.55}),
        Plot.link(bars, {fy: "name", x1: "low", x2: "high", y1: 0.5, y2: 0.5, stroke: "var(--text)", strokeWidth: 2}),
        Plot.ruleX(bars.flatMap((r) => [{name: r.name, x: r.low}, {name: r.name, x: r.high}]), {fy: "name", x: "x", y1: 0.3, y2: 0.7, stroke: "var(--text)", strokeWidth: 2}),
        Plot.ruleX(bars, {fy: "name", x: 1, y1: 0, y2: 1, stroke: "var(--text)", strokeDasharray: "4 3"}),
      ],
    });
  }

  function operators(box, subject, chosen) {
    const variants = subject.variants.filter((v) => v.operators.length);
    const others = variants.filter((v) => !v.baseline);
    const second = others.find((v) => v.name === chosen) || others[0];
    const pair = [variants.find((v) => v.baseline), second].filter(Boolean);
    const most = d3.rollups(pair.flatMap((v) => v.operators), (rows) => d3.max(rows, (r) => r[2]), (r) => r[0]);
    const shown = most.sort((a, b) => b[1] - a[1]).slice(0, 10).map((each) => each[0]);
    const rest = most.length > shown.length ? `${most.length - shown.length} others` : null;
    const bars = pair.flatMap((v) => {
      const of = new Map(v.operators.map((r) => [r[0], r]));
      const list = shown.map((op) => ({name: v.name, op, ms: of.has(op) ? of.get(op)[2] : 0, count: of.has(op) ? of.get(op)[1] : 0}));
      if (rest) {
        const others = v.operators.filter((r) => !shown.includes(r[0]));
        list.push({name: v.name, op: rest, ms: d3.sum(others, (r) => r[2]), count: d3.sum(others, (r) => r[1])});
      }
      return list;
    });
    const ops = rest ? [...shown, rest] : shown;
    draw(box, {
      height: 46 + (22 + 15 * pair.length) * ops.length, marginTop: 4, marginBottom: 34, marginRight: 92,
      x: {label: "milliseconds", grid: true, ticks: Math.max(3, box.clientWidth / 110)},
      y: {axis: null, domain: ["", ...pair.map((v) => v.name)], padding: 0.1}, fy: {axis: null, domain: ops, padding: 0.05},
      marks: [
        heads(box, ops.map((op) => ({op})), "op"),
        Plot.barX(bars, {fy: "op", y: "name", x: "ms", fill: (d) => colour(place(subject.variants, d.name)), insetLeft: 0}),
        Plot.text(bars, {fy: "op", y: "name", x: "ms", text: (d) => (d.count ? `${ms(d.ms)} ms · ${d.count}` : "none"), textAnchor: "start", dx: 4, fill: "var(--faint)", fontSize: 11}),
        Plot.ruleX([0]),
      ],
    });
    box.prepend(key(pair.map((v) => [v.name, colour(place(subject.variants, v.name))])));
    if (others.length > 1) {
      const select = element("select", {"aria-label": "Variant to compare with the baseline", onchange: () => operators(box, subject, select.value)},
        ...others.map((v) => element("option", {selected: v === second}, v.name)));
      box.prepend(select);
    }
  }

  function key(entries) {
    const list = element("p", {class: "key"});
    for (const [name, fill, symbol = "square"] of entries) {
      const mark = shape("path", {d: d3.symbol(d3[`symbol${symbol[0].toUpperCase()}${symbol.slice(1)}`], 80)(), fill});
      list.append(element("span", {}, shape("svg", {viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true"}, mark), name));
    }
    return list;
  }

  function curve(box, subject) {
    const lines = subject.curves.map((c) => ({...c, points: [...c.points, [Math.max(c.seconds, c.points.at(-1)[0]), c.points.at(-1)[1]]]}));
    const points = lines.flatMap((c, i) => c.points.map(([x, y]) => ({name: c.name, x, y, i})));
    const start = lines[0].points[0][1];
    // A saving of a thousandth must not look like a landslide.
    const low = Math.min(d3.min(points, (p) => p.y), 0.98 * start), high = Math.max(d3.max(points, (p) => p.y), 1.005 * start);
    draw(box, {
      height: 240, marginLeft: 52, marginBottom: 36, marginTop: 10,
      x: {label: "seconds of search", ticks: Math.max(3, box.clientWidth / 110)}, y: {label: null, grid: true, domain: [low, high], nice: true, ticks: 5, tickFormat: "~g"},
      marks: [
        Plot.ruleY([start], {stroke: "var(--c0)", strokeDasharray: "4 3"}),
        Plot.line(points, {x: "x", y: "y", z: "name", curve: "step-after", stroke: (d) => colour(d.i + 1), strokeWidth: 2}),
        Plot.dot(points.length <= 80 * lines.length ? points : [], {x: "x", y: "y", r: 2.5, fill: (d) => colour(d.i + 1), symbol: (d) => symbols[d.i % symbols.length]}),
        Plot.tip(points, Plot.pointer({x: "x", y: "y", title: (d) => `${d.name}\n${ms(d.y)} ms after ${d.x.toPrecision(3)} s`})),
      ],
    });
    if (lines.length > 1) box.prepend(key(lines.map((c, i) => [c.name, colour(i + 1), symbols[i % symbols.length]])));
  }

  function families(box, subject) {
    const bars = subject.families.map((f) => ({
      name: f.fate === "kept" ? f.name : `${f.name} (${f.fate})`, predicted: f.predicted,
      ...(f.measured && {measured: f.measured[0], low: f.measured[1], high: f.measured[2]}),
    }));
    const seen = bars.filter((r) => r.measured !== undefined), priced = bars.filter((r) => r.predicted !== null);
    const note = (r) => [r.predicted === null ? null : `predicted ${percent(r.predicted)}`, r.measured === undefined ? null : `measured ${percent(r.measured)}`].filter(Boolean).join(", ");
    const frame = rows(box, bars, "name", note, 22);
    draw(box, {
      ...frame,
      x: {label: "per cent of the latency without it", transform: (x) => 100 * x, grid: true, ticks: Math.max(3, box.clientWidth / 110)},
      marks: [
        ...frame.marks,
        Plot.rect(priced, {fy: "name", x1: 0, x2: "predicted", y1: 0.05, y2: 0.95, fill: "var(--c0)", fillOpacity: 0.45}),
        Plot.link(seen, {fy: "name", x1: "low", x2: "high", y1: 0.5, y2: 0.5, stroke: "var(--c1)", strokeWidth: 2.5}),
        Plot.dot(seen, {fy: "name", x: "measured", y: 0.5, r: 5, fill: "var(--c1)", symbol: "diamond"}),
        Plot.ruleX(bars, {fy: "name", x: 0, y1: 0, y2: 1}),
      ],
    });
    box.prepend(key([["predicted", "var(--c0)"], ...(seen.length ? [["measured, with the 95 % interval", "var(--c1)", "diamond"]] : [])]));
  }

  function overview(box, subjects) {
    const names = [...new Set(subjects.flatMap((s) => s.variants.filter((v) => v.ratio).map((v) => v.name)))];
    const dots = subjects.flatMap((s) => s.variants.filter((v) => v.ratio).map((v) => ({
      subject: s.name, name: v.name, x: v.ratio[0], low: v.ratio[1], high: v.ratio[2], i: names.indexOf(v.name), text: times(v.ratio),
    })));
    if (!dots.length) return box.closest("figure").remove();
    const models = [...new Set(dots.map((r) => r.subject))];
    draw(box, {
      height: 46 + (26 + 14 * names.length) * models.length, marginTop: 4, marginBottom: 34,
      x: {label: "times as fast as the baseline", grid: true, ticks: Math.max(3, box.clientWidth / 110)},
      y: {axis: null, type: "point", domain: ["", ...names], padding: 0.6}, fy: {axis: null, domain: models, padding: 0.05},
      marks: [
        heads(box, models.map((subject) => ({subject})), "subject"),
        Plot.ruleX([1], {stroke: "var(--text)", strokeDasharray: "4 3"}),
        Plot.ruleY(dots, {fy: "subject", y: "name", x1: "low", x2: "high", stroke: (d) => colour(d.i + 1), strokeWidth: 2}),
        Plot.dot(dots, {fy: "subject", y: "name", x: "x", r: 4.5, fill: (d) => colour(d.i + 1), symbol: (d) => symbols[d.i % symbols.length], tip: true, title: (d) => `${d.name}\n${d.text}`}),
      ],
    });
    box.prepend(key(names.map((n, i) => [n, colour(i + 1), symbols[i % symbols.length]])));
  }

  return {latency, speedup, operators, curve, families, overview};
})();
