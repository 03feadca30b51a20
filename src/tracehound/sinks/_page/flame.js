"use strict";
// The page's one script: a tree in typed arrays, drawn as boxes from the node that is zoomed to. No text becomes markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { depth, name, weight, rows, functions, kinds, paths, unit } = data;
  const count = depth.length, ROW = 20, LEAST = 2, TEXT = 40;
  const find = (id) => document.getElementById(id);
  const graph = find("graph"), detail = find("detail"), search = find("search"), matched = find("matched");

  // ---- the tree: children of a node stand side by side, the heaviest first
  const parent = new Int32Array(count), end = new Int32Array(count), own = Float64Array.from(weight);
  const first = new Int32Array(count + 1), children = new Int32Array(Math.max(count - 1, 0));
  const below = new Int32Array(count); // how many levels there are under a node
  const path = [];
  for (let i = 0; i < count; i++) {
    while (path.length > depth[i]) end[path.pop()] = i;
    parent[i] = path.length ? path[path.length - 1] : -1;
    if (parent[i] >= 0) { own[parent[i]] -= weight[i]; first[parent[i] + 1]++; }
    path.push(i);
  }
  while (path.length) end[path.pop()] = count;
  for (let i = count - 1; i > 0; i--) below[parent[i]] = Math.max(below[parent[i]], below[i] + 1);
  for (let i = 0; i < count; i++) first[i + 1] += first[i];
  const filled = first.slice();
  for (let i = 1; i < count; i++) children[filled[parent[i]]++] = i;
  const heavier = (a, b) => weight[b] - weight[a] || (label(a) < label(b) ? -1 : 1);
  for (let i = 0; i < count; i++) if (first[i + 1] - first[i] > 1) children.subarray(first[i], first[i + 1]).sort(heavier);

  function label(node) { return functions[name[node]][0]; }
  const hues = functions.map(([text]) => {
    let hash = 0;
    for (const character of text) hash = (Math.imul(hash, 31) + character.codePointAt(0)) | 0;
    return (hash >>> 7) % 29 - 14;
  });
  const BASE = { native: 32, kernel: 212, python: 135, jit: 282 };

  // ---- what is shown: a node and, of its children, those from the place `from` on
  const whole = { node: 0, from: first[0], weight: weight[0] };
  let view = whole, history = [], isFlame = true, pattern = null, matches = null, here = 0, boxes = [];

  const number = (value) => Math.round(value).toLocaleString("en-US");
  function amount(value) {
    if (unit !== "ns") return `${number(value)} ${unit === "calls" && value === 1 ? "call" : unit}`;
    if (value < 1e3) return `${value} ns`;
    if (value < 1e6) return `${(value / 1e3).toPrecision(3)} µs`;
    if (value < 1e9) return `${(value / 1e6).toPrecision(3)} ms`;
    return `${value < 120e9 ? (value / 1e9).toPrecision(3) : number(value / 1e9)} s`;
  }
  const percent = (value, of) => `${(of ? 100 * value / of : 0).toFixed(value < of ? 2 : 0)} %`;

  function draw(focus) {
    const width = graph.clientWidth, scale = width / (view.weight || 1), found = [], base = depth[view.node];
    const isPart = view.from > first[view.node];
    for (let node = view.node, at = base; node >= 0; node = parent[node], at--)
      found.push({ node, x: 0, width, row: at, above: at < base || isPart });
    place(view.node, view.from, 0, scale, base + 1, found);
    let deepest = 0;
    for (const box of found) deepest = Math.max(deepest, box.row);
    const height = Math.max((deepest + 1) * ROW, graph.parentElement.clientHeight - 16);
    const list = document.createDocumentFragment();
    boxes = found.map((box) => {
      const element = document.createElement("div");
      dress(element, box);
      element.style.left = `${box.x}px`;
      element.style.width = `${Math.max(box.width, 1)}px`;
      element.style.top = `${isFlame ? height - (box.row + 1) * ROW : box.row * ROW}px`;
      element.box = box;
      box.element = element;
      list.append(element);
      return box;
    });
    graph.style.height = `${height}px`;
    graph.classList.toggle("searching", pattern !== null);
    graph.replaceChildren(list);
    find("back").disabled = !history.length;
    find("all").disabled = view === whole;
    const at = boxes.find((box) => box.node === focus && !box.rest) || boxes[0];
    move(at, focus !== undefined);
    tellMatched();
  }

  function dress(element, box) {
    const [text, kind, , , isInlined] = functions[name[box.node]];
    element.className = `box ${box.rest ? "rest" : kinds[kind]}`;
    element.classList.toggle("above", Boolean(box.above));
    element.classList.toggle("inlined", Boolean(isInlined && !box.rest));
    element.classList.toggle("match", Boolean(matches && !box.rest && matches[name[box.node]]));
    element.tabIndex = -1;
    element.setAttribute("role", "button");
    if (!box.rest && kinds[kind] in BASE) element.style.setProperty("--h", BASE[kinds[kind]] + hues[name[box.node]]);
    element.setAttribute("aria-label", box.rest ? `${number(box.rest)} narrow functions` : text);
    if (box.width >= TEXT) {
      element.classList.add("text");
      element.textContent = box.rest ? `+ ${number(box.rest)} more` : text;
    }
  }

  // Children from a place on; once one is too narrow to be seen all behind it are: they become one box.
  function place(node, from, x, scale, row, found) {
    const last = first[node + 1];
    for (let at = from; at < last; at++) {
      const child = children[at], width = weight[child] * scale;
      if (width < (last - at === 1 ? 1 : LEAST)) {
        let left = 0;
        for (let i = at; i < last; i++) left += weight[children[i]];
        if (left * scale >= 1) found.push({ node, x, width: left * scale, row, rest: last - at, from: at, weight: left });
        return;
      }
      found.push({ node: child, x, width, row });
      place(child, first[child], x, scale, row + 1, found);
      x += width;
    }
  }

  function show(next) {
    history.push(view);
    view = next;
    draw(view.node);
    settle();
  }
  function zoom(box) {
    if (box.rest) show({ node: box.node, from: box.from, weight: box.weight });
    else if (box.node !== view.node || view.from > first[view.node])
      show(box.node ? { node: box.node, from: first[box.node], weight: weight[box.node] } : whole);
  }
  function back() {
    if (!history.length) return;
    const before = view.node;
    view = history.pop();
    draw(before);
    settle();
  }
  function settle() { // what is zoomed to is in sight, with what it called
    const scroll = graph.parentElement, at = boxes.find((box) => box.node === view.node);
    scroll.scrollTop = isFlame ? at.element.offsetTop + ROW * 4 - scroll.clientHeight + 8 : Math.max(at.element.offsetTop - ROW * 3, 0);
    if (view === whole) scroll.scrollTop = isFlame ? scroll.scrollHeight : 0;
  }

  // ---- one line about a box
  function tell(box) {
    const bold = document.createElement("b"), all = weight[0];
    const value = box.rest ? box.weight : weight[box.node];
    bold.textContent = box.rest ? `${number(box.rest)} functions too narrow to be drawn alone` : label(box.node);
    const words = [` ${amount(value)}`, `${percent(value, all)} of all`];
    if (view !== whole) words.push(`${percent(Math.min(value, view.weight), view.weight)} of what is shown`);
    const parts = [bold];
    if (box.rest) words.push(`called by ${label(box.node)}; a click shows them`);
    else {
      if (rows) words.push(`${number(rows[box.node])} call${rows[box.node] === 1 ? "" : "s"}`);
      words.push(`itself ${amount(own[box.node])}, ${percent(own[box.node], all)}`);
    }
    parts.push(` ${words.join(" · ")}`);
    const [, kind, file, source, isInlined] = functions[name[box.node]];
    const where = [isInlined ? "inlined" : "", /^(native|process|status)$/.test(kinds[kind]) ? "" : kinds[kind], paths[file], paths[source]];
    if (!box.rest && where.some(Boolean)) {
      const place = document.createElement("span");
      place.className = "path";
      place.textContent = ` · ${where.filter(Boolean).join(" · ")}`;
      parts.push(place);
    }
    detail.replaceChildren(...parts);
  }

  // ---- search
  function seek() {
    const text = search.value;
    let isWrong = false;
    pattern = null;
    if (text) {
      try { pattern = new RegExp(text, /\p{Lu}/u.test(text.replace(/\\./g, "")) ? "u" : "iu"); } catch { isWrong = true; }
    }
    matches = pattern && Uint8Array.from(functions, ([title, , file]) => pattern.test(title) || pattern.test(paths[file]));
    search.classList.toggle("wrong", isWrong);
    matched.className = isWrong ? "wrong" : "";
    for (const box of boxes) box.element.classList.toggle("match", Boolean(matches && !box.rest && matches[name[box.node]]));
    graph.classList.toggle("searching", pattern !== null);
    if (isWrong) matched.textContent = "not a regular expression";
    else tellMatched();
  }
  function tellMatched() { // each call once, however many of its functions match
    if (!matches) { if (!search.value) matched.textContent = ""; return; }
    let value = 0;
    if (view.from === first[view.node] && matches[name[view.node]]) value = view.weight;
    else for (let at = view.from; at < first[view.node + 1]; at++)
      for (let i = children[at], last = end[children[at]]; i < last;)
        if (matches[name[i]]) { value += weight[i]; i = end[i]; } else i++;
    matched.textContent = `matched ${percent(value, view.weight)}${view === whole ? "" : " of what is shown"}, ${amount(value)}`;
    matched.className = value ? "found" : "";
  }

  // ---- mouse and keys
  function move(box, isFocused) {
    if (!box) return;
    if (boxes[here]) { boxes[here].element.tabIndex = -1; }
    here = boxes.indexOf(box);
    box.element.tabIndex = 0;
    if (isFocused) box.element.focus({ preventScroll: true });
    tell(box);
  }
  function step(key) {
    const box = boxes[here], up = isFlame ? "ArrowUp" : "ArrowDown", down = isFlame ? "ArrowDown" : "ArrowUp";
    const rows = (row) => boxes.filter((each) => each.row === row).sort((a, b) => a.x - b.x);
    let next;
    if (key === up) next = rows(box.row + 1).find((each) => each.x >= box.x - 0.01 && each.x < box.x + box.width);
    else if (key === down) next = rows(box.row - 1).filter((each) => each.x <= box.x + 0.01).pop();
    else {
      const side = rows(box.row), at = side.indexOf(box);
      next = key === "ArrowRight" ? side[at + 1] : key === "ArrowLeft" ? side[at - 1] : key === "Home" ? side[0] : side[side.length - 1];
    }
    if (next) { move(next, true); next.element.scrollIntoView({ block: "nearest" }); }
  }
  const boxOf = (event) => event.target.closest && event.target.closest(".box") && event.target.closest(".box").box;
  graph.addEventListener("click", (event) => { const box = boxOf(event); if (box) zoom(box); });
  graph.addEventListener("mouseover", (event) => { const box = boxOf(event); if (box) tell(box); });
  graph.addEventListener("mouseleave", () => { if (boxes[here]) tell(boxes[here]); });
  graph.addEventListener("focusin", (event) => { const box = boxOf(event); if (box && boxes[here] !== box) move(box, false); else if (box) tell(box); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const box = boxOf(event);
    if (event.key === "Escape") {
      if (search.value) { search.value = ""; seek(); } else back();
    } else if (event.target === search) {
      if (event.key === "Enter" && boxes[here]) boxes[here].element.focus();
      return;
    } else if (event.key === "/") search.focus();
    else if (box && (event.key === "Enter" || event.key === " ")) zoom(box);
    else if (box && /^(Arrow\w+|Home|End)$/.test(event.key)) step(event.key);
    else return;
    event.preventDefault();
  });
  search.addEventListener("input", seek);
  find("back").addEventListener("click", back);
  find("all").addEventListener("click", () => { show(whole); });
  find("turn").addEventListener("click", () => {
    isFlame = !isFlame;
    find("turn").textContent = isFlame ? "Icicle" : "Flame";
    draw();
    settle();
  });
  for (const chip of document.querySelectorAll("[data-search]"))
    chip.addEventListener("click", () => { search.value = chip.dataset.search; seek(); });

  if (weight[0]) {
    draw();
    settle();
    let size = `${graph.clientWidth} ${graph.parentElement.clientHeight}`;
    new ResizeObserver(() => { // also a frame that gets its size late
      const now = `${graph.clientWidth} ${graph.parentElement.clientHeight}`;
      if (now === size) return;
      size = now;
      draw(graph.contains(document.activeElement) ? boxes[here].node : undefined);
      settle();
    }).observe(graph.parentElement);
  } else {
    graph.textContent = "There is no stack here that weighs anything.";
    graph.className = "empty";
  }
})();
