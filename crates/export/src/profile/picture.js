"use strict";
// This script contains no character that XML would have to escape, so that both SVG and HTML can contain it.
(function () {
  const byId = (id) => document.getElementById(id);
  const svg = byId("flames"), details = byId("details"), matched = byId("matched");
  const LEFT = 10, WIDTH = 1180, CHARACTER = 6.7, LEAST = 1e-9;
  const frames = Array.from(svg.querySelectorAll("g.f")).map((g) => {
    const title = g.querySelector("title").textContent;
    const name = title.slice(0, title.lastIndexOf(" ("));
    const [x, w] = [Number(g.getAttribute("data-x")), Number(g.getAttribute("data-w"))];
    return { g, title, name, x, w, rect: g.querySelector("rect"), text: g.querySelector("text") };
  });
  // The state: which part of the whole width is shown, and the pattern that was searched.
  let from = 0, width = 1, pattern = null;

  function shown(name, room) {
    const characters = Array.from(name), fits = Math.floor((room - 4) / CHARACTER);
    if (3 > fits) return "";
    return characters.length > fits ? characters.slice(0, fits - 2).join("") + ".." : name;
  }

  function draw() {
    const found = [];
    frames.forEach((frame) => {
      const left = (frame.x - from) / width, right = (frame.x + frame.w - from) / width;
      const isOutside = LEAST > right ? true : left > 1 - LEAST;
      frame.g.style.display = isOutside ? "none" : "";
      if (isOutside) return;
      const isCaller = 0 - LEAST > left ? true : right > 1 + LEAST;
      const start = LEFT + WIDTH * Math.max(left, 0), end = LEFT + WIDTH * Math.min(right, 1);
      frame.g.style.opacity = isCaller ? "0.6" : "";
      frame.rect.setAttribute("x", start);
      frame.rect.setAttribute("width", end - start);
      frame.text.setAttribute("x", start + 3);
      frame.text.textContent = shown(frame.name, end - start);
      const isFound = pattern ? pattern.test(frame.name) : false;
      frame.rect.style.fill = isFound ? "#e25fe2" : "";
      if (isFound) found.push([start, end]);
    });
    byId("reset").style.display = width === 1 ? "none" : "";
    byId("search").textContent = pattern ? "Reset Search" : "Search";
    // If frames lie above each other, only one of them counts.
    found.sort((one, other) => one[0] - other[0]);
    let covered = 0, at = 0;
    found.forEach(([start, end]) => {
      covered += Math.max(0, end - Math.max(start, at));
      at = Math.max(at, end);
    });
    matched.textContent = pattern ? "Matched: " + (100 * covered / WIDTH).toFixed(1) + "%" : "";
  }

  function search() {
    if (pattern) {
      pattern = null;
    } else {
      const text = window.prompt("Search functions (a regular expression)", "");
      if (!text) return;
      try {
        pattern = new RegExp(text);
      } catch (error) {
        details.textContent = String(error.message);
        return;
      }
    }
    draw();
  }

  svg.addEventListener("click", (event) => {
    const g = event.target.closest("g.f");
    if (event.target.id === "search") return search();
    const frame = g ? frames.find((frame) => frame.g === g) : null;
    if (frame) [from, width] = [frame.x, frame.w];
    if (event.target.id === "reset") [from, width] = [0, 1];
    draw();
  });
  svg.addEventListener("mouseover", (event) => {
    const g = event.target.closest("g.f");
    details.textContent = g ? g.querySelector("title").textContent : "";
  });
  window.addEventListener("keydown", (event) => {
    if (event.key !== "f") return;
    if (!event.ctrlKey) return;
    event.preventDefault();
    search();
  });
  draw();
})();
