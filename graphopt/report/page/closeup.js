"use strict";
/* A close look at one change, in both graphs: its nodes and those around them, laid out by dagre. */
const READERS = 4; // of a value, drawn around a change; the rest is counted
const MOST = 140; // nodes of a change drawn one by one; inner parts of larger ones are drawn as one

class Closeup {
  constructor(pane, graph, drawn, choose) {
    Object.assign(this, {pane, graph, drawn, hops: 1, scale: 1, current: null});
    this.heading = element("h3", {"aria-live": "polite"}, this.graph.changes.length ? "" : "Find a node to see it and its neighbours.");
    this.subtitle = element("p", {class: "hint"});
    const step = (by) => () => choose((this.current.change + by + graph.changes.length) % graph.changes.length);
    const zoom = (factor) => () => { this.scale = Math.min(2.5, Math.max(0.2, this.scale * factor)); this.rescale(); };
    const hops = element("select", {"aria-label": "Neighbours to show", onchange: () => { this.hops = Number(hops.value); this.draw(); }},
      ...[1, 2, 3, 5].map((n) => element("option", {value: n}, n === 1 ? "direct neighbours" : `${n} nodes around`)));
    this.stepping = [element("button", {type: "button", onclick: step(-1)}, "‹ previous"), element("button", {type: "button", onclick: step(1)}, "next ›")];
    this.bar = element("div", {class: "bar"}, ...this.stepping, hops,
      element("button", {type: "button", onclick: zoom(0.8), "aria-label": "Smaller"}, "−"), element("button", {type: "button", onclick: zoom(1.25), "aria-label": "Larger"}, "+"),
      element("button", {type: "button", onclick: () => { this.scale = this.fitting(); this.rescale(); }}, "whole width"));
    this.views = this.drawn.map((side) => element("div", {class: "view", tabindex: 0, role: "region", "aria-label": `The place in the ${this.graph.names[side]} graph`}));
    this.sideHeads = this.drawn.map(() => element("h4"));
    this.detail = element("div", {class: "detail", "aria-live": "polite", hidden: true});
    this.rows = element("tbody");
    this.table = element("details", {class: "behind"}, element("summary", {}, "The same as a table"),
      element("div", {class: "wide", tabindex: 0, role: "region", "aria-label": "Nodes of this change"},
        element("table", {}, element("thead", {}, element("tr", {}, ...["", "operator", "name", "inputs", "outputs", "rule"].map((h) => element("th", {scope: "col"}, h)))), this.rows)));
    this.frame = element("div", {class: "sides"}, ...this.drawn.map((s) => element("div", {class: "side"}, this.sideHeads[s], this.views[s])));
    this.parts = [this.bar, this.frame, this.detail, this.table];
    for (const part of this.parts) part.style.display = "none";
    pane.append(this.heading, this.subtitle, ...this.parts);
  }

  show(change) {
    const {changes, operators} = this.graph;
    this.current = {change, nodes: new Set([...changes[change].removed, ...changes[change].added])};
    this.heading.textContent = `Change ${change + 1} of ${changes.length}: ${titleOf(changes[change])}`;
    this.subtitle.textContent = operators(changes[change]);
    this.draw();
  }

  showNode(node) {
    const {change, op, name} = this.graph.nodes[node];
    if (change !== null) this.show(change);
    else {
      this.current = {change: null, nodes: new Set([node])};
      this.heading.textContent = `${op} ${name}`;
      this.subtitle.textContent = "An unchanged node and its neighbours.";
      this.draw();
    }
    this.describe(node);
  }

  draw() {
    for (const part of this.parts) part.style.display = "";
    this.detail.hidden = true;
    for (const button of this.stepping) button.style.display = this.current.change === null ? "none" : "";
    this.letters = this.borders();
    for (const side of this.drawn) this.drawSide(side);
    this.focusOn(this.current.change === null ? ".node" : ".removed, .added");
    this.tabulate();
  }

  /* Values of the change that both graphs have get a letter: by it one finds the same place in the other graph. */
  borders() {
    const letters = new Map();
    const touched = [...this.current.nodes].flatMap((i) => this.graph.nodes[i].wires.filter(Boolean).flatMap((w) => [...w.inputs, ...w.outputs]));
    const has = (v, side) => this.graph.sides[side].maker.has(v) || this.graph.sides[side].readers.has(v);
    if (this.current.change === null) return letters;
    for (const v of touched) {
      if (v === null || letters.has(v) || SIDES.some((side) => this.graph.sides[side].constant(v)) || !SIDES.every((side) => has(v, side))) continue;
      const n = letters.size;
      letters.set(v, (n >= 26 ? String.fromCharCode(64 + Math.floor(n / 26)) : "") + String.fromCharCode(65 + (n % 26)));
    }
    return letters;
  }

  /* The nodes to draw of one graph: those of the change, and those around it. */
  neighbourhood(side) {
    const {maker, readers, constant} = this.graph.sides[side];
    const shown = new Set([...this.current.nodes].filter((i) => this.graph.nodes[i].wires[side]));
    const more = new Map();
    let frontier = new Set([...this.current.nodes].flatMap((i) => this.graph.nodes[i].wires.filter(Boolean).flatMap((w) => [...w.inputs, ...w.outputs])));
    for (let hop = 0; hop < this.hops; hop += 1) {
      const next = new Set();
      for (const v of frontier) {
        if (v === null || constant(v)) continue;
        const around = (readers.get(v) || []).filter((i) => !shown.has(i));
        const taken = around.length > READERS ? around.slice(0, READERS - 1) : around;
        if (around.length > taken.length) more.set(v, around.length - taken.length);
        for (const i of maker.has(v) ? [maker.get(v), ...taken] : taken) {
          if (shown.has(i)) continue;
          shown.add(i);
          for (const w of [...this.graph.nodes[i].wires[side].inputs, ...this.graph.nodes[i].wires[side].outputs]) next.add(w);
        }
      }
      frontier = next;
    }
    return {shown, more};
  }

  /* Which node of the drawing each node belongs to: itself, or the inner part of a large change that is drawn as one. */
  merged(side, shown) {
    const {maker, readers} = this.graph.sides[side];
    const home = new Map([...shown].map((i) => [i, i]));
    const own = [...shown].filter((i) => this.current.nodes.has(i));
    if (own.length <= MOST) return home;
    const around = (i) => {
      const {inputs, outputs} = this.graph.nodes[i].wires[side];
      return [...inputs.filter((v) => maker.has(v)).map((v) => maker.get(v)), ...outputs.flatMap((v) => readers.get(v) || [])];
    };
    const inner = new Set(own.filter((i) => around(i).every((j) => this.current.nodes.has(j))));
    for (const start of inner) {
      if (home.get(start) !== start) continue;
      const stack = [start];
      const seen = new Set(stack);
      while (stack.length) {
        for (const j of around(stack.pop())) {
          if (!inner.has(j) || seen.has(j)) continue;
          seen.add(j);
          stack.push(j);
          home.set(j, start);
        }
      }
    }
    return home;
  }

  drawSide(side) {
    const {shown, more} = this.neighbourhood(side);
    const home = this.merged(side, shown);
    const {maker, constant} = this.graph.sides[side];
    const layout = new dagre.graphlib.Graph({multigraph: true}).setGraph({rankdir: "TB", nodesep: 16, ranksep: 22, edgesep: 10, marginx: 12, marginy: 12});
    layout.setDefaultEdgeLabel(() => ({}));
    const members = d3.group(shown, (i) => home.get(i));
    for (const [i, list] of members) layout.setNode(`n${i}`, list.length > 1 ? crowd(list.map((j) => this.graph.nodes[j])) : card(this.graph.nodes[i], this.graph.nodes[i].wires[side].inputs.filter((v) => v !== null && constant(v)).map((v) => this.graph.values[v].type)));
    const linked = new Set();
    const link = (from, to, v) => {
      if (from === to || linked.has(`${from} ${to} ${v}`)) return;
      linked.add(`${from} ${to} ${v}`);
      const type = clip(this.graph.values[v].type, 30), tag = this.letters.get(v) || null;
      layout.setEdge(from, to, {value: v, type, tag, width: measure(type, "type") + (tag ? 20 : 4), height: 16, labelpos: "c"}, `${v}`);
    };
    const stub = (name, text, v) => layout.setNode(name, {end: true, value: v, lines: [[clip(text, 34), "name"]], width: measure(clip(text, 34), "name") + 8, height: 20});
    for (const i of shown) {
      const {inputs, outputs} = this.graph.nodes[i].wires[side], to = `n${home.get(i)}`;
      for (const v of inputs) {
        if (v === null || constant(v)) continue;
        if (!maker.has(v)) {
          stub(`i${v}`, `input ${this.graph.values[v].name}`, v);
          link(`i${v}`, to, v);
        } else if (shown.has(maker.get(v))) link(`n${home.get(maker.get(v))}`, to, v);
      }
      for (const v of outputs) {
        if (v === null) continue;
        if (this.graph.values[v].output[side]) {
          stub(`o${v}`, `output ${this.graph.values[v].name}`, v);
          link(to, `o${v}`, v);
        }
        if (more.has(v)) {
          stub(`m${v}`, `… ${more.get(v)} more readers`, v);
          link(to, `m${v}`, v);
        }
      }
    }
    this.sideHeads[side].textContent = `${this.graph.names[side]}: ${shown.size} of ${this.graph.sides[side].count} nodes`;
    if (!layout.nodeCount()) return this.views[side].replaceChildren(element("p", {}, "Nothing of this place is left in this graph."));
    dagre.layout(layout);
    const {width, height} = layout.graph();
    const svg = shape("svg", {viewBox: `0 0 ${width} ${height}`, "data-width": width, "data-height": height, role: "group", "aria-label": `${this.graph.names[side]} graph around the change`});
    for (const e of layout.edges()) svg.append(this.wire(layout.edge(e)));
    for (const name of layout.nodes()) svg.append(this.box(name, layout.node(name)));
    for (const e of layout.edges()) svg.append(tag(layout.edge(e)));
    this.views[side].replaceChildren(svg);
    this.views[side].scrollTo(0, 0);
  }

  wire(edge) {
    const line = d3.line((p) => p.x, (p) => p.y).curve(d3.curveBasis);
    const path = shape("path", {class: "wire", "data-value": edge.value, d: line(edge.points)});
    const end = edge.points.at(-1);
    const arrow = shape("path", {class: "tip", fill: "var(--faint)", d: `M${end.x} ${end.y}l-3.5 -6h7z`});
    return shape("g", {}, path, arrow);
  }

  box(name, node) {
    const g = shape("g", {transform: `translate(${node.x - node.width / 2},${node.y - node.height / 2})`});
    g.append(shape("rect", {class: "box", width: node.width, height: node.height, rx: 5}));
    node.lines.forEach(([text, kind], i) => {
      const line = shape("text", {class: kind, x: node.end ? 4 : 8, y: 15 + 14 * i});
      line.textContent = text;
      g.append(line);
    });
    if (node.end) g.setAttribute("class", "end");
    else if (node.list) g.setAttribute("class", node.state);
    else {
      const i = Number(name.slice(1));
      const {op, state, name: called} = this.graph.nodes[i];
      const words = {removed: "removed", added: "new", kept: "unchanged"}[state];
      for (const [key, value] of Object.entries({class: `node ${state}`, tabindex: 0, role: "button", "data-node": i, "aria-label": `${op}, ${words}, ${called}`})) g.setAttribute(key, value);
      const choose = () => this.describe(i);
      g.addEventListener("click", choose);
      g.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose();
      });
    }
    const title = shape("title");
    title.textContent = node.title || "";
    if (node.title) g.prepend(title);
    return g;
  }

  /* The scale at which both drawings are as wide as their boxes. */
  fitting() {
    const fits = this.drawings().map((svg) => (svg.closest(".view").clientWidth - 2) / Number(svg.dataset.width));
    return Math.min(1.1, ...fits);
  }

  drawings() {
    return this.views.map((view) => view.querySelector("svg")).filter(Boolean);
  }

  rescale() {
    for (const svg of this.drawings()) {
      svg.setAttribute("width", Number(svg.dataset.width) * this.scale);
      svg.setAttribute("height", Number(svg.dataset.height) * this.scale);
    }
  }

  /* Side by side if that can be read, else one above the other; and never so small that it can't be read: a large place
     is scrolled, from where the change begins. */
  focusOn(names) {
    const half = this.pane.clientWidth / 2 - 12;
    this.frame.classList.toggle("stacked", this.drawings().some((svg) => 0.85 * Number(svg.dataset.width) > half));
    this.scale = Math.max(0.72, this.fitting());
    this.rescale();
    for (const view of this.views) {
      const boxes = [...view.querySelectorAll(names)].map((g) => g.getBoundingClientRect());
      if (!boxes.length) continue;
      const first = boxes.reduce((a, b) => (b.top < a.top ? b : a)), frame = view.getBoundingClientRect();
      view.scrollBy(first.left + first.width / 2 - frame.left - frame.width / 2, first.top - frame.top - 90);
    }
  }

  /* One node in words; its values, and what makes them in the other graph, light up in both. */
  describe(i) {
    const node = this.graph.nodes[i];
    const home = node.wires[0] ? 0 : 1;
    const value = (v) => (v === null ? "(left out)" : `${this.graph.values[v].name}: ${this.graph.values[v].type}${this.graph.sides[home].constant(v) ? ", constant" : ""}`);
    const wires = node.wires[home];
    const states = {kept: "unchanged", removed: `only in the ${this.graph.names[0]} graph`, added: `only in the ${this.graph.names[1]} graph`};
    const facts = [["Node", node.name || "(no name)"], ["State", states[node.state]]];
    if (node.rule) facts.push(["Made by", node.rule]);
    if (node.attributes) facts.push(["Attributes", node.attributes]);
    const listed = (list) => element("dd", {}, ...list.flatMap((v, n) => (n ? [element("br"), value(v)] : [value(v)])));
    const rows = facts.flatMap(([dt, dd]) => [element("dt", {}, dt), element("dd", {}, dd)]);
    rows.push(element("dt", {}, "Inputs"), listed(wires.inputs), element("dt", {}, "Outputs"), listed(wires.outputs));
    const made = new Set(wires.outputs.filter((v) => v !== null));
    const other = 1 - home;
    const twins = [...new Set([...made].map((v) => this.graph.sides[other].maker.get(v)))].filter((j) => j !== undefined && j !== i);
    if (node.state !== "kept") {
      const text = twins.length ? twins.map((j) => `${this.graph.nodes[j].op} ${this.graph.nodes[j].name}`).join(", ") : "nothing makes its outputs: they are not needed";
      rows.push(element("dt", {}, `In the ${this.graph.names[other]} graph`), element("dd", {}, text));
    }
    this.detail.replaceChildren(element("h3", {}, node.op), element("dl", {}, ...rows));
    this.detail.hidden = false;
    for (const view of this.views) {
      for (const g of view.querySelectorAll(".node")) {
        g.classList.toggle("chosen", Number(g.dataset.node) === i);
        g.classList.toggle("twin", twins.includes(Number(g.dataset.node)));
      }
      for (const path of view.querySelectorAll(".wire")) path.classList.toggle("twin", made.has(Number(path.dataset.value)));
    }
  }

  tabulate() {
    const type = (v) => (v === null ? "-" : `${this.graph.values[v].name}: ${this.graph.values[v].type}`);
    const cell = (list) => element("td", {}, ...list.flatMap((v, n) => (n ? [element("br"), type(v)] : [type(v)])));
    this.rows.replaceChildren(...[...this.current.nodes].map((i) => {
      const node = this.graph.nodes[i], wires = node.wires[0] || node.wires[1];
      return element("tr", {}, element("td", {}, {kept: "unchanged", removed: "removed", added: "new"}[node.state]), element("th", {scope: "row"}, node.op),
        element("td", {}, node.name), cell(wires.inputs), cell(wires.outputs), element("td", {}, node.rule || ""));
    }));
  }
}

const clip = (text, limit) => (text.length <= limit ? text : `${text.slice(0, Math.ceil(limit / 2) - 1)}…${text.slice(-Math.floor(limit / 2))}`);

/* -- boxes and labels ------------------------------------------------------------------------------------------------ */

const ruler = document.createElement("canvas").getContext("2d");
const FONTS = {op: "700 13px system-ui, sans-serif", name: "10.5px ui-monospace, monospace", type: "10.5px ui-monospace, monospace", faint: "11px system-ui, sans-serif"};

function measure(text, kind) {
  ruler.font = FONTS[kind];
  return Math.ceil(ruler.measureText(text).width * 1.04);
}

function sized(lines, extra = {}) {
  return {...extra, lines, width: Math.max(...lines.map(([text, kind]) => measure(text, kind))) + 16, height: 14 * lines.length + 10};
}

/* A list in lines of at most so many characters, broken after commas. */
function wrap(text, limit, most) {
  const lines = [];
  for (const part of text ? text.split(", ") : []) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + part.length + 2 <= limit) lines[lines.length - 1] = `${last}, ${part}`;
    else if (lines.length < most) lines.push(clip(part, limit));
    else return [...lines.slice(0, -1), `${last} …`];
  }
  return lines;
}

function card(node, constants) {
  const lines = [[node.op, "op"]];
  if (node.name) lines.push([clip(node.name, 30), "name"]);
  lines.push(...wrap(node.attributes, 36, 3).map((line) => [line, "faint"]));
  for (const type of constants.slice(0, 2)) lines.push([`with ${clip(type, 28)}`, "type"]);
  if (constants.length > 2) lines.push([`and ${constants.length - 2} more constants`, "type"]);
  return sized(lines, {title: [node.op, node.name, node.rule && `made by ${node.rule}`].filter(Boolean).join("\n")});
}

function crowd(nodes) {
  return sized([[`${nodes.length} nodes inside the change`, "op"], [clip(tally(nodes.map((n) => n.op)), 44), "faint"]], {list: true, state: nodes[0].state});
}

function tag(edge) {
  const g = shape("g", {transform: `translate(${edge.x - edge.width / 2},${edge.y})`});
  const offset = edge.tag ? 18 : 2;
  g.append(shape("rect", {class: "back", x: 0, y: -8, width: edge.width, height: 16}));
  const text = shape("text", {class: "type", x: offset, y: 4});
  text.textContent = edge.type;
  g.append(text);
  if (edge.tag) {
    const letter = shape("text", {x: 8, y: 4});
    letter.textContent = edge.tag;
    g.append(shape("g", {class: "tag"}, shape("circle", {cx: 8, cy: 0, r: 8}), letter));
  }
  return g;
}
