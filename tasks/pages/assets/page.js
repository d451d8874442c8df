"use strict";
// The page is complete without this script; it adds quicker tips, the filter, sorting and the mark of where one is.
(function () {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let current = null;
  let byKeys = false;

  // A drawing's own <title> would pop up over ours, so its text moves to an attribute.
  document.querySelectorAll("svg").forEach(function (svg) {
    svg.querySelectorAll(".hit > title").forEach(function (title) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    });
    const name = svg.querySelector(":scope > title");
    if (name) {
      svg.setAttribute("aria-label", name.textContent);
      svg.removeAttribute("aria-labelledby");
      const desc = svg.querySelector(":scope > desc");
      if (desc) svg.setAttribute("aria-describedby", desc.id);
      name.remove();
    }
    const hits = Array.from(svg.querySelectorAll(".hit"));
    if (hits.length) listen(svg, hits);
  });

  function listen(svg, hits) {
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", function (event) { over(event); });
    svg.addEventListener("pointerdown", function (event) { over(event); });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", function (event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!step) return;
      event.preventDefault();
      const at = hits.indexOf(current);
      const next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : Math.min(hits.length - 1, Math.max(0, at + step));
      point(hits[next]);
    });
  }

  function point(hit) {
    const box = hit.getBoundingClientRect();
    show(hit, box.left + box.width / 2, box.top + Math.min(box.height / 2, 60));
    byKeys = true;
  }

  function over(event) {
    const hit = event.target.closest(".hit");
    byKeys = false;
    if (hit) show(hit, event.clientX, event.clientY); else leave();
  }

  function show(hit, x, y) {
    if (current !== hit) {
      leave();
      current = hit;
      hit.classList.add("on");
      tip.textContent = hit.dataset.tip;
      tip.hidden = false;
    }
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x - box.width / 2), document.documentElement.clientWidth - box.width - 8);
    const top = y - box.height - 14;
    tip.style.left = left + "px";
    tip.style.top = (top < 8 ? y + 18 : top) + "px";
  }

  function leave() {
    if (current) current.classList.remove("on");
    current = null;
    tip.hidden = true;
  }
  // A tip asked for by keys goes along with its mark: the focus itself scrolls, and is told of it later.
  window.addEventListener("scroll", function () { if (current && byKeys) point(current); else leave(); }, { passive: true });

  const box = document.getElementById("label-filter");
  if (box) {
    const rows = Array.from(document.querySelectorAll("tr[data-label]"));
    const output = box.parentNode.querySelector("output");
    const known = new Set(rows.map(function (row) { return row.dataset.label; }));
    box.parentNode.hidden = false;
    box.addEventListener("input", function () {
      const wanted = box.value.trim();
      const match = chooser(wanted, known);
      rows.forEach(function (row) { row.hidden = wanted ? !match(row.dataset.label) : !("top" in row.dataset); });
      const shown = rows.filter(function (row) { return !row.hidden; }).length;
      output.textContent = !wanted ? "" : shown ? shown + (shown === 1 ? " weight" : " weights") : "no such label";
    });
  }

  // The label itself if there is one of that name, in whatever case; else all that begin so.
  function chooser(wanted, known) {
    if (known.has(wanted)) return function (label) { return label === wanted; };
    const low = wanted.toLowerCase();
    const same = Array.from(known).some(function (label) { return label.toLowerCase() === low; });
    return function (label) { return same ? label.toLowerCase() === low : label.toLowerCase().startsWith(low); };
  }

  // A click on a heading sorts by its column: numbers first with the largest, names from A; again, the other way.
  document.querySelectorAll("table.sortable").forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", function () {
        const numeric = head.classList.contains("num");
        const known = head.getAttribute("aria-sort");
        const up = known ? known === "descending" : !numeric;
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = Array.from(table.tBodies[0].rows).map(function (row) { return [key(row.cells[column], numeric), row]; });
        rows.sort(function (a, b) {
          const order = numeric ? a[0] - b[0] : a[0].localeCompare(b[0]);
          return up ? order : -order;
        });
        table.tBodies[0].append(...rows.map(function (pair) { return pair[1]; }));
      });
    });
  });

  // What a cell is sorted by; a missing figure comes before all others.
  function key(cell, numeric) {
    const text = cell.textContent.trim();
    if (!numeric) return text;
    const value = parseFloat(text.replace("\u2212", "-").replace(/[^0-9.\-]/g, ""));
    return Number.isNaN(value) ? -1e308 : value;
  }

  const links = new Map(Array.from(document.querySelectorAll("nav a")).map(function (a) { return [a.hash.slice(1), a]; }));
  if (links.size && "IntersectionObserver" in window) {
    const seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        links.forEach(function (a) { a.removeAttribute("aria-current"); });
        const link = links.get(entry.target.id);
        if (link) link.setAttribute("aria-current", "true");
      });
    }, { rootMargin: "-15% 0px -75% 0px" });
    document.querySelectorAll("main > section").forEach(function (section) { seen.observe(section); });
  }
})();
