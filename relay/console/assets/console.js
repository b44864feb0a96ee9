// What pages do beside showing what the relay wrote: times, theme, numbers that stay fresh, the plot of a forecast.
// Nothing here writes HTML: what comes from the relay becomes text.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const root = document.documentElement;

  // ------------------------------------------------------------------ times

  const local = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  const steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let skew = 0; // milliseconds by which the relay's clock is ahead of this machine's

  function relative(ms) {
    const seconds = Math.round((ms - Date.now() - skew) / 1000);
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const at = steps.findIndex(([length]) => size >= length);
    const [length, unit] = steps[at];
    const whole = Math.floor(size / length);
    const rest = at + 1 < steps.length ? Math.floor((size - whole * length) / steps[at + 1][0]) : 0;
    const text = rest && whole < 10 ? `${whole} ${unit} ${rest} ${steps[at + 1][1]}` : `${whole} ${unit}`;
    return seconds < 0 ? `${text} ago` : `in ${text}`;
  }

  const how = () => localStorage.getItem("relay-times") || "local";

  function tell(time) {
    const ms = Number(time.dataset.ms);
    const utc = time.dateTime;
    const texts = { local: local.format(ms), utc, relative: relative(ms) };
    const text = texts[how()];
    if (time.textContent !== text) time.textContent = text;
    time.title = `${texts.local} · ${utc} · ${texts.relative}`;
  }

  function showTimes(within = document) {
    all("time[data-ms]", within).forEach(tell);
    for (const button of all("[data-times]")) button.setAttribute("aria-pressed", String(button.dataset.times === how()));
  }

  for (const button of all("[data-times]")) {
    button.addEventListener("click", () => {
      localStorage.setItem("relay-times", button.dataset.times);
      showTimes();
    });
  }
  setInterval(() => how() === "relative" && showTimes(), 1000);
  document.addEventListener("htmx:afterSwap", (event) => showTimes(event.target));

  // ------------------------------------------------------------------ theme

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const themeButton = document.getElementById("theme");

  function showTheme() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
    draw();
  }
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("relay-theme", root.dataset.theme);
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);

  // ---------------------------------------------------------------- numbers

  const grouped = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const perSecond = (n) => (n === null ? "–" : n >= 100 ? grouped(n) : n.toFixed(1));
  function seconds(n) {
    if (n === null) return "–";
    if (n < 1) return `${Number((n * 1000).toPrecision(3))} ms`;
    if (n < 120) return `${Number(n.toPrecision(3))} s`;
    for (const [length, unit] of steps) if (n >= 2 * length || unit === "min") return `${Number((n / length).toPrecision(3))} ${unit}`;
    return "";
  }
  const formats = {
    timers: grouped, due: grouped, dead: grouped, minute: grouped, hour: grouped, day: grouped,
    in: perSecond, out: perSecond, p50: seconds, p99: seconds, overdue: (n) => (n ? seconds(n) : "–"),
    streams: grouped, in_flight: grouped, capacity: grouped, free: grouped, unwritten: grouped,
  };
  const LATE = 5; // seconds, as on the overview

  function fill(within, numbers) {
    for (const cell of all("[data-field]", within)) {
      const field = cell.dataset.field;
      if (field === "state") {
        const [word, kind] = numbers.paused ? ["paused", "warn"] : numbers.overdue > LATE ? ["late", "bad"] : ["well", "ok"];
        cell.textContent = word;
        cell.className = `state ${kind}`;
      } else if (field in numbers && formats[field]) {
        const text = formats[field](numbers[field]);
        if (cell.textContent !== text) cell.textContent = text;
      }
    }
    const spark = within.querySelector("[data-spark]");
    if (spark) trail(spark, numbers.timers);
  }

  function trail(cell, value) {
    const values = [...cell.dataset.spark.split(",").filter(Boolean).map(Number), value].slice(-90);
    cell.dataset.spark = values.join(",");
    const line = cell.querySelector("polyline");
    const [, , width, height] = cell.querySelector("svg").getAttribute("viewBox").split(" ").map(Number);
    const shown = values.slice(-width);
    const low = Math.min(...shown), span = Math.max(...shown) - low || 1;
    const points = shown.map((each, index) => {
      const x = (index * width) / Math.max(shown.length - 1, 1);
      return `${x.toFixed(1)},${(height - 2 - ((each - low) / span) * (height - 4)).toFixed(1)}`;
    });
    line.setAttribute("points", points.length > 1 ? points.join(" ") : "");
  }

  const concerns = document.getElementById("concerns");

  function showConcerns(found) {
    const said = JSON.stringify(found);
    if (concerns.dataset.said === said) return; // what has the focus keeps it
    concerns.dataset.said = said;
    concerns.querySelector("ul").replaceChildren(...found.map(([about, text, address, grave, alert]) => {
      const row = document.createElement("li"), name = document.createElement("bdi");
      row.className = grave ? "bad" : "warn";
      name.className = "name";
      name.textContent = about;
      const within = address ? row.appendChild(document.createElement("a")) : row;
      if (address) within.href = address;
      within.append(name, ` ${text}`);
      if (alert) within.appendChild(document.createElement("code")).textContent = alert;
      return row;
    }));
    concerns.hidden = !found.length;
    document.getElementById("fine").hidden = Boolean(found.length);
  }

  const kept = document.querySelector("[data-trend]");
  const trend = kept && JSON.parse(kept.dataset.trend);

  const stream = document.getElementById("stream");
  if (stream) {
    const badge = document.getElementById("live"), words = document.getElementById("live-text");
    let source = null;
    const hear = (event) => {
      const said = JSON.parse(event.data);
      skew = said.at - Date.now();
      for (const row of all("[data-topic]")) if (row.dataset.topic in said.topics) fill(row, said.topics[row.dataset.topic]);
      const relay = document.getElementById("relay");
      if (relay && said.relay) fill(relay, said.relay);
      if (said.trend) extend(said.trend);
      if (concerns && said.concerns) showConcerns(said.concerns);
      badge.hidden = false;
      badge.classList.remove("lost");
      words.textContent = "live";
    };
    const lose = () => {
      badge.hidden = false;
      badge.classList.add("lost");
      words.textContent = "not live";
    };
    // Without TLS browsers have six connections for a host, all tabs together: one that nobody sees must not hold
    // one, or the seventh tab never loads.
    const listen = () => {
      source?.close();
      source = document.visibilityState === "hidden" ? null : new EventSource(stream.dataset.stream);
      if (!source) return;
      source.onmessage = hear;
      source.onerror = lose;
    };
    document.addEventListener("visibilitychange", listen);
    addEventListener("pagehide", () => source?.close());
    listen();
  }

  // ------------------------------------------------------------------- plot

  const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const moments = (_, ticks, __, ___, step) => ticks.map((each) => {
    const moment = new Date(each * 1000);
    const midnight = moment.getHours() === 0 && moment.getMinutes() === 0;
    return step >= 86400 || midnight ? day.format(moment) : hour.format(moment);
  });

  let plots = [], lines = [];
  function draw() {
    [...plots, ...lines].forEach((each) => each.destroy());
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    lines = trend ? all("[data-series]").map((place) => overTime(place, axis, [color("--plot-a"), color("--plot-b")])) : [];
    plots = all("[data-plot]").map((place) => {
      const [starts, timers, occurrences, cold] = JSON.parse(place.dataset.plot);
      const sums = timers.map((each, index) => each + occurrences[index]);
      const whole = sums.map((each, index) => each + cold[index]);
      const bars = uPlot.paths.bars({ size: [0.8, 40], align: 1 });
      const series = (label, name) => ({ label, stroke: color(name), fill: color(name), width: 0, paths: bars, points: { show: false } });
      return new uPlot({
        width: place.clientWidth, height: 190, legend: { show: false }, cursor: { drag: { x: false, y: false } },
        scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 4)] } },
        axes: [{ ...axis, size: 34, values: moments }, { ...axis, size: 54, values: (_, ticks) => ticks.map((each) => (Number.isInteger(each) ? grouped(each) : "")) }],
        series: [{}, series("cold", "--plot-c"), series("occurrences", "--plot-b"), series("timers", "--plot-a")],
      }, [starts, whole, sums, timers], place);
    });
  }
  addEventListener("resize", () => [...plots, ...lines].forEach((each) => {
    const place = each.root.parentElement;
    each.setSize({ width: place.clientWidth, height: each.height });
  }));

  // A topic over the last hour: columns of times, and of these.
  const SERIES = ["timers", "due", "dead", "in", "out", "p50", "p99"], HOUR = 240;
  const units = { count: [(n) => (Number.isInteger(n) ? grouped(n) : ""), 4], rate: [(n) => `${Number(n.toPrecision(3))}`, 1], seconds: [seconds, 0.01] };

  const columns = (place) => place.dataset.series.trim().split(" ").map((name) => trend[1 + SERIES.indexOf(name)]);

  function overTime(place, axis, colors) {
    const [words, least] = units[place.dataset.unit];
    const series = columns(place).map((_, index) => ({ stroke: colors[index], width: 1.5, points: { show: trend[0].length < 2 } }));
    return new uPlot({
      width: place.clientWidth, height: 140, legend: { show: false }, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: true, range: (_, __, high) => [high - 3600, high] }, y: { range: (_, __, high) => [0, Math.max(high * 1.1, least)] } },
      axes: [{ ...axis, size: 30, values: moments }, { ...axis, size: 62, values: (_, ticks) => ticks.map(words) }],
      series: [{}, ...series],
    }, [trend[0], ...columns(place)], place);
  }

  function extend(sample) {
    if (!trend || !(sample[0] > (trend[0].at(-1) ?? 0))) return;
    trend.forEach((column, index) => column.push(sample[index]));
    if (trend[0].length > HOUR) trend.forEach((column) => column.shift());
    kept.dataset.trend = JSON.stringify(trend);
    lines.forEach((each) => each.setData([trend[0], ...columns(each.root.parentElement)]));
  }

  showTimes();
  showTheme();
})();
