// Predictions without a kernel: choices are buttons, and a result, with the text that explains it, is folded until there is
// an answer to each question, or the reader wants it without. Without scripts all of it is open.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const word = (text) => {
    const plain = text.trim().toLowerCase().replaceAll("×", "x").replace(/(\d),(?=\d{3})/g, "$1");
    return plain !== "" && !isNaN(plain) ? `${+plain}` : plain;
  };
  let asked = null, number = 0;
  for (const cell of document.querySelectorAll(".cell.tag_predict, .cell.tag_result")) {
    if (cell.classList.contains("tag_predict")) {
      asked = { said: new Map(), rows: [], answered: () => {} };
      for (const row of cell.querySelectorAll(".cell_output table tbody tr")) {
        const [question, choices] = row.cells, mine = asked, name = `predict-${number += 1}`;
        mine.rows.push(question.textContent);
        choices.setAttribute("role", "radiogroup");
        choices.setAttribute("aria-label", question.textContent);
        choices.classList.add("choices");
        choices.replaceChildren(...choices.textContent.split(" · ").map((choice) => {
          const label = document.createElement("label"), input = document.createElement("input"), text = document.createElement("span");
          Object.assign(input, { type: "radio", name });
          text.textContent = choice;
          label.append(input, text);
          input.addEventListener("change", () => { mine.said.set(question.textContent, choice); mine.answered(); });
          return label;
        }));
      }
      continue;
    }
    const output = cell.querySelector(".cell_output");
    if (!output) continue;
    const fold = document.createElement("details"), ask = document.createElement("summary");
    fold.className = "result";
    ask.textContent = asked ? "Predict above, and the result opens here. Or open it without." : "What came out";
    fold.append(ask);
    let next = cell.nextElementSibling;
    cell.append(fold);
    fold.append(output);
    const begins = (part) => /^(Exercise \d|Move it)/.test(part.textContent.trim()); // something else than what explains the result
    while (next && next.tagName !== "SECTION" && !next.classList.contains("cell") && !/^H\d$/.test(next.tagName) && !begins(next)) {
      const after = next.nextElementSibling;
      fold.append(next);
      next = after;
    }
    const mine = asked, table = output.querySelector("table");
    if (!mine) continue;
    mine.answered = () => {
      if (mine.said.size < mine.rows.length) return;
      let right = 0;
      const column = [...(table?.tHead?.rows[0].cells ?? [])].findIndex((c) => c.textContent === "you said");
      for (const row of table?.tBodies[0].rows ?? []) {
        const said = mine.said.get(row.cells[0].textContent);
        if (said === undefined || column < 0) continue;
        const hit = word(said) === word(row.cells[1].textContent);
        right += hit;
        row.cells[column].textContent = `${said} ${hit ? "✓" : "✗"}`;
      }
      ask.textContent = `${right} of ${mine.rows.length} predicted right`;
      fold.open = true;
    };
    asked = null;
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = target?.closest("details"); up; up = up.parentElement?.closest("details")) up.open = true;
});
