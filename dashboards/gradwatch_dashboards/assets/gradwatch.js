/* What the browser does by itself: ask for news, follow links inside the pages, keep the theme, zoom and hover all charts as one. */
(function () {
  "use strict";
  var ANSWER_DUE_MS = 4000, LOST_AFTER_MS = 2500;
  var asked = 0, heard = 0;

  function same() { return window.dash_clientside.no_update; }
  function now() { return Date.now(); }

  /* Addresses */
  function query(changes) {
    var fields = new URLSearchParams(location.search);
    Object.keys(changes).forEach(function (key) {
      if (changes[key] === null) { fields.delete(key); } else { fields.set(key, changes[key]); }
    });
    return location.pathname + "?" + fields.toString();
  }
  function change(changes) {
    var href = query(changes);
    if (href !== location.pathname + (location.search || "?")) { go(href); }
  }
  function go(href) {
    window.history.pushState({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  }
  function flipped(section) {
    var list = (new URLSearchParams(location.search).get("flip") || "").split(",").filter(Boolean);
    var rest = list.filter(function (one) { return one !== section; });
    if (rest.length === list.length) { rest.push(section); }
    return query({ flip: rest.length ? rest.join(",") : null });
  }
  document.addEventListener("click", function (event) {
    var plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!plain || event.defaultPrevented || !event.target.closest) { return; }
    var link = event.target.closest("a[data-inside]");
    var row = event.target.closest("tr[data-row]");
    if (!link && row && !String(getSelection())) { link = row.querySelector("a[data-inside]"); }
    if (!link) { return; }
    event.preventDefault();
    var leaves = link.pathname !== location.pathname;
    go(link.dataset.flip ? flipped(link.dataset.flip) : link.getAttribute("href"));
    if (leaves) { window.scrollTo(0, 0); }
    var charts = document.getElementById("run-charts");
    /* What a finding leads to is at the top of the charts: seen, wherever the reader has scrolled to. */
    if (link.dataset.finding && charts && charts.getBoundingClientRect().top < 0) { charts.scrollIntoView(); }
  });

  /* News */
  function live() {
    var place = document.getElementById("live");
    if (!place || !heard || document.hidden) { return; }
    var asks = document.querySelector("[data-live]") !== null;
    if (!asks) { heard = now(); }
    var lost = now() - heard > LOST_AFTER_MS;
    var text = lost ? "connection lost, retrying" : asks ? "live" : "";
    if (place.textContent !== text) { place.textContent = text; place.className = lost ? "lost" : ""; }
  }
  function ages() {
    document.querySelectorAll("time[data-ago]").forEach(function (one) {
      var text = age(now() / 1000 - Number(one.dataset.ago));
      /* An attribute that the style sheet shows: React does not know it, and so leaves it alone. */
      if (one.dataset.age !== text) { one.dataset.age = text; }
    });
  }
  function age(seconds) {
    if (seconds < 2) { return "just now"; }
    if (seconds < 60) { return Math.floor(seconds) + " s ago"; }
    if (seconds < 3600) { return Math.floor(seconds / 60) + " min ago"; }
    if (seconds < 172800) { return Math.floor(seconds / 3600) + " h ago"; }
    return Math.floor(seconds / 86400) + " days ago";
  }
  setInterval(function () { live(); ages(); }, 250);
  new MutationObserver(ages).observe(document.body, { subtree: true, childList: true, attributeFilter: ["data-ago"] });
  document.addEventListener("visibilitychange", function () { if (heard) { heard = now(); asked = 0; } });

  /* Theme */
  var media = window.matchMedia("(prefers-color-scheme: dark)");
  function stored() { try { return localStorage.getItem("gradwatch-theme"); } catch (refused) { return null; } }
  function wear(theme) { document.documentElement.dataset.theme = theme; return theme; }
  function preferred() { return stored() || (media.matches ? "dark" : "light"); }
  media.addEventListener("change", function () {
    if (!stored()) { window.dash_clientside.set_props("theme", { data: wear(preferred()) }); }
  });

  /* One spike line through all charts */
  function plots() { return document.querySelectorAll(".js-plotly-plot"); }
  function spike(plot, step) {
    var layout = plot._fullLayout;
    if (!layout || !layout._plots) { return; }
    plot.querySelectorAll(".spike").forEach(function (one) { one.hidden = true; });
    if (step === null) { return; }
    Object.keys(layout._plots).forEach(function (key, at) {
      var axis = layout._plots[key].xaxis, other = layout._plots[key].yaxis;
      var x = axis.l2p(step);
      if (other.overlaying || x < 0 || x > axis._length) { return; }
      var line = plot.querySelectorAll(".spike")[at] || plot.appendChild(document.createElement("div"));
      line.className = "spike";
      line.hidden = false;
      line.style.cssText = "left:" + (axis._offset + x) + "px;top:" + other._offset + "px;height:" + other._length + "px";
    });
  }
  function hovered(plot) {
    if (plot.dataset.spikes || !plot.on) { return; }
    plot.dataset.spikes = "1";
    plot.on("plotly_hover", function (event) { plots().forEach(function (one) { spike(one, event.points[0].x); }); });
    plot.on("plotly_unhover", function () { plots().forEach(function (one) { spike(one, null); }); });
    plot.on("plotly_afterplot", function () { named(plot); });
    named(plot);
  }
  function named(plot) {
    var said = plot.layout && plot.layout.meta && plot.layout.meta.description;
    var graph = plot.closest("figure");
    if (said && graph && graph.getAttribute("aria-label") !== said) { graph.setAttribute("aria-label", said); }
  }
  setInterval(function () { plots().forEach(hovered); }, 500);

  /* Callbacks */
  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    gradwatch: {
      ask: function (count) {
        /* A page that has just come is always asked for: the answer that is still due may be another page's. */
        var due = count && asked && now() - asked < (heard && now() - heard > LOST_AFTER_MS ? 1000 : ANSWER_DUE_MS);
        if (due || (count && document.hidden)) { return same(); }
        asked = now();
        return asked;
      },
      heard: function () { heard = now(); asked = 0; },
      theme: function (clicks) {
        if (clicks) {
          var next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
          try { localStorage.setItem("gradwatch-theme", next); } catch (refused) { /* it lasts for this visit */ }
          return wear(next);
        }
        return wear(preferred());
      },
      filtered: function (text) { change({ metric: text || null }); },
      stepped: function (step) { if (step || step === 0) { change({ step: Math.round(step) }); } },
      titled: function (have) { if (have && have.title) { document.title = have.title; } },
      zoomed: function () {
        var told = (window.dash_clientside.callback_context.triggered || [])[0];
        if (!told || !told.value) { return; }
        if (told.prop_id.endsWith(".clickData")) {
          var point = told.value.points && told.value.points[0];
          if (point) { change({ step: Math.round(point.x) }); }
          return;
        }
        var ends = {};
        Object.keys(told.value).forEach(function (key) {
          var found = /^xaxis\d*\.range\[([01])\]$/.exec(key);
          if (found) { ends[found[1]] = told.value[key]; }
        });
        if (!(0 in ends) || !(1 in ends)) { return; }
        var first = Math.ceil(ends[0]);
        change({ from: first, to: Math.max(first, Math.floor(ends[1])) });
      }
    }
  });
})();
