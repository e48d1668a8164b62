// The stride explorer: a storage of 24 cells, and the walk that shape, stride and offset make through it. What it says is
// what helpers/lessons/storage_and_stride/explorer.py says; tests/browser/test_site.py compares the two.
"use strict";
Moving.strideFacts = (s, size) => {
  const shape = [s.rows, s.columns].slice(-s.dims), stride = [s.stride0, s.stride1].slice(-s.dims);
  const tuple = (v) => (v.length === 1 ? `(${v[0]},)` : `(${v.join(", ")})`);
  const call = `x.as_strided(${tuple(shape)}, ${tuple(stride)}, ${s.offset})`;
  const cells = [];
  for (let i = 0; i < (s.dims === 2 ? s.rows : 1); i++) {
    for (let j = 0; j < s.columns; j++) cells.push(s.offset + (s.dims === 2 ? i * s.stride0 : 0) + j * s.stride1);
  }
  if (Math.min(...stride) < 0) {
    return { cells: [], said: `${call} raises: PyTorch has no negative strides. x.flip(0) makes a copy instead.` };
  }
  const last = Math.max(...cells);
  if (last >= size) {
    const why = `its last element would lie in cell ${last}, but the storage ends at cell ${size - 1}`;
    return { cells: [], said: `${call} raises: ${why}. Fewer rows or columns, a smaller stride or a smaller offset fit.` };
  }
  let step = 1, contiguous = true;
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1) {
      contiguous &&= stride[d] === step;
      step *= shape[d];
    }
  }
  const visits = new Map();
  for (const c of cells) visits.set(c, (visits.get(c) ?? 0) + 1);
  const counts = [...visits.values()], fewest = Math.min(...counts), most = Math.max(...counts), n = counts.length;
  const elements = `${cells.length} element${cells.length !== 1 ? "s visit" : " visits"}`;
  const distinct = `${n} distinct cell${n !== 1 ? "s" : ""}`;
  const often = most === 1 ? "once" : `${most} times`;
  const walk = n < 2 ? `${elements} ${distinct}`
    : fewest < most ? `${elements} ${distinct}, ${fewest} to ${most} times each` : `${elements} each of ${distinct} ${often}`;
  const about = `shape ${tuple(shape)} · stride ${tuple(stride)} · offset ${s.offset} · is_contiguous() `;
  return { cells, said: `${about}${contiguous ? "True" : "False"} · ${walk} · ${call}` };
};

Moving.stride = (place, data) => {
  const { element } = Moving, { controls, drawing, facts } = Moving.frame(place, "The walk through the storage", data.evidence);
  const now = { ...Object.values(data.presets)[0] }, upTo = (a, b) => Array.from({ length: b - a + 1 }, (_, i) => `${a + i}`);
  const draw = () => {
    const { cells, said } = Moving.strideFacts(now, data.size), wide = Math.max(drawing.clientWidth, 240);
    const cell = wide / data.size, top = 96, high = Math.min(cell, 30);
    drawing.replaceChildren();
    const svg = element("svg", {
      width: wide, height: top + high + 4, viewBox: `0 0 ${wide} ${top + high + 4}`, role: "img", "aria-label": said,
    }, drawing);
    const visited = new Set(cells);
    for (let c = 0; c < data.size; c++) {
      element("rect", {
        x: c * cell + 1, y: top, width: cell - 2, height: high, class: visited.has(c) ? "blue" : "ground",
      }, svg);
      const look = { x: (c + 0.5) * cell, y: top + high * 0.68, class: `in${visited.has(c) ? " on-blue" : ""}` };
      if (cell > 15 || c % 2 === 0) element("text", look, svg, `${c}`);
    }
    cells.slice(1).forEach((to, i) => {
      const from = cells[i], [x1, x2] = [(from + 0.5) * cell, (to + 0.5) * cell];
      const up = from === to ? 24 : Math.min(14 + Math.abs(x2 - x1) * 0.5, top * 1.9), newRow = (i + 1) % now.columns === 0;
      const [a, b] = from === to ? [x1 - cell / 3, x2 + cell / 3] : [x1, x2];
      element("path", { d: `M${a} ${top} Q${(a + b) / 2} ${top - up} ${b} ${top}`, class: newRow ? "arc row" : "arc" }, svg);
    });
    facts.textContent = said;
  };
  const named = element("div", { class: "named" }, controls), shown = {};
  for (const [name, layout] of Object.entries(data.presets)) {
    element("button", { type: "button" }, named, name).addEventListener("click", () => {
      Object.assign(now, layout);
      for (const [which, show] of Object.entries(shown)) show(now[which] - (which === "dims" ? 1 : low[which]));
      draw();
    });
  }
  const low = { rows: 1, columns: 1, stride0: -1, stride1: -1, offset: 0 };
  const labels = { rows: "rows", columns: "columns", stride0: "stride 0 (rows)", stride1: "stride 1 (columns)", offset: "offset" };
  shown.dims = Moving.control(controls, "dimensions", ["1", "2"], now.dims - 1, (i) => { now.dims = i + 1; draw(); });
  for (const [which, label] of Object.entries(labels)) {
    const options = upTo(low[which], which === "offset" ? data.size - 1 : data.longest);
    shown[which] = Moving.control(controls, label, options, now[which] - low[which], (i) => { now[which] = low[which] + i; draw(); });
  }
  Moving.follow(drawing, draw);
};
