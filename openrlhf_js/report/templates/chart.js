// Draws the charts. What is chosen in the legend of one is chosen in all.
const options = { actions: false, renderer: "svg" };
const charts = [...document.querySelectorAll(".chart")];
const drawn = await Promise.all(charts.map(chart =>
  vegaEmbed(chart, JSON.parse(chart.dataset.figure), options)));
const views = drawn.map(({ view }) => view);
for (const view of views) {
  view.addDataListener("chosen_store", (_, chosen) => {
    const lines = rows => JSON.stringify(rows.map(row => row.values));
    for (const other of views) {
      if (lines(other.data("chosen_store")) !== lines(chosen)) other.data("chosen_store", chosen).runAsync();
    }
  });
}
