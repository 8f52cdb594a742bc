"use strict";
/* The whole graph from left to right: the original above, the result below, every node in the same place in both. */
class GraphMap {
  constructor(root, graph, drawn, choose) {
    Object.assign(this, {graph, drawn, choose, zoom: 1, here: null});
    const wider = (factor) => () => {
      this.zoom = Math.min(32, Math.max(1, this.zoom * factor));
      this.draw();
    };
    const hint = graph.changes.length ? "The whole graph from left to right, both versions in the same places. Click a change to see it." : "The whole graph from left to right.";
    this.box = element("div", {class: "map", tabindex: 0, role: "region", "aria-label": "Map of the graph; the list below holds the same changes"});
    root.append(
      element("div", {class: "bar"}, element("span", {class: "hint grow"}, hint),
        element("button", {type: "button", onclick: wider(0.5), "aria-label": "Narrow the map"}, "−"), element("button", {type: "button", onclick: wider(2), "aria-label": "Widen the map"}, "+")),
      this.box,
    );
    let width = 0;
    new ResizeObserver(() => {
      if (this.box.clientWidth === width) return;
      width = this.box.clientWidth;
      this.draw();
    }).observe(this.box);
    this.draw();
  }

  draw() {
    const [columns, lanes] = ["column", "lane"].map((key) => 1 + (d3.max(this.graph.nodes, (n) => n[key]) || 0));
    const width = Math.max(300, this.box.clientWidth - 2) * this.zoom, pad = 10, head = 22;
    const dx = (width - 2 * pad) / columns, dy = Math.min(10, Math.max(1.6, 110 / lanes));
    const w = Math.min(16, Math.max(0.9, 0.7 * dx)), h = Math.min(7, Math.max(1.2, 0.7 * dy));
    const strip = head + lanes * dy + pad;
    const x = (n) => pad + n.column * dx + (dx - w) / 2, y = (n, side) => side * strip + head + n.lane * dy;
    const boxes = (list, side) => list.map((n) => `M${x(n).toFixed(1)} ${y(n, side).toFixed(1)}h${w.toFixed(1)}v${h.toFixed(1)}h-${w.toFixed(1)}z`).join("");
    const svg = shape("svg", {width, height: this.drawn.length * strip, role: "img", "aria-label": `Map of the graph, ${this.graph.changes.length} changes marked`});
    this.spots = new Map();
    for (const side of this.drawn) {
      const present = this.graph.nodes.filter((n) => n.wires[side]);
      let wires = "";
      for (const n of present) {
        for (const v of n.wires[side].inputs) {
          if (!this.graph.sides[side].maker.has(v)) continue;
          const m = this.graph.nodes[this.graph.sides[side].maker.get(v)];
          const x1 = x(m) + w, x2 = x(n), y1 = y(m, side) + h / 2, y2 = y(n, side) + h / 2, mid = (x1 + x2) / 2;
          wires += m.lane === n.lane ? `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`
            : `M${x1.toFixed(1)} ${y1.toFixed(1)}C${mid.toFixed(1)} ${y1.toFixed(1)} ${mid.toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
        }
      }
      svg.append(shape("path", {class: "wire", d: wires}), shape("path", {class: "kept", d: boxes(present.filter((n) => n.state === "kept"), side)}));
      const title = shape("text", {class: "title", x: pad, y: side * strip + 15});
      title.textContent = `${this.graph.names[side]}: ${plural(present.length, "node")}`;
      svg.append(title);
      for (const change of this.graph.changes) {
        const members = [...change.removed, ...change.added].map((i) => this.graph.nodes[i]);
        const own = members.filter((n) => n.wires[side]);
        const left = d3.min(members, x) - 2, right = Math.max(d3.max(members, x) + w + 2, left + 8);
        const spot = shape("g", {class: "spot"}, shape("rect", {class: "reach", x: left, y: side * strip + head - 4, width: right - left, height: lanes * dy + 6, rx: 2}),
          shape("path", {class: side ? "added" : "removed", d: boxes(own, side)}));
        const label = shape("title");
        label.textContent = `${change.index + 1}: ${titleOf(change)}`;
        spot.append(label);
        spot.addEventListener("click", () => this.choose(change.index));
        this.spots.set(change.index, [...(this.spots.get(change.index) || []), spot]);
        svg.append(spot);
      }
    }
    this.box.replaceChildren(svg);
    this.box.onscroll = () => svg.querySelectorAll(".title").forEach((title) => title.setAttribute("x", pad + this.box.scrollLeft));
    this.mark(this.here);
  }

  /* Mark a change, and bring it into view. */
  mark(here) {
    this.here = here;
    for (const [change, spots] of this.spots) for (const spot of spots) spot.classList.toggle("here", change === here);
    if (!this.spots.has(here)) return;
    const reach = this.spots.get(here)[0].querySelector("rect");
    this.box.scrollLeft = Number(reach.getAttribute("x")) + Number(reach.getAttribute("width")) / 2 - this.box.clientWidth / 2;
  }
}
