"use strict";
const charts = document.querySelectorAll(".chart");
const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls
const buttons = [["zoom2d", "pan2d", "resetScale2d", "toImage"]];
const config = { responsive: true, displaylogo: false, modeBarButtons: buttons };
const state = ({ visible = true }) => visible;

// Shows and hides the lines of every chart as somebody has done in this one.
function follow(chart) {
  const found = new Map(chart.data.map(line => [line.legendgroup, state(line)]));
  charts.forEach(other => {
    const visible = other.data.map(line => found.get(line.legendgroup) ?? state(line));
    if (visible.some((each, i) => each !== state(other.data[i]))) Plotly.restyle(other, { visible });
  });
}

charts.forEach(chart => {
  const { data, layout } = JSON.parse(chart.dataset.figure);
  Plotly.newPlot(chart, data, { ...layout, dragmode }, config);
  chart.on("plotly_restyle", () => follow(chart));
});
