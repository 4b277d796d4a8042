"use strict";
const NS = "http://www.w3.org/2000/svg";
const WIDTH = 860, HEIGHT = 220, LEFT = 64, RIGHT = 160, TOP = 12, BOTTOM = 26;
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => (100 * share).toFixed(share > 0.995 && share < 1 ? 2 : 1) + " %";
const clock = (seconds, span) =>
  new Date(1000 * seconds).toISOString().slice(...(span > 86400 ? [0, 16] : span > 3600 ? [11, 16] : [11, 19])).replace("T", " ");
const id = (name) => document.getElementById(name);

function make(kind, attributes, text) {
  const element = kind.startsWith("svg:")
    ? document.createElementNS(NS, kind.slice(4)) : document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Reports a minute between two points.
function rates(points) {
  return points.map((point, place) => {
    const before = points[place - 1];
    if (!before || point.at_s <= before.at_s) return 0;
    return Math.max(0, 60 * (point.reports - before.reports) / (point.at_s - before.at_s));
  });
}

function chart(svg, times, lines, top, form, spoken) {
  const across = (time) => LEFT + (WIDTH - LEFT - RIGHT) * (time - times[0]) / Math.max(1, times.at(-1) - times[0]);
  const up = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", spoken);
  const parts = [];
  const label = {fill: "var(--quiet)", "font-size": 12, "font-family": "var(--sans)"};
  for (const share of [0, 0.5, 1]) {
    const y = up(top * share);
    parts.push(make("svg:line", {x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, stroke: "var(--rule)"}));
    parts.push(make("svg:text", {...label, x: LEFT - 8, y: y + 4, "text-anchor": "end"}, form(top * share)));
  }
  for (const [time, anchor] of [[times[0], "start"], [times.at(-1), "end"]])
    parts.push(make("svg:text", {...label, x: across(time), y: HEIGHT - 6, "text-anchor": anchor}, clock(time, times.at(-1) - times[0]) + " UTC"));
  let last = -99;
  for (const line of [...lines].sort((one, other) => up(one.values.at(-1)) - up(other.values.at(-1)))) {
    const way = line.values.map((value, place) => `${across(times[place]).toFixed(1)},${up(value).toFixed(1)}`);
    parts.push(make("svg:polyline", {points: way.join(" "), fill: "none", stroke: line.colour, "stroke-width": 2,
      "stroke-dasharray": line.dash || "none"}));
    last = Math.max(last + 16, up(line.values.at(-1)) + 4);
    const text = `${form(line.values.at(-1))} ${line.name}`;
    parts.push(make("svg:circle", {cx: WIDTH - RIGHT + 12, cy: last - 4, r: 4, fill: line.colour}));
    parts.push(make("svg:text", {...label, fill: "var(--ink)", x: WIDTH - RIGHT + 22, y: last}, text));
  }
  svg.replaceChildren(...parts);
}

function table(place, caption, head, rows) {
  const numbers = (column) => column > 0 ? {class: "number"} : {};
  const element = make("table", {});
  element.append(make("caption", {}, caption));
  const top = element.createTHead().insertRow();
  head.forEach((text, column) => top.append(make("th", {scope: "col", ...numbers(column)}, text)));
  const body = element.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, column) => line.append(make("td", numbers(column), text)));
  }
  place.replaceChildren(element);
}

function draw(data) {
  const points = data.points, now = points.at(-1);
  if (!now) return;
  const times = points.map((point) => point.at_s), perMinute = rates(points);
  const facts = [["reports", whole(now.reports)], ["a minute", whole(perMinute.at(-1))], ["classes", whole(now.classes)],
    ["sums past the gate", `${whole(now.passing)} of ${whole(now.sums)}`], ["coverage", percent(now.reached)],
    ["waiting", whole(now.waiting)]];
  id("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = make("div", {});
    pair.append(make("dt", {}, name), make("dd", {}, value));
    return pair;
  }));
  id("when").textContent = `As of ${new Date(1000 * now.at_s).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const most = Math.max(1, ...perMinute);
  chart(id("rate"), times, [{name: "a minute", values: perMinute, colour: "var(--accent)"}], most, whole,
    `Reports a minute over time, now ${whole(perMinute.at(-1))}, at most ${whole(most)}.`);
  id("rate-text").textContent = "Reports that shards took, a minute, between two looks.";
  chart(id("coverage"), times, [
    {name: "past the gate", values: points.map((point) => point.reached), colour: "var(--class-1)"},
    {name: "class known", values: points.map((point) => point.known), colour: "var(--class-2)", dash: "7 5"},
  ], 1, percent, `Coverage over time: ${percent(now.reached)} of the reports are past the gate; the class of the next report is known with ${percent(now.known)}.`);
  id("coverage-text").textContent = "Past the gate: share of the reports in sums that a release would hand over now "
    + `(${whole(data.reports_needed)} reports, k = ${whole(data.min_contributors)}). `
    + "Class known: chance that the next report is of a class that was seen before (Good and Turing).";
  table(id("shards"), "What each shard holds, and how busy it was since the last look.",
    ["Shard", "Buckets", "Reports", "Sums", "Busy"],
    data.shards.map((each) => [each.shard, whole(each.buckets), whole(each.reports), whole(each.sums), percent(each.busy)]));
  table(id("classes"), "The classes that report most, by place; ids and signatures are not shown.",
    ["Class", "Reports", "Largest sum", "Past the gate"],
    data.largest.map((each) => [`${each.place}.`, whole(each.reports), whole(each.largest_sum), each.passes ? "yes" : "not yet"]));
}

async function look() {
  try {
    const answer = await fetch("live.json");
    draw(await answer.json());
  } catch (error) {
    id("when").textContent = "The service does not answer; the figures are the last ones.";
  }
}

look();
setInterval(look, 5000);
