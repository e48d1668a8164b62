// Pictures that move without a kernel. The site's build computed every state (helpers/classroom/moving.py); here the one that
// is chosen is drawn. <div class="moving" data-name="pipeline"> is filled from window.MOVING.pipeline.
"use strict";
const Moving = {
  element(tag, about = {}, parent = null, text = "") {
    const drawn = ["svg", "rect", "text", "path", "line"].includes(tag);
    const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    parent?.append(made);
    return made;
  },

  // A control: a few options are buttons to choose from, many are a slider. changed: called with the place of the option.
  control(parent, label, options, at, changed) {
    const { element } = Moving;
    if (options.join("").length <= 60 && options.length <= 5) {
      const set = element("fieldset", {}, parent);
      element("legend", {}, set, label);
      const name = `moving-${Moving.count = (Moving.count ?? 0) + 1}`;
      const inputs = options.map((option, i) => {
        const frame = element("label", {}, set);
        const input = element("input", { type: "radio", name }, frame);
        input.checked = i === at;
        input.addEventListener("change", () => changed(i));
        element("span", {}, frame, option);
        return input;
      });
      return (i) => { inputs[i].checked = true; };
    }
    const frame = element("label", { class: "slider" }, parent);
    element("span", {}, frame, label);
    const input = element("input", { type: "range", min: 0, max: options.length - 1, step: 1 }, frame);
    const value = element("output", {}, frame);
    const show = (i) => {
      input.value = i;
      input.setAttribute("aria-valuetext", options[i]);
      value.textContent = options[i];
    };
    input.addEventListener("input", () => { show(+input.value); changed(+input.value); });
    show(at);
    return show;
  },

  // The frame of a picture: title, evidence, place for controls, for the drawing, and for what it says.
  frame(place, title, evidence) {
    const { element } = Moving;
    const head = element("div", { class: "head" }, place);
    element("strong", {}, head, title);
    element("span", { class: "evidence" }, head, evidence);
    const controls = element("div", { class: "controls" }, place);
    const drawing = element("div", { class: "drawing" }, place);
    const facts = element("p", { class: "facts", role: "status" }, place);
    const before = place.closest(".cell_output")?.querySelector("img");
    if (before) (before.closest("a") ?? before).hidden = true;
    return { controls, drawing, facts };
  },

  // Draw again when the place becomes wider or narrower.
  follow(drawing, draw) {
    let wide = 0;
    new ResizeObserver(() => {
      if (Math.abs(drawing.clientWidth - wide) > 4) { wide = drawing.clientWidth; draw(); }
    }).observe(drawing);
  },

  lanes(place, data) {
    const { element } = Moving;
    const { controls, drawing, facts } = Moving.frame(place, data.title, data.evidence);
    const at = data.controls.map((c) => c.at);
    const draw = () => {
      const [said, length, lanes] = data.states[at.join(",")];
      const wide = Math.max(drawing.clientWidth, 200), letter = 7;
      const longest = Math.max(...lanes.map((l) => l[0].length), 3), ends = Math.max(...lanes.map((l) => l[1].length));
      const left = Math.min(longest * letter + 10, wide * 0.42), right = ends ? ends * letter + 8 : 4;
      const high = lanes.length > 6 ? 22 : 30, room = wide - left - right;
      drawing.replaceChildren();
      const svg = element("svg", {
        width: wide, height: lanes.length * high + 22, viewBox: `0 0 ${wide} ${lanes.length * high + 22}`, role: "img",
        "aria-label": `${data.title} ${said}`,
      }, drawing);
      lanes.forEach(([label, note, boxes], row) => {
        const y = row * high, cut = Math.floor((left - 8) / letter);
        const name = label.length > cut ? label.slice(0, cut - 1) + "…" : label;
        element("text", { x: 0, y: y + high * 0.64, class: "label" }, svg, name);
        element("rect", { x: left, y: y + 2, width: room, height: high - 6, class: "ground" }, svg);
        for (let i = 0; i < boxes.length; i += 4) {
          const [x, w] = [left + (boxes[i] / data.fine) * room, (boxes[i + 1] / data.fine) * room];
          const part = data.controls.length && w > 3 ? 0.6 : 0;
          element("rect", {
            x, y: y + 2, width: Math.max(w - part, 0.6), height: high - 6, class: data.key[boxes[i + 2]][0],
          }, svg);
          const words = boxes[i + 3];
          if (words && words.length * 6.2 + 4 < w) {
            element("text", { x: x + w / 2, y: y + high * 0.62, class: `in on-${data.key[boxes[i + 2]][0]}` }, svg, words);
          }
        }
        if (note) element("text", { x: wide - right + 6, y: y + high * 0.64, class: "label" }, svg, note);
      });
      const foot = lanes.length * high + 14;
      if (length) {
        element("text", { x: left, y: foot, class: "label" }, svg, "0");
        element("text", { x: left + room, y: foot, class: "label end" }, svg, length);
      }
      facts.textContent = said;
    };
    data.controls.forEach((c, i) => {
      Moving.control(controls, c.label, c.options, c.at, (chosen) => { at[i] = chosen; draw(); });
    });
    const key = element("p", { class: "key" });
    for (const [colour, words] of data.key) {
      const entry = element("span", {}, key);
      element("i", { class: colour }, entry);
      entry.append(words);
    }
    drawing.after(key);
    Moving.follow(drawing, draw);
  },
};

document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".moving")) {
    const data = window.MOVING?.[place.dataset.name];
    if (data) (Moving[place.dataset.name] ?? Moving.lanes)(place, data);
  }
});
