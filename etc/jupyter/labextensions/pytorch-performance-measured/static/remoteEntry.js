// The course in JupyterLab for everybody: what ipywidgets does not say to a screen reader, and how our output looks.
// JupyterLab loads it as it is (etc/jupyter/jupyter_lab_config.py says where it lies): nothing builds it.
(() => {
  const NAME = "pytorch-performance-measured";

  const STYLE = `
/* words are broken only where a whole line is too short for one; JupyterLab breaks anywhere */
.jp-RenderedText pre { word-break: normal; overflow-wrap: anywhere; }
/* Validate's dialog begins with the sum (helpers/classroom/validating.py), which is no cell that failed */
.jp-Dialog #validation-message { max-width: 52rem; }
#validation-message.validation-failed > div:first-child { display: none; }
#validation-message.validation-failed > .jp-RenderedText { padding: 0; }
#validation-message.validation-failed > .jp-RenderedText:has(> pre:empty) { display: none; }
.jp-Dialog #validation-message pre { white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; }
/* what is chosen has a mark and a frame, not only another colour */
.widget-toggle-button.mod-active { font-weight: 600; box-shadow: inset 0 0 0 2px currentColor; }
.widget-toggle-button.mod-active::before { content: "✓ "; }
/* where the keyboard is */
.jupyter-button:focus-visible, .noUi-handle:focus-visible { outline: 3px solid var(--jp-brand-color1); outline-offset: 2px; }
/* the course's pictures are drawn on white: in the dark they are turned, hues kept */
body[data-jp-theme-light="false"] img[data-course-picture] { filter: invert(0.93) hue-rotate(180deg); }
`;

  const set = (element, name, value) => {
    if (value && element.getAttribute(name) !== value) element.setAttribute(name, value);
  };
  const labelOf = (element) => element.closest(".jupyter-widgets.widget-inline-hbox")?.querySelector(".widget-label")?.textContent;

  // An element of a widget → what it is called and in which state it is.
  const TOLD = {
    ".widget-toggle-buttons .widget-toggle-button": (button) => {
      set(button, "aria-label", button.title); // question and choice; on the button itself stands the choice alone
      set(button, "aria-pressed", String(button.classList.contains("mod-active")));
    },
    ".noUi-handle": (handle) => set(handle, "aria-label", labelOf(handle)),
    ".widget-readout[contenteditable]": (value) => {
      set(value, "role", "textbox");
      set(value, "aria-label", labelOf(value));
    },
    ".jp-OutputArea img": (image) => describe(image),
  };

  // What a PNG says of itself, in its chunk "Description": every picture of the course does (helpers/plots/picture.py).
  const description = (bytes) => {
    const chunks = new DataView(bytes);
    const words = (from, to) => new TextDecoder().decode(bytes.slice(from, to));
    for (let at = 8; at + 8 < bytes.byteLength; at += 12 + chunks.getUint32(at)) {
      const [begin, end] = [at + 8, at + 8 + chunks.getUint32(at)];
      if (words(at + 4, begin) !== "iTXt") continue;
      const [keyword, , , , ...text] = words(begin, end).split("\0"); // keyword, not compressed, method, language, translated
      if (keyword === "Description") return text.join("").trim();
    }
    return "";
  };

  const SEEN = new WeakMap();
  const describe = async (image) => {
    if (SEEN.get(image) === image.src || !/^(data:image\/png|blob:)/.test(image.src)) return;
    SEEN.set(image, image.src);
    const head = (await (await fetch(image.src)).blob()).slice(0, 4000);
    const says = description(await head.arrayBuffer());
    set(image, "alt", says);
    image.toggleAttribute("data-course-picture", says !== "");
  };

  const tell = () => {
    for (const [what, say] of Object.entries(TOLD)) document.querySelectorAll(what).forEach(say);
  };

  const plugin = {
    id: `${NAME}:everybody`,
    autoStart: true,
    activate: (app) => {
      // where the window is narrow, the lesson and its pictures need the width more than the list of files does
      if (window.innerWidth < 1200) app.restored.then(() => app.shell.collapseLeft());
      const style = document.createElement("style");
      style.textContent = STYLE;
      document.head.append(style);
      let waiting = false;
      new MutationObserver(() => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
          waiting = false;
          tell();
        });
      }).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["class", "title", "src"] });
    },
  };

  (window._JUPYTERLAB ??= {})[NAME] = {
    init: () => {},
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
