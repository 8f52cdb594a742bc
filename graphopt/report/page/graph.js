"use strict";
/* The graph before and after: what the data mean, the list of the changes, and how list, map and close look work together. */
const SIDES = [0, 1];

function tally(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => (n > 1 ? `${name} ×${n}` : name)).join(", ");
}

/* What a row of the data means; wires[side] is null where the node is not in that graph. */
function decode(data) {
  const text = (i) => (i === null ? null : data.strings[i]);
  const values = data.values.map(([name, type, ends]) => ({name, type: text(type), input: (ends & 1) > 0, output: [(ends & 2) > 0, (ends & 4) > 0]}));
  const nodes = data.nodes.map(([name, op, attributes, before, after, rule, change, column, lane], index) => {
    const wires = [before, after === 0 ? before : after].map((w) => w && {inputs: w[0], outputs: w[1]});
    const state = wires[0] ? (wires[1] ? "kept" : "removed") : "added";
    return {index, name, op: text(op), attributes: text(attributes), wires, rule: text(rule), change, column, lane, state};
  });
  const changes = data.changes.map(([rules, removed, added, kind], index) => ({index, rules: rules.map(text), removed, added, kind}));
  const sides = SIDES.map((side) => {
    const maker = new Map(), readers = new Map();
    for (const node of nodes) {
      if (!node.wires[side]) continue;
      for (const v of node.wires[side].outputs) if (v !== null) maker.set(v, node.index);
      for (const v of new Set(node.wires[side].inputs)) {
        if (v === null) continue;
        if (readers.has(v)) readers.get(v).push(node.index);
        else readers.set(v, [node.index]);
      }
    }
    const constant = (v) => !maker.has(v) && !values[v].input;
    return {maker, readers, constant, count: nodes.filter((n) => n.wires[side]).length};
  });
  const operators = ({removed, added}) => [removed, added].map((list) => tally(list.map((i) => nodes[i].op)) || "nothing").join(" → ");
  return {names: data.names, values, nodes, changes, sides, operators};
}

/* What was done at a place, as the rules that did it, of which the first few may be enough. */
function titleOf(change, most = Infinity) {
  if (!change.rules.length) return change.added.length ? "replaced" : "cleaned up: nothing needs it any more";
  const rest = change.rules.length - most;
  return change.rules.slice(0, most).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}

class GraphSection {
  constructor(root, data) {
    this.graph = decode(data);
    const {changes, names, sides} = this.graph;
    const [before, after] = sides.map((side) => side.count);
    const kinds = new Set(changes.map((c) => c.kind)).size;
    const running = `${plural(before, "node")} ${before === 1 ? "runs" : "run"}`;
    root.append(element("p", {}, changes.length
      ? `${running} in the ${names[0]} model, ${after} in the ${names[1]} one. They differ in ${plural(changes.length, "place")} of ${plural(kinds, "kind")}. Nodes that only compute constants are not drawn: they don't run.`
      : `${running}, and nothing was changed.`));
    if (changes.length) root.append(element("p", {class: "legend"}, element("span", {class: "removed"}, "removed"), element("span", {class: "added"}, "new"), element("span", {}, "unchanged")));
    // One drawing is enough where both graphs are the same.
    const drawn = changes.length ? SIDES : [0];
    this.map = new GraphMap(root, this.graph, drawn, (change) => this.show(change));
    const list = element("div", {class: "list", tabindex: 0, role: "region", "aria-label": "Changes"});
    this.pane = element("div", {class: "focus"});
    root.append(element("div", {class: "explorer"}, list, this.pane));
    this.chips = new Map();
    list.append(...this.search(), this.kinds());
    this.closeup = new Closeup(this.pane, this.graph, drawn, (change) => this.show(change));
    if (changes.length) this.show(0);
  }

  show(change) {
    this.closeup.show(change);
    this.mark(change);
  }

  showNode(node) {
    this.closeup.showNode(node);
    this.mark(this.graph.nodes[node].change);
  }

  mark(here) {
    this.map.mark(here);
    for (const [change, chip] of this.chips) chip.setAttribute("aria-current", change === here ? "true" : "false");
  }

  search() {
    const found = element("div", {class: "found"});
    const label = "Find a node by name or operator";
    const input = element("input", {type: "search", placeholder: label, "aria-label": label, oninput: () => {
      const wanted = input.value.trim().toLowerCase();
      const hits = wanted ? this.graph.nodes.filter((n) => n.name.toLowerCase().includes(wanted) || n.op.toLowerCase().includes(wanted)) : [];
      found.replaceChildren(...hits.slice(0, 12).map((n) => element("button", {type: "button", onclick: () => this.showNode(n.index)}, `${n.op} ${n.name}`)));
      if (wanted) found.append(element("span", {class: "hint"}, hits.length > 12 ? `and ${hits.length - 12} more` : hits.length ? "" : "no such node"));
    }});
    return [input, found];
  }

  /* Equal changes in one entry: what was done, and a button for each place. */
  kinds() {
    const {changes, operators} = this.graph;
    return element("ol", {}, ...[...d3.group(changes, (c) => c.kind).values()].map((same) => {
      const chips = same.map(({index}) => {
        const chip = element("button", {type: "button", "aria-label": `Change ${index + 1}`, onclick: () => this.show(index)}, `${index + 1}`);
        this.chips.set(index, chip);
        return chip;
      });
      return element("li", {}, element("div", {class: "rules"}, titleOf(same[0], 3)), element("div", {class: "ops"}, operators(same[0])), element("div", {class: "chips"}, ...chips));
    }));
  }
}
