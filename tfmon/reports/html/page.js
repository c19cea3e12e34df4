"use strict";
// Draws the charts, hides and shows series, and sorts tables. Everything also stands in tables, without this script.
(() => {
  const specs = JSON.parse(document.getElementById("tfmon-charts").textContent);
  const views = [];
  // The area around a point holds the point's row one level deeper, which the tooltip of Vega-Lite 6.4 does not know.
  const patch = (spec) => {
    const marks = [...spec.marks];
    for (let mark; (mark = marks.pop()); ) {
      marks.push(...(mark.marks ?? []));
      const tooltip = mark.name?.endsWith("_voronoi") ? mark.encode.update.tooltip : undefined;
      if (tooltip) tooltip.signal = tooltip.signal.replaceAll('datum["', 'datum.datum["');
    }
    return spec;
  };
  const options = { patch, actions: false, renderer: "svg", ast: true, hover: true, tooltip: { theme: "page" } };
  const drawn = Object.entries(specs).map(([id, spec]) =>
    vegaEmbed("#" + id, spec, options).then((result) => views.push(result.view)));
  Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = views.length; });

  const boxes = [...document.querySelectorAll("input[data-series]")];
  for (const box of boxes) {
    box.addEventListener("change", () => {
      const hidden = boxes.filter((one) => !one.checked).map((one) => one.dataset.series);
      for (const view of views) view.signal("hidden", hidden).runAsync();
    });
  }

  for (const button of document.querySelectorAll("th > button")) {
    button.addEventListener("click", () => {
      const head = button.parentElement, body = head.closest("table").tBodies[0];
      const place = [...head.parentElement.children].indexOf(head);
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const one of head.parentElement.children) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.children[place].dataset.value ?? row.children[place].textContent;
      const compare = (one, other) => {
        const [a, b] = [value(one), value(other)], [x, y] = [parseFloat(a), parseFloat(b)];
        if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
        return sign * (isNaN(x) ? a.localeCompare(b) : x - y);
      };
      body.append(...[...body.rows].sort(compare));
    });
  }
})();
