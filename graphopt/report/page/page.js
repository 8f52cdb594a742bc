"use strict";
/* Puts charts and graphs where the page has room for them. */
(() => {
  const {subjects} = JSON.parse(document.getElementById("data").textContent);
  const graphs = new Map();

  for (const root of document.querySelectorAll("[data-graph]")) {
    graphs.set(root.dataset.graph, new GraphSection(root, subjects[root.dataset.graph].graph));
  }

  for (const figure of document.querySelectorAll("[data-chart]")) {
    const box = figure.querySelector(".plot"), kind = figure.dataset.chart;
    const draw = () => {
      charts[kind](box, kind === "overview" ? subjects : subjects[figure.dataset.subject]);
      // The table behind says the same in words.
      for (const svg of box.querySelectorAll("svg")) {
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `Chart: ${figure.querySelector("h3").textContent}`);
      }
    };
    let width = 0;
    new ResizeObserver(() => {
      if (!box.clientWidth || box.clientWidth === width) return;  // folded away, or as it was
      width = box.clientWidth;
      draw();
    }).observe(box);
  }

  const FIRST = 300;
  for (const details of document.querySelectorAll("[data-steps]")) {
    details.addEventListener("toggle", () => {
      const box = details.querySelector(".wide");
      if (!details.open || box.childElementCount) return;
      const {strings, rows} = subjects[details.dataset.steps].steps;
      const graph = graphs.get(details.dataset.steps);
      const heads = ["step", "rule", "at", "predicted before", "after", "gain"];
      const body = element("tbody");
      const add = (from, to) => body.append(...rows.slice(from, to).map(([rule, at, before, after, change], i) => element("tr", {},
        element("td", {class: "n"}, graph && change !== null
          ? element("button", {type: "button", "aria-label": `Show step ${from + i + 1} in the graph`, onclick: () => { graph.show(change); graph.pane.scrollIntoView(); }}, `${from + i + 1}`)
          : `${from + i + 1}`),
        element("th", {scope: "row"}, strings[rule]), element("td", {}, at), ...[before, after, before - after].map((ms) => element("td", {class: "n"}, `${ms.toPrecision(4)} ms`)))));
      add(0, FIRST);
      box.append(element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", {scope: "col"}, h)))), body));
      if (rows.length > FIRST) {
        const rest = element("button", {type: "button", onclick: () => { add(FIRST, rows.length); rest.remove(); }}, `Show the other ${rows.length - FIRST}`);
        box.append(rest);
      }
    });
  }
})();
