// Draws the charts. What is chosen in the legend of one is chosen in all.
const options = { actions: false, renderer: "svg" };
const charts = [...document.querySelectorAll(".chart")];
const drawn = await Promise.all(charts.map(chart =>
  vegaEmbed(chart, JSON.parse(chart.dataset.figure), options)));
const linked = charts.flatMap((chart, i) => chart.dataset.figure.includes('"chosen"') ? drawn[i].view : []);
for (const view of linked) {
  view.addDataListener("chosen_store", (_, chosen) => {
    const lines = rows => JSON.stringify(rows.map(row => row.values));
    for (const other of linked) {
      if (lines(other.data("chosen_store")) !== lines(chosen)) other.data("chosen_store", chosen).runAsync();
    }
  });
}
// Folded charts have no width until they are opened.
for (const folded of document.querySelectorAll("details")) {
  folded.addEventListener("toggle", () => dispatchEvent(new Event("resize")));
}
