// Dark or light: the system's setting, until the button overrides it.
const KEY = "skymesh-theme";

export function setUpTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: light)");
  const apply = () => {
    document.documentElement.dataset.theme = localStorage.getItem(KEY) ?? (system.matches ? "light" : "dark");
    changed();
  };
  system.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", () => {
    localStorage.setItem(KEY, document.documentElement.dataset.theme === "light" ? "dark" : "light");
    apply();
  });
  apply();
}

/** The colours of the page, for canvases. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["bg", "panel", "line", "text", "soft", "good", "warn", "bad", "cold", "dead", "accent", "won", "spare", "map", "land", "coast"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A canvas as sharp as the screen. The browser tells its size when it changes: asking in every frame costs a layout. */
export class Sheet {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.width = 0;
    this.height = 0;
    new ResizeObserver((entries) => {
      const { width, height } = entries.at(-1).contentRect;
      Object.assign(this, { width, height });
    }).observe(canvas);
  }

  /** Before drawing; true when what was drawn is gone, because the size has changed. */
  fit() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.round(this.width * ratio);
    const height = Math.round(this.height * ratio);
    if (this.canvas.width === width && this.canvas.height === height) return false;
    this.canvas.width = width;
    this.canvas.height = height;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return true;
  }
}
